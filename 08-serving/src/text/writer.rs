//! One answer: tokens in, pieces of text out.

use super::Stops;
use naive_decode::{Result, TokenStream, Tokenizer};
use std::collections::VecDeque;

/// How an answer is to be written.
#[derive(Debug, Clone, Default)]
pub struct Style {
    /// Strings that end it.
    pub stops: Vec<String>,
    /// Whether the one that did is part of it.
    pub stop_included: bool,
    /// Whether special tokens are written out.
    pub special_written: bool,
    /// Special tokens that are written out in any case.
    pub marks: Vec<u32>,
    /// Tokens before which no string ends it, though one may begin.
    pub min_tokens: usize,
}

/// A token of an answer, and how likely it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The token.
    pub token: u32,
    /// Its log-probability, natural, if it was asked for.
    pub logprob: Option<f32>,
    /// The likeliest tokens in its place with theirs, likeliest first.
    pub top: Vec<(u32, f32)>,
    /// Characters of the answer before it. [`Writer::write`] sets it.
    pub offset: usize,
}

/// A piece of an answer that can be sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Written {
    /// Whole characters, none of which can be part of a stop string.
    pub text: String,
    /// The tokens that it is from: those whose text has begun to be sent, each once.
    pub tokens: Vec<Told>,
    /// The stop string that ended the answer; nothing follows.
    pub stop: Option<String>,
    /// Tokens that were generated and are no part of the text: those of the stop string, where it is left out, and one that
    /// ended the answer.
    pub hidden: Vec<u32>,
}

/// Writes an answer token by token.
///
/// Two things hold text back: a character that is not whole yet, and the beginning of a stop string. Tokens are
/// held back with their text, so that log-probabilities do not tell what the text does not.
pub struct Writer<'a> {
    stream: TokenStream<'a>,
    stops: Stops,
    marks: Vec<u32>,
    min_tokens: usize,
    tokens: usize,
    /// Tokens whose text has not begun to be sent, each with the bytes of text before it.
    held: VecDeque<(usize, Told)>,
    /// Bytes of text that the tokens so far made, and those of them that were sent.
    made: usize,
    sent: usize,
    /// Characters of `made`.
    characters: usize,
}

impl<'a> Writer<'a> {
    /// An answer to `prompt`, none of whose text is written again.
    pub fn new(tokenizer: &'a Tokenizer, prompt: &[u32], style: &Style) -> Self {
        let stream = match style.special_written {
            true => tokenizer.stream_with_special_after(prompt),
            false => tokenizer.stream_after(prompt),
        };
        Writer {
            stream,
            stops: Stops::new(style.stops.clone(), style.stop_included),
            marks: style.marks.clone(),
            min_tokens: style.min_tokens,
            tokens: 0,
            held: VecDeque::new(),
            made: 0,
            sent: 0,
            characters: 0,
        }
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// If the tokenizer cannot make text of it.
    pub fn write(&mut self, told: Told) -> Result<Written> {
        let broken = self.stream.clone().finish();
        let text = match self.marks.contains(&told.token) {
            true => self.stream.push_written(told.token)?,
            false => self.stream.push(told.token)?,
        };
        self.tokens += 1;
        // A character that earlier tokens began, and that this one shows to be none, comes before it.
        let before = if text.starts_with(&broken) { &*broken } else { "" };
        let (made, characters) =
            (self.made + before.len(), self.characters + before.chars().count());
        self.held.push_back((made, Told { offset: characters, ..told }));
        Ok(self.cut(&text))
    }

    /// Ends the answer: what was held back is all there is.
    pub fn finish(mut self) -> Written {
        let broken = self.stream.clone().finish();
        let mut last = self.cut(&broken);
        if last.stop.is_none() {
            last.text += &self.stops.finish();
            last.tokens.extend(self.held.drain(..).map(|(_, told)| told));
        }
        last
    }

    fn cut(&mut self, text: &str) -> Written {
        self.made += text.len();
        self.characters += text.chars().count();
        let (text, stop) = match self.tokens < self.min_tokens {
            true => (self.stops.pass(text), None),
            false => {
                let cut = self.stops.push(text);
                (cut.text, cut.stop)
            }
        };
        self.sent += text.len();
        let sent = self.sent;
        // All text is sent, or the token's own has begun to be.
        let is_out = |&(before, _): &(usize, Told)| before < sent || sent == self.made;
        let mut tokens = Vec::new();
        while self.held.front().is_some_and(is_out) {
            tokens.extend(self.held.pop_front().map(|(_, told)| told));
        }
        let rest = if stop.is_some() { self.held.len() } else { 0 };
        let hidden = self.held.drain(..rest).map(|(_, told)| told.token).collect();
        Written { text, tokens, stop, hidden }
    }
}
