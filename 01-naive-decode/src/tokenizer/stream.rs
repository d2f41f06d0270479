//! Tokens to text, one at a time, never in the middle of a character.

use super::Tokenizer;
use crate::error::Result;

/// What a decoder puts where the bytes so far make no character.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// No character is longer than four bytes, and every token that is not silent adds at least one:
/// what a character lacks lies within this many tokens, or it never comes.
const LONGEST_CHARACTER: usize = 4;

/// How many tokens are decoded again with each new one, at most.
const LONGEST_WINDOW: usize = 16;

/// Turns a stream of tokens into pieces of text that are complete UTF-8.
///
/// One emoji can be four tokens. Decoded one by one each is a broken character; decoded together
/// they are right. So the last few tokens are decoded again with each new one, and whatever ends
/// in a broken character is held back until it is whole. The pieces put together are the text that
/// [`Tokenizer::decode`] gives for all tokens at once, wherever that text is valid.
///
/// (The `tokenizers` crate has a `DecodeStream` of its own. It cannot be told that the stream is
/// over, so a broken ending is lost, and it holds back whole characters that a broken one follows.)
#[derive(Debug, Clone)]
pub struct TokenStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The newest tokens: those held back, and enough before them that the decoder sees how they
    /// join (a word's leading space depends on it).
    window: Vec<u32>,
    /// Bytes of the window's text that have been given out.
    given: usize,
    /// Tokens at the end of the window since text was last given.
    held: usize,
    /// Tokens at the start of the window after which text was last given.
    between: usize,
}

impl<'a> TokenStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, context: &[u32]) -> Self {
        let heard = context.iter().rev().copied().filter(|t| !tokenizer.is_silent(*t));
        let mut last: Vec<u32> = heard.take(2 * LONGEST_CHARACTER).collect();
        last.reverse();
        // Begin between characters, where there is such a place. (Why: see `slide`.)
        let fewest = last.len().min(LONGEST_CHARACTER);
        let is_whole =
            |tokens: &[u32]| tokenizer.decode(tokens).is_ok_and(|text| !text.contains(REPLACEMENT));
        let mut endings = (fewest..=last.len()).map(|n| &last[last.len() - n..]);
        let window = endings.find(|e| is_whole(e)).unwrap_or(&last).to_vec();
        let given = tokenizer.decode(&window).map_or(0, |text| text.len());
        TokenStream { tokenizer, given, held: 0, between: window.len(), window }
    }

    /// Takes the next token; gives the text that it completes, often empty for part of an emoji.
    ///
    /// # Errors
    /// If the tokenizer's decoder cannot make text of the token.
    pub fn push(&mut self, token: u32) -> Result<String> {
        if self.tokenizer.is_silent(token) {
            return Ok(String::new());
        }
        self.window.push(token);
        self.held += 1;
        let text = self.tokenizer.decode(&self.window)?;
        let complete = text.trim_end_matches(REPLACEMENT).len();
        let piece = if complete > self.given {
            self.held = 0;
            self.give(&text, complete)
        } else if self.held >= LONGEST_CHARACTER {
            // The oldest token held can no longer be completed: its bytes are no character.
            self.held = LONGEST_CHARACTER - 1;
            let settled = self.tokenizer.decode(&self.window[..self.window.len() - self.held])?;
            self.give(&settled, settled.len())
        } else {
            return Ok(String::new());
        };
        self.slide(text.len().saturating_sub(self.given))?;
        Ok(piece)
    }

    /// Ends the stream: gives what was held back, broken as it is.
    ///
    /// # Errors
    /// If the tokenizer's decoder cannot make text of it.
    pub fn finish(mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.window)?;
        Ok(self.give(&text, text.len()))
    }

    /// `text[given..end]`. Some decoders take back a whole character when a broken one follows it
    /// (Llama 2's does), so `given` may be past the end or inside a character.
    fn give(&mut self, text: &str, end: usize) -> String {
        let start = (self.given..end).find(|at| text.is_char_boundary(*at)).unwrap_or(end);
        self.given = end;
        text[start..end].to_string()
    }

    /// Drops tokens that no longer matter, so that a stream of any length stays cheap. `broken`
    /// bytes at the end of the text are yet to be given.
    fn slide(&mut self, broken: usize) -> Result<()> {
        let length = self.window.len();
        // Where text was given, a character ended. Llama 2's decoder, shown half a character, would
        // take everything up to the next ordinary token for broken.
        let cut =
            if self.held == 0 { self.between } else { length - length.min(LONGEST_WINDOW / 2) };
        if length > LONGEST_WINDOW {
            self.window.drain(..cut);
            let text = self.tokenizer.decode(&self.window)?;
            self.given = text.len().saturating_sub(broken);
            self.between = self.between.saturating_sub(cut);
        }
        if self.held == 0 {
            self.between = self.window.len();
        }
        Ok(())
    }
}
