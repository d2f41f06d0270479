//! Forms that leave a model room for what it does besides answering.

use super::Dialect;
use super::calls::Calls;
use crate::api::calling::Calling;
use crate::api::formats::Form;
use crate::text::{Marked, THOUGHTS, Thinking};
use serde_json::Value;

/// As much white space as there may be around marks, in Lark's notation.
const GAP: &str = "/[ \\n]{0,2}/";

impl Dialect {
    /// `form` where the model may do what a form does not provide for: think first, and call a function instead of
    /// answering.
    pub(in crate::http) fn around(
        &self,
        form: Form,
        thinking: Thinking,
        calling: &Calling,
        one_call: bool,
    ) -> Form {
        let calls = self.calls.filter(|_| calling.is_open());
        if thinking == Thinking::Over && calls.is_none() {
            return form;
        }
        let mut lark = String::from("start: ");
        lark += match thinking {
            Thinking::Over => "",
            Thinking::MayCome => "(opened thoughts)? ",
            Thinking::UnderWay => "opened? thoughts ",
        };
        lark += if calls.is_some() { "(@form0 | calls)\n" } else { "@form0\n" };
        if thinking != Thinking::Over {
            let [open, close] = [THOUGHTS.0, THOUGHTS.1].map(|mark| self.written(mark));
            lark += &format!("opened: {open} {GAP}\n");
            // Ends with the first mark that closes them.
            lark += &match self.token(THOUGHTS.1) {
                Some(_) => format!("thoughts: /(?s:.*)/ {close} {GAP}\n"),
                None => format!("thoughts: closed {GAP}\nclosed[suffix={close}]: /(?s:.*)/\n"),
            };
        }
        let mut forms = vec![form];
        if let Some(calls) = calls {
            lark += &format!("calls: {}\n", self.calls_rule(calls, one_call));
            forms.push(calling.any_call(calls.arguments));
        }
        Form::Around { lark, forms }
    }

    /// Calls as this model writes them, in Lark's notation; `@form1` is one.
    fn calls_rule(&self, calls: Calls, one_call: bool) -> String {
        let more = |text: &str| if one_call { String::new() } else { format!("({text})*") };
        let inside = match calls.is_list {
            true => {
                let more = more(&format!("{GAP} \",\" {GAP} @form1"));
                format!("\"[\" {GAP} @form1 {more} {GAP} \"]\"")
            }
            false => "@form1".to_owned(),
        };
        let open = |marked: &Marked| self.written(marked.open);
        match calls.marked {
            None => inside,
            Some(marked @ Marked { close: None, .. }) => format!("{} {GAP} {inside}", open(marked)),
            Some(marked @ Marked { close: Some(close), .. }) => {
                let one = format!("{} {GAP} {inside} {GAP} {}", open(marked), self.written(close));
                let more = more(&format!("{GAP} {one}"));
                format!("{one} {more} {GAP}")
            }
        }
    }

    fn token(&self, mark: &str) -> Option<u32> {
        let marks = self.call_marks.iter().chain(&self.thought_marks);
        marks.filter(|known| known.text == mark).map(|known| known.token).next()
    }

    /// A mark in Lark's notation: a token, or the text that it is.
    fn written(&self, mark: &str) -> String {
        match self.token(mark) {
            Some(token) => format!("<[{token}]>"),
            // Lark writes texts as JSON does.
            None => Value::from(mark).to_string(),
        }
    }
}
