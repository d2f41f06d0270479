//! Which blocks of the pool hold which tokens of which sequence.

use cuda_kernels::cache::BLOCK_TOKENS;
use kv_cache::Lengths;
use naive_decode::{Error, Pass, Result};
use paged_cache::{BlockId, Blocks};

/// Sequences and their tables.
///
/// Invariant: a sequence of length n has blocks for its n tokens, and for no more except within a pass.
pub(crate) struct Sequences {
    lengths: Lengths,
    blocks: Blocks,
    tables: Vec<Vec<BlockId>>,
}

impl Sequences {
    /// Empty ones, which share so many blocks.
    pub(crate) fn new(sequences: usize, capacity: usize, blocks: usize) -> Self {
        Sequences {
            lengths: Lengths::new(sequences, capacity),
            blocks: Blocks::new(blocks),
            tables: vec![Vec::new(); sequences],
        }
    }

    pub(crate) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    pub(crate) fn table(&self, sequence: usize) -> &[BlockId] {
        &self.tables[sequence]
    }

    /// Takes blocks for a pass's rows; all of them or none.
    pub(crate) fn grow(&mut self, pass: &Pass) -> Result<()> {
        self.lengths.check_pass(pass)?;
        let more = pass.spans.iter().map(|span| {
            span.end().div_ceil(BLOCK_TOKENS).saturating_sub(self.tables[span.sequence].len())
        });
        let more: usize = more.sum();
        if more > self.blocks.free() {
            return Err(Error::Capacity {
                what: "the pool on the device".into(),
                capacity: self.blocks.count() * BLOCK_TOKENS,
                asked: (self.blocks.used() + more) * BLOCK_TOKENS,
            });
        }
        for span in &pass.spans {
            let table = &mut self.tables[span.sequence];
            while table.len() < span.end().div_ceil(BLOCK_TOKENS) {
                table.push(self.blocks.take().expect("they were counted"));
            }
        }
        Ok(())
    }

    /// After a pass that went well.
    pub(crate) fn commit(&mut self, pass: &Pass) {
        self.lengths.commit(pass);
    }

    /// After a pass that did not: its sequences are as they were.
    pub(crate) fn undo(&mut self, pass: &Pass) {
        for span in &pass.spans {
            self.shrink(span.sequence);
        }
    }

    /// Rolls a sequence back to its first `length` tokens.
    pub(crate) fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.lengths.check_truncate(sequence, length)?;
        self.lengths.truncate(sequence, length);
        self.shrink(sequence);
        Ok(())
    }

    /// Gives back blocks that hold nothing.
    fn shrink(&mut self, sequence: usize) {
        let needed = self.lengths.of(sequence).div_ceil(BLOCK_TOKENS);
        for block in self.tables[sequence].drain(needed..) {
            self.blocks.release(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::{Span, Want};

    #[test]
    fn blocks_are_taken_for_what_a_pass_writes_and_given_back() {
        let mut sequences = Sequences::new(2, 100, 4);
        let pass = |sequence, start, rows: usize| {
            Pass::one(Span::new(sequence, start, &vec![0; rows], Want::Last))
        };
        sequences.grow(&pass(0, 0, 17)).unwrap();
        sequences.commit(&pass(0, 0, 17));
        assert_eq!(sequences.table(0), [BlockId(0), BlockId(1)]);
        // Three more do not fit; nothing has changed.
        let refused = sequences.grow(&pass(1, 0, 33)).unwrap_err().to_string();
        assert_eq!(refused, "the pool on the device holds 64 tokens; 80 were asked for");
        assert!(sequences.table(1).is_empty());
        // A pass that fails gives back what it took, and no more.
        sequences.grow(&pass(0, 17, 20)).unwrap();
        assert_eq!(sequences.table(0).len(), 3);
        sequences.undo(&pass(0, 17, 20));
        assert_eq!(sequences.table(0), [BlockId(0), BlockId(1)]);
        sequences.truncate(0, 16).unwrap();
        assert_eq!(sequences.table(0), [BlockId(0)]);
        assert!(sequences.truncate(0, 17).is_err());
        sequences.grow(&pass(1, 0, 33)).unwrap();
        assert!(sequences.grow(&pass(0, 5, 1)).is_err(), "the sequence goes on at 16");
    }
}
