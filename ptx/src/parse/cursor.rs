//! A place in the tokens of a module.

use super::lexer::{Placed, Token};
use crate::Error;

pub(super) struct Cursor<'a> {
    source: &'a str,
    tokens: Vec<Placed<'a>>,
    at: usize,
    /// First token of the statement that is being read: what an error shows.
    statement: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a str) -> Result<Self, Error> {
        Ok(Self { source, tokens: super::lexer::tokens(source)?, at: 0, statement: 0 })
    }

    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|placed| placed.token)
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// A new statement begins here.
    pub(super) fn begin(&mut self) {
        self.statement = self.at;
    }

    /// Line of the statement, and where it stands in the text up to here.
    pub(super) fn place(&self) -> (u32, (u32, u32)) {
        let last = self.tokens.len().saturating_sub(1);
        let Some(first) = self.tokens.get(self.statement.min(last)) else { return (1, (0, 0)) };
        let end = self.tokens[self.at.saturating_sub(1).clamp(self.statement.min(last), last)].end;
        (first.line, (first.start as u32, end as u32))
    }

    /// An error about the statement, shown up to its end.
    pub(super) fn error(&self, problem: impl Into<String>) -> Error {
        let last = self.tokens.len().saturating_sub(1);
        let from = self.statement.min(last);
        let (mut line, mut text) = (1, String::new());
        if let Some(first) = self.tokens.get(from) {
            let ends = |placed: &&Placed<'_>| matches!(placed.token, Token::Mark(';' | '{' | '}'));
            let end = self.tokens[from..].iter().take(48).skip(1).find(ends);
            let end = end.map_or(self.tokens[(from + 8).min(last)].end, |placed| placed.start);
            line = first.line;
            text = super::one_line(self.source.get(first.start..end).unwrap_or_default());
        }
        Error::Parse { line, text, problem: problem.into() }
    }

    pub(super) fn take_mark(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    pub(super) fn mark(&mut self, mark: char) -> Result<(), Error> {
        if self.take_mark(mark) {
            Ok(())
        } else {
            Err(self.error(format!("expected `{mark}` here")))
        }
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Token::Word(word));
        self.at += usize::from(found);
        found
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str, Error> {
        match self.next() {
            Some(Token::Word(word)) => Ok(word),
            _ => Err(self.error(format!("expected {what} here"))),
        }
    }

    pub(super) fn integer(&mut self, what: &str) -> Result<u64, Error> {
        match self.next() {
            Some(Token::Integer(value)) => Ok(value),
            _ => Err(self.error(format!("expected {what} here"))),
        }
    }

    /// Over everything up to the end of the statement.
    pub(super) fn skip_statement(&mut self) {
        while let Some(token) = self.next() {
            if token == Token::Mark(';') {
                break;
            }
        }
    }

    /// Over everything up to the next line.
    pub(super) fn skip_line(&mut self) {
        let line = self.tokens.get(self.at.saturating_sub(1)).map_or(0, |placed| placed.line);
        while self.tokens.get(self.at).is_some_and(|placed| placed.line == line) {
            self.at += 1;
        }
    }

    /// Over a body in braces that begins here, to after its end.
    pub(super) fn skip_braces(&mut self) {
        let mut depth = 0usize;
        while let Some(token) = self.next() {
            match token {
                Token::Mark('{') => depth += 1,
                Token::Mark('}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }
}
