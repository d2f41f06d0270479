//! How a model writes what is more than text: calls of functions, and thoughts.
//!
//! Its chat template shows it. What the template makes of an assistant's call is what the model was trained to write, so
//! one call is written down, and looked for in what comes out.

use crate::api::calling::Calling;
use crate::text::{MARKED, Marked, THOUGHTS, Thinking};
use calls::{Calls, shown};
use model_files::ChatTemplate;
use naive_decode::Tokenizer;
use tracing::warn;

mod calls;
mod room;
#[cfg(test)]
pub(super) mod tests;

/// How a model writes calls and thoughts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Dialect {
    /// How it writes calls, if its template writes any, in a way that is known here.
    calls: Option<Calls>,
    /// Whether it thinks before it answers.
    pub(super) thinks: bool,
    /// Marks of calls, and of thoughts, that are special tokens: they are written out for whoever looks for them, and are
    /// no text.
    call_marks: Vec<Mark>,
    thought_marks: Vec<Mark>,
}

/// A mark that is a special token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) text: &'static str,
    pub(super) token: u32,
}

impl Dialect {
    /// Finds out how the model of this template writes. Says so in the log if it may call functions and nobody here will
    /// notice.
    pub(super) fn of(template: Option<&ChatTemplate>, tokenizer: &Tokenizer) -> Self {
        let silent = |texts: &mut dyn Iterator<Item = &'static str>| -> Vec<Mark> {
            let marks =
                texts.filter_map(|text| Some(Mark { text, token: tokenizer.token_id(text)? }));
            marks.filter(|mark| tokenizer.is_silent(mark.token)).collect()
        };
        let of_calls = |marked: &'static Marked| [Some(marked.open), marked.close];
        let call_marks = silent(&mut MARKED.iter().flat_map(of_calls).flatten());
        let Some(template) = template else { return Dialect { call_marks, ..Dialect::default() } };
        let thinks = template.knows_thoughts();
        let shown = shown(template, tokenizer, &call_marks);
        let calls = shown.as_deref().and_then(Calls::in_text);
        if shown.is_some() && calls.is_none() {
            warn!(
                "the chat template has the model call functions in a way that is not known here: what it calls by \
                 itself is answered as text"
            );
        }
        let thought_marks =
            if thinks { silent(&mut [THOUGHTS.0, THOUGHTS.1].into_iter()) } else { Vec::new() };
        Dialect { calls, thinks, call_marks, thought_marks }
    }

    /// The marks that are written out in an answer for whoever looks for them.
    pub(super) fn marks(&self, calling: &Calling) -> Vec<Mark> {
        let of_calls = if calling.is_open() { &self.call_marks[..] } else { &[] };
        [of_calls, &self.thought_marks].concat()
    }

    /// What a prompt that ends in this text leaves open of the model's thinking.
    pub(super) fn thinking(&self, end_of_prompt: &str) -> Thinking {
        let end = end_of_prompt.trim_end();
        match self.thinks {
            true if end.ends_with(THOUGHTS.0) => Thinking::UnderWay,
            true if !end.ends_with(THOUGHTS.1) => Thinking::MayCome,
            _ => Thinking::Over,
        }
    }
}
