//! How many tokens a cache holds of each sequence, and which passes and rollbacks that allows.

use naive_decode::{Error, Pass, Result};

/// Tokens that a cache holds of each sequence, and the most that it can hold of one.
///
/// Every cache has one, whatever it keeps of a token. Invariant: no length is above the capacity.
#[derive(Debug, Clone)]
pub struct Lengths {
    held: Vec<usize>,
    capacity: usize,
}

impl Lengths {
    /// Empty sequences.
    pub fn new(sequences: usize, capacity: usize) -> Self {
        Lengths { held: vec![0; sequences], capacity }
    }

    /// One more sequence, empty; its number.
    pub fn add(&mut self) -> usize {
        self.held.push(0);
        self.held.len() - 1
    }

    /// Most tokens that one sequence can have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tokens of one sequence.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn of(&self, sequence: usize) -> usize {
        self.held[sequence]
    }

    /// Tokens of one sequence, if it is there.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self, sequence: usize) -> Result<usize> {
        self.held.get(sequence).copied().ok_or_else(|| {
            let expected = format!("below {}, the number of sequences kept", self.held.len());
            Error::invalid("sequence", sequence, expected)
        })
    }

    // ANCHOR: pass
    /// Whether a pass goes on where every sequence ends, and fits.
    ///
    /// # Errors
    /// [`Error::Capacity`] or [`Error::Invalid`], naming the sequence.
    pub fn check_pass(&self, pass: &Pass) -> Result<()> {
        for (i, span) in pass.spans.iter().enumerate() {
            let sequence = span.sequence;
            let held = self.check(sequence)?;
            if span.end() > self.capacity {
                return Err(Error::Capacity {
                    what: format!("the cache of sequence {sequence}"),
                    capacity: self.capacity,
                    asked: span.end(),
                });
            }
            if span.start != held {
                let what = format!("start of sequence {sequence}");
                return Err(Error::invalid(what, span.start, format!("{held}, what it holds")));
            }
            if pass.spans[..i].iter().any(|earlier| earlier.sequence == sequence) {
                let what = format!("spans of sequence {sequence} in one pass");
                return Err(Error::invalid(what, "two", "one"));
            }
        }
        Ok(())
    }
    // ANCHOR_END: pass

    /// Whether a sequence has `length` tokens to be rolled back to; returns what it holds.
    ///
    /// # Errors
    /// If it has fewer, or there is no such sequence.
    pub fn check_truncate(&self, sequence: usize, length: usize) -> Result<usize> {
        let held = self.check(sequence)?;
        if length > held {
            let what = format!("length to truncate sequence {sequence} to");
            return Err(Error::invalid(what, length, format!("at most {held}, what it holds")));
        }
        Ok(held)
    }

    /// Rolls a sequence back, which [`Lengths::check_truncate`] has allowed.
    pub fn truncate(&mut self, sequence: usize, length: usize) {
        debug_assert!(length <= self.held[sequence]);
        self.held[sequence] = length;
    }

    /// Says what a sequence holds, where that has come about without a pass.
    ///
    /// # Panics
    /// If it is more than the capacity, or there is no such sequence.
    pub fn set(&mut self, sequence: usize, length: usize) {
        assert!(length <= self.capacity, "{length} tokens where {} fit", self.capacity);
        self.held[sequence] = length;
    }

    /// Whether the invariant holds.
    ///
    /// # Errors
    /// Names the first sequence that is too long.
    pub fn check_integrity(&self) -> Result<()> {
        match self.held.iter().position(|&held| held > self.capacity) {
            None => Ok(()),
            Some(sequence) => {
                let what = format!("length of sequence {sequence}");
                let expected = format!("at most {}", self.capacity);
                Err(Error::invalid(what, self.held[sequence], expected))
            }
        }
    }

    // ANCHOR: commit
    /// After a pass that went well: its tokens are held.
    pub fn commit(&mut self, pass: &Pass) {
        for span in &pass.spans {
            self.held[span.sequence] = span.end();
        }
    }
    // ANCHOR_END: commit
}
