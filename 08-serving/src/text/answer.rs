//! One answer, from the engine's events.

use super::{Style, Told, Writer, Written};
use crate::engine::{Event, FinishReason, TokenEvent};
use naive_decode::{Result, Tokenizer};

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// The prompt's tokens, if their log-probabilities were asked for: all but the first.
    Prompt(Vec<TokenEvent>),
    /// More text.
    Text(Written),
    /// The last: perhaps more text, and why it ended.
    End(Ending),
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// What was held back and is part of the answer after all.
    pub last: Written,
    /// Why it ended.
    pub reason: Reason,
    /// What the request named that ended it.
    pub stopper: Option<Stopper>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that were known.
    pub cached_tokens: usize,
    /// Tokens generated.
    pub tokens: usize,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The model ended it, or a stop string or token did.
    Stop,
    /// It is as long as it may be, or its time was up.
    Length,
}

/// What the request named that ended an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopper {
    /// A stop string.
    Text(String),
    /// A stop token.
    Token(u32),
}

/// An answer under way.
pub struct Answer<'a> {
    writer: Option<Writer<'a>>,
    style: &'a Style,
    /// Tokens that end it, those of the model and those that the request names.
    end_tokens: &'a [u32],
    named: &'a [u32],
    prompt_tokens: usize,
    cached_tokens: usize,
    tokens: usize,
    stopper: Option<Stopper>,
    /// The token that ended it, if that is no part of the text.
    ended_by: Option<u32>,
}

impl<'a> Answer<'a> {
    /// An answer to `prompt`. `end_tokens` end it; those of them that are `named` in the request are told.
    pub fn new(
        tokenizer: &'a Tokenizer,
        prompt: &[u32],
        style: &'a Style,
        end_tokens: &'a [u32],
        named: &'a [u32],
    ) -> Self {
        Answer {
            writer: Some(Writer::new(tokenizer, prompt, style)),
            style,
            end_tokens,
            named,
            prompt_tokens: prompt.len(),
            cached_tokens: 0,
            tokens: 0,
            stopper: None,
            ended_by: None,
        }
    }

    /// What an event comes to, if anything. After an [`Piece::End`] there is nothing more.
    ///
    /// # Errors
    /// If the engine failed, or the tokenizer cannot make text of a token.
    pub fn take(&mut self, event: Event) -> Result<Option<Piece>> {
        match event {
            Event::Started { cached_tokens } => {
                self.cached_tokens = cached_tokens;
                Ok(None)
            }
            Event::Prompt(tokens) => Ok(Some(Piece::Prompt(tokens))),
            Event::Embedding(_) => Ok(None),
            Event::Token(token) => self.token(token),
            Event::Finished { reason, .. } => Ok(self.end(match reason {
                FinishReason::Stop => Reason::Stop,
                FinishReason::Length | FinishReason::Deadline => Reason::Length,
            })),
            Event::Failed(error) => Err(error),
        }
    }

    fn token(&mut self, event: TokenEvent) -> Result<Option<Piece>> {
        let Some(writer) = &mut self.writer else { return Ok(None) };
        let TokenEvent { token, logprob, top, .. } = event;
        self.tokens += 1;
        // The engine ends the answer with the first of these; it is no part of the text.
        if self.end_tokens.contains(&token) {
            self.stopper = self.named.contains(&token).then_some(Stopper::Token(token));
            if !self.style.stop_included {
                self.ended_by = Some(token);
                return Ok(None);
            }
        }
        let written = writer.write(Told { token, logprob, top, offset: 0 })?;
        match written.stop.clone() {
            None => Ok(Some(Piece::Text(written))),
            Some(stop) => {
                self.writer = None;
                self.stopper = Some(Stopper::Text(stop));
                Ok(Some(Piece::End(self.ending(written, Reason::Stop))))
            }
        }
    }

    fn end(&mut self, reason: Reason) -> Option<Piece> {
        let mut last = self.writer.take()?.finish();
        last.hidden.extend(self.ended_by);
        let stop = last.stop.clone().map(Stopper::Text);
        let reason = if stop.is_some() { Reason::Stop } else { reason };
        self.stopper = stop.or(self.stopper.take());
        Some(Piece::End(self.ending(last, reason)))
    }

    fn ending(&mut self, last: Written, reason: Reason) -> Ending {
        Ending {
            last,
            reason,
            stopper: self.stopper.take(),
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            tokens: self.tokens,
        }
    }
}
