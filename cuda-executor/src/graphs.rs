//! Decoding steps recorded once and played again.
//!
//! A step of a small model is a few hundred launches of a few microseconds each, and the processor needs about as long to
//! launch as the device to run. A recorded list is launched as one thing. But its parameters are fixed: so what changes
//! from step to step is in memory at fixed places, and steps are filled up to a few sizes, with rows that belong to nobody.

use crate::forward::FEW_ROWS;
use cuda_kernels::Recording;
use cuda_kernels::attention::{SPLIT, splits};
use naive_decode::{Pass, Want};
use std::collections::HashMap;

/// The size that a step is filled up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StepSize {
    /// Rows; a power of two.
    pub(crate) rows: usize,
    /// Most keys of a row: whole splits, a power of two of them, or as many as a sequence can have.
    pub(crate) keys: usize,
}

impl StepSize {
    /// What a pass is filled up to, if it is a step: one row of each sequence, all of which want logits.
    pub(crate) fn of(pass: &Pass, most_rows: usize, capacity: usize) -> Option<Self> {
        let is_step = pass.spans.iter().all(|span| span.rows() == 1 && span.want != Want::Nothing);
        let rows = pass.rows().next_power_of_two();
        if !is_step || rows > most_rows.min(FEW_ROWS) {
            return None;
        }
        let longest = pass.spans.iter().map(|span| span.end()).max()?;
        let keys = (splits(longest).next_power_of_two() * SPLIT).min(capacity);
        Some(StepSize { rows, keys })
    }
}

/// The steps that were recorded.
#[derive(Default)]
pub(crate) struct Graphs {
    recorded: HashMap<StepSize, Recording>,
}

impl Graphs {
    pub(crate) fn get(&self, size: StepSize) -> Option<Recording> {
        self.recorded.get(&size).copied()
    }

    pub(crate) fn keep(&mut self, size: StepSize, recording: Recording) {
        self.recorded.insert(size, recording);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::Span;

    #[test]
    fn steps_are_filled_up_to_few_sizes() {
        let step = |rows: usize, length: usize| Pass {
            spans: (0..rows).map(|i| Span::new(i, length - 1, &[1], Want::Last)).collect(),
        };
        let size = |pass: &Pass| StepSize::of(pass, 48, 1000).map(|size| (size.rows, size.keys));
        assert_eq!(size(&step(1, 1)), Some((1, 256)));
        assert_eq!(size(&step(5, 257)), Some((8, 512)));
        assert_eq!(size(&step(32, 600)), Some((32, 1000)));
        assert_eq!(size(&step(33, 1)), None, "64 rows are more than there is room for");
        assert_eq!(size(&Pass::default()), None);
        let mut pass = step(2, 9);
        pass.spans[1].want = Want::Nothing;
        assert_eq!(size(&pass), None);
        assert_eq!(size(&Pass::one(Span::new(0, 3, &[1, 2], Want::Last))), None);
    }
}
