//! A call that is told while it comes: first its name, then its arguments, as they are written.

use super::json::Within;
use super::{Other, sign, word};
use crate::api::tools::ToolCall;
use crate::text::Found;

/// Where arguments begin in a text that begins with a call of one of some functions: `{"name": …, "arguments": {`, in this
/// order. Calls that are written in another are looked at when they are whole.
pub(super) fn begun(text: &str, names: &[String]) -> Result<(ToolCall, usize), Other> {
    let (_, rest) = word(sign(text, '{')?, ["name"])?;
    let (name, rest) = word(sign(rest, ':')?, names.iter().map(String::as_str))?;
    let (_, rest) = word(sign(rest, ',')?, ["arguments", "parameters"])?;
    let inside = sign(sign(rest, ':')?, '{')?;
    Ok((ToolCall::new(name, ""), text.len() - inside.len() - 1))
}

/// An object of JSON while it comes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arguments {
    /// Objects and lists that are open.
    depth: usize,
    within: Within,
    is_over: bool,
}

impl Arguments {
    /// How many of the next bytes are still of it.
    pub(super) fn take(&mut self, text: &str) -> usize {
        let ends = text.bytes().position(|byte| self.ends_with(byte));
        match (self.is_over, ends) {
            (_, Some(at)) => at + 1,
            (true, None) => 0,
            (false, None) => text.len(),
        }
    }

    /// Whether a byte is its last.
    fn ends_with(&mut self, byte: u8) -> bool {
        if self.is_over {
            return false;
        }
        let is_string = self.within.is_string();
        self.within = self.within.after_any(byte);
        match byte {
            b'{' | b'[' if !is_string => self.depth += 1,
            b'}' | b']' if !is_string => {
                self.depth = self.depth.saturating_sub(1);
                self.is_over = self.depth == 0;
            }
            _ => {}
        }
        self.is_over
    }
}

/// An answer that is one call and nothing else.
#[derive(Debug, Clone)]
pub struct OneCall {
    /// Names of the functions that there are.
    names: Vec<String>,
    /// What has come before the arguments.
    head: String,
    arguments: Option<Arguments>,
}

impl OneCall {
    /// Of one of these functions.
    pub fn new(names: Vec<String>) -> Self {
        OneCall { names, head: String::new(), arguments: None }
    }

    /// Takes more of the answer. Of a call that is cut off before its arguments begin, nothing is told.
    pub fn push(&mut self, text: &str) -> Found {
        let mut found = Found::default();
        if let Some(arguments) = &mut self.arguments {
            found.more(&text[..arguments.take(text)]);
            return found;
        }
        self.head += text;
        if let Ok((call, at)) = begun(&self.head, &self.names) {
            found.call(vec![call]);
            let rest = self.head.split_off(at);
            self.arguments = Some(Arguments::default());
            found.extend(self.push(&rest));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name and the arguments that are told of an answer in pieces of so many letters, and in how many.
    fn told(answer: &str, letters: usize) -> (Vec<(String, String)>, usize) {
        let mut call = OneCall::new(vec!["weather".into(), "we".into()]);
        let all: Vec<char> = answer.chars().collect();
        let pieces = all.chunks(letters).map(|piece| piece.iter().collect::<String>());
        let found: Vec<Found> = pieces.map(|piece| call.push(&piece)).collect();
        let count = found.iter().filter(|found| !found.0.is_empty()).count();
        let mut whole = Found::default();
        found.into_iter().for_each(|found| whole.extend(found));
        assert_eq!(whole.text(), "", "{answer}");
        let calls = whole.calls().into_iter();
        (calls.map(|call| (call.function.name, call.function.arguments)).collect(), count)
    }

    #[test]
    fn a_call_is_told_piece_by_piece() {
        for arguments in [
            "{}",
            "{ \"city\": \"Köln\" }",
            "{\"a\": [{\"b\": \"}]\\\"{\\\\\"}, [1, 2]], \"c\": {}}",
        ] {
            for key in ["arguments", "parameters"] {
                let answer = format!(" {{ \"name\" : \"weather\", \"{key}\":{arguments} }}\n");
                for letters in 1..40 {
                    let (calls, pieces) = told(&answer, letters);
                    assert_eq!(calls, [("weather".to_owned(), arguments.to_owned())], "{answer}");
                    assert!(letters > 1 || pieces == arguments.chars().count(), "{pieces}");
                }
            }
        }
    }

    #[test]
    fn a_call_that_is_cut_off_is_told_as_far_as_it_came() {
        let answer = "{\"name\": \"we\", \"arguments\": {\"city\": \"Ro";
        let begins = answer.find("{\"city").unwrap();
        for cut in 0..=answer.len() {
            let arguments = answer[..cut].get(begins..).filter(|arguments| !arguments.is_empty());
            let expected = arguments.map(|said| ("we".to_owned(), said.to_owned()));
            assert_eq!(told(&answer[..cut], 3).0, Vec::from_iter(expected), "{}", &answer[..cut]);
        }
    }
}
