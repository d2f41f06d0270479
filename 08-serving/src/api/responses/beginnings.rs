//! Where a conversation may begin if its oldest items are left out.

use super::{Item, ItemContent};
use crate::api::messages::Role;
use std::collections::HashSet;

impl Item {
    fn is(&self, kind: &str) -> bool {
        self.kind.as_deref().unwrap_or("message") == kind
    }

    /// Whether it is not the assistant's: rules, or what a user says.
    pub fn is_put_to_the_model(&self) -> bool {
        self.is("message") && self.role.is_some_and(|role| role != Role::Assistant)
    }

    /// Texts of it that a model reads in any case: many templates leave earlier thoughts out.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let said = [&self.content, &self.output].into_iter().flatten();
        said.filter(|_| !self.is("reasoning")).flat_map(ItemContent::texts)
    }
}

impl ItemContent {
    fn texts(&self) -> Vec<&str> {
        match self {
            ItemContent::Text(text) => vec![text],
            ItemContent::Parts(parts) => {
                parts.iter().filter_map(|part| part.text.as_deref()).collect()
            }
        }
    }
}

/// The items, by number and rising, with which a conversation may begin that all before are left out of: nothing is kept of what a
/// function gave back without the call that it answers.
pub fn beginnings(items: &[Item]) -> Vec<usize> {
    let ids = |kind: &'static str| {
        let of_kind = items.iter().filter(move |item| item.is(kind));
        of_kind.filter_map(|item| item.call_id.as_deref()).collect::<HashSet<_>>()
    };
    let called = ids("function_call");
    let mut beginnings = Vec::new();
    // Calls that belong to what is kept, and are not kept yet.
    let mut lacking = HashSet::new();
    for (at, item) in items.iter().enumerate().rev() {
        match item.call_id.as_deref() {
            Some(id) if item.is("function_call") => {
                lacking.remove(id);
            }
            // What answers no call at all is the client's mistake, or the model's to make something of.
            Some(id) if item.is("function_call_output") && called.contains(id) => {
                lacking.insert(id);
            }
            _ => {}
        }
        if lacking.is_empty() {
            beginnings.push(at);
        }
    }
    beginnings.reverse();
    beginnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn items(items: Value) -> Vec<Item> {
        serde_json::from_value(items).unwrap()
    }

    #[test]
    fn nothing_is_kept_that_answers_a_call_which_is_not() {
        let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "now"});
        let back =
            |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "noon"});
        let user = json!({"role": "user", "content": "What time is it?"});
        let all = items(json!([
            user,
            call("a"),
            call("b"),
            back("a"),
            back("b"),
            user,
            back("x"),
            call("c"),
            back("c"),
            user,
        ]));
        assert_eq!(beginnings(&all), [0, 1, 5, 6, 7, 9]);
        assert!(beginnings(&[]).is_empty());
    }

    #[test]
    fn what_a_model_reads_of_an_item() {
        let all = items(json!([
            {"role": "developer", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"role": "assistant", "content": "c"},
            {"type": "function_call_output", "call_id": "x", "output": "d"},
        ]));
        let texts: Vec<Vec<&str>> = all.iter().map(|item| item.texts().collect()).collect();
        assert_eq!(texts, [vec!["Be brief."], vec!["a", "b"], vec![], vec!["c"], vec!["d"]]);
        let put: Vec<bool> = all.iter().map(Item::is_put_to_the_model).collect();
        assert_eq!(put, [true, true, false, false, false]);
    }
}
