//! Where a mark stands in JSON, but in none of its strings.

use crate::text::overlap;

/// Looks for a mark outside of strings, in texts that come one behind the other and grow. What is no JSON has no strings; once
/// there was such, marks are marks wherever they stand, so that no byte is read more than twice.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outside {
    /// Bytes that have been read: no mark begins in them.
    read: usize,
    /// What they leave open.
    within: Within,
    /// Whether a mark is one in strings, too.
    anywhere: bool,
}

/// What JSON has begun.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Within {
    /// Nothing: white space so far.
    #[default]
    Nothing,
    /// A value, and no string of it.
    Value,
    /// A string.
    String,
    /// A string, and in it what follows a `\`.
    Escape,
}

impl Outside {
    /// Where in `text` the mark stands first that ends what begins at `start`; none if it has not come. Until it has, `start`
    /// stays and text may only grow.
    pub(super) fn find(&mut self, text: &str, start: usize, mark: &str) -> Option<usize> {
        self.read = self.read.max(start);
        while !self.anywhere {
            let rest = &text.as_bytes()[self.read..];
            let byte = *rest.first()?;
            if !self.within.is_string() {
                if rest.starts_with(mark.as_bytes()) {
                    self.within = Within::Nothing;
                    return Some(self.read);
                }
                if mark.as_bytes().starts_with(rest) {
                    return None; // the rest of it may come
                }
            }
            match self.within.after(byte) {
                Some(within) => (self.within, self.read) = (within, self.read + 1),
                None => self.give_up(start),
            }
        }
        let found = text[self.read..].find(mark).map(|at| self.read + at);
        self.read = found.unwrap_or(text.len() - overlap(text, mark));
        found
    }

    /// Bytes of the text in which no mark begins.
    pub(super) fn read(&self) -> usize {
        self.read
    }

    /// Begins again at `start`, with no strings.
    pub(super) fn give_up(&mut self, start: usize) {
        let read = if self.anywhere { self.read } else { start };
        *self = Outside { read, within: Within::Nothing, anywhere: true };
    }

    /// The text's first bytes are gone.
    pub(super) fn forget(&mut self, bytes: usize) {
        self.read = self.read.saturating_sub(bytes);
    }
}

impl Within {
    /// Whether it is in a string.
    pub(super) fn is_string(self) -> bool {
        matches!(self, Within::String | Within::Escape)
    }

    /// What one byte more leaves open; none if there is no such JSON (RFC 8259, sections 2 and 7).
    fn after(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Within::Nothing, b' ' | b'\t' | b'\r' | b'\n') => Some(Within::Nothing),
            (Within::Nothing, b'{' | b'[') | (Within::String, b'"') => Some(Within::Value),
            (Within::Value, b'"') | (Within::Escape, b' '..) => Some(Within::String),
            (Within::Value, b'\\') | (Within::Nothing, _) => None,
            (Within::String, b'\\') => Some(Within::Escape),
            (Within::String | Within::Escape, ..b' ') => None,
            (Within::Value | Within::String, _) => Some(self),
        }
    }

    /// The same where there need be no such JSON: what is none is passed over.
    pub(super) fn after_any(self, byte: u8) -> Self {
        let passed_over = if self.is_string() { Within::String } else { self };
        self.after(byte).unwrap_or(passed_over)
    }
}
