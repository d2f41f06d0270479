//! Functions and calls, for a model whose chat template has no place for any: they are written into what is said, between the
//! marks of Hermes, which many models have been trained on.

use crate::text::MARKED;
use serde_json::{Map, Value, json};

/// What a conversation with calls in it is for a template that knows none: what was called and what it gave back is said.
pub(super) fn spoken(messages: Vec<Map<String, Value>>) -> Vec<Map<String, Value>> {
    let mut written: Vec<Map<String, Value>> = Vec::with_capacity(messages.len());
    let mut after_response = false;
    for mut message in messages {
        if let Some(calls) = message.remove("tool_calls") {
            let calls = calls.as_array().into_iter().flatten();
            calls.for_each(|call| append(&mut message, "\n", &call_of(&call["function"])));
        }
        let is_response = is_by(&message, "tool");
        if is_response {
            let said = format!("<tool_response>\n{}\n</tool_response>", said(&message));
            message = Map::from_iter([
                ("role".to_owned(), "user".into()),
                ("content".to_owned(), said.into()),
            ]);
        }
        match written.last_mut() {
            // Many templates want the user and the assistant to take turns.
            Some(last) if is_response && after_response => append(last, "\n", said(&message)),
            _ => written.push(message),
        }
        after_response = is_response;
    }
    written
}

/// Tells of the functions in the rules, if there are some, or else at the beginning of what the user says: there are models
/// without rules.
pub(super) fn tell(messages: &mut [Map<String, Value>], tools: &[Value]) {
    let call = call_of(&json!({"name": "NAME", "arguments": {}}));
    let mut told =
        format!("These functions may be called, by writing {call} with a name and arguments:");
    tools.iter().for_each(|tool| told += &format!("\n{}", tool["function"]));
    let place = messages.iter().position(|message| is_by(message, "system"));
    let first = || messages.iter().position(|message| is_by(message, "user"));
    match place.or_else(first).map(|at| &mut messages[at]) {
        Some(rules) if place.is_some() => append(rules, "\n\n", &told),
        Some(question) => {
            let said = format!("{told}\n\n{}", said(question));
            question.insert("content".to_owned(), said.into());
        }
        None => {}
    }
}

/// A call as a model is to write it: its name first, so that it shows soon what is called.
fn call_of(function: &Value) -> String {
    let [hermes, ..] = &MARKED;
    let (name, arguments) = (&function["name"], &function["arguments"]);
    let close = hermes.close.unwrap_or_default();
    format!("{}{{\"name\": {name}, \"arguments\": {arguments}}}{close}", hermes.open)
}

fn is_by(message: &Map<String, Value>, role: &str) -> bool {
    message.get("role").is_some_and(|said| said == role)
}

fn said(message: &Map<String, Value>) -> &str {
    message.get("content").and_then(Value::as_str).unwrap_or_default()
}

fn append(message: &mut Map<String, Value>, between: &str, more: &str) {
    let between = if said(message).is_empty() { "" } else { between };
    let whole = format!("{}{between}{more}", said(message));
    message.insert("content".to_owned(), whole.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(messages: &Value) -> Vec<Map<String, Value>> {
        messages
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message.as_object().unwrap().clone())
            .collect()
    }

    fn told(messages: Value, tools: &Value) -> Value {
        let mut messages = of(&messages);
        tell(&mut messages, tools.as_array().unwrap());
        json!(messages)
    }

    #[test]
    fn functions_stand_in_the_rules_or_before_the_question() {
        let tool = json!([{"type": "function", "function": {"name": "now", "description": "tells the time"}}]);
        let question = json!({"role": "user", "content": "When?"});
        let words = "These functions may be called, by writing <tool_call>{\"name\": \"NAME\", \"arguments\": {}}</tool_call> with a \
                    name and arguments:\n";
        let words = format!("{words}{}", tool[0]["function"]);
        let user = json!({"role": "user", "content": format!("{words}\n\nWhen?")});
        assert_eq!(told(json!([question]), &tool), json!([user]));
        let rules = json!({"role": "system", "content": "Be brief."});
        let both = json!({"role": "system", "content": format!("Be brief.\n\n{words}")});
        assert_eq!(told(json!([rules, question]), &tool), json!([both, question]));
    }

    #[test]
    fn calls_and_what_they_gave_back_are_said() {
        let call = |city: &str| json!({"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": city}}});
        let messages = json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "", "tool_calls": [call("Rome"), call("Oslo")]},
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "2", "content": "rain"},
            {"role": "assistant", "content": "Mixed."},
        ]);
        let said = |city: &str| {
            format!(
                "<tool_call>{{\"name\": \"weather\", \"arguments\": {{\"city\":\"{city}\"}}}}</tool_call>"
            )
        };
        let calls = format!("{}\n{}", said("Rome"), said("Oslo"));
        let back =
            "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nrain\n</tool_response>";
        let expected = json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": back},
            {"role": "assistant", "content": "Mixed."},
        ]);
        assert_eq!(json!(spoken(of(&messages))), expected);
    }
}
