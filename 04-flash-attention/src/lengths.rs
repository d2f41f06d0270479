//! How long each sequence of a cache is, and what may become of that.

use naive_decode::{Error, Pass, Result};

/// Tokens held of each sequence, and the most that one can hold.
pub(crate) struct Lengths {
    pub(crate) capacity: usize,
    held: Vec<usize>,
}

impl Lengths {
    pub(crate) fn new(capacity: usize, sequences: usize) -> Self {
        Lengths { capacity, held: vec![0; sequences] }
    }

    /// # Panics
    /// If there is no such sequence.
    pub(crate) fn of(&self, sequence: usize) -> usize {
        self.held[sequence]
    }

    fn check(&self, sequence: usize) -> Result<usize> {
        self.held.get(sequence).copied().ok_or_else(|| {
            let expected = format!("below {}, the number of sequences kept", self.held.len());
            Error::invalid("sequence", sequence, expected)
        })
    }

    /// Refuses a pass that does not fit, or does not go on where its sequences end.
    pub(crate) fn begin(&self, pass: &Pass) -> Result<()> {
        for (i, span) in pass.spans.iter().enumerate() {
            let (sequence, held) = (span.sequence, self.check(span.sequence)?);
            if span.end() > self.capacity {
                let what = format!("the cache of sequence {sequence}");
                let (capacity, asked) = (self.capacity, span.end());
                return Err(Error::Capacity { what, capacity, asked });
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

    pub(crate) fn commit(&mut self, pass: &Pass) {
        for span in &pass.spans {
            self.held[span.sequence] = span.end();
        }
    }

    pub(crate) fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        let held = self.check(sequence)?;
        if length > held {
            let what = format!("length to truncate sequence {sequence} to");
            return Err(Error::invalid(what, length, format!("at most {held}, what it holds")));
        }
        self.held[sequence] = length;
        Ok(())
    }
}
