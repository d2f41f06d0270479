//! Decoding steps recorded once and played again.
//!
//! A step of a small model is a few hundred launches of a few microseconds each, and the processor needs about as long to
//! launch as the device to run. A recorded list is launched as one thing. But its parameters are fixed: so what changes
//! from step to step is in memory at fixed places, and steps are filled up to a few sizes, with rows that belong to nobody.

use crate::forward::FEW_ROWS;
use cuda_kernels::Recording;
use cuda_kernels::attention::{SPLIT, splits};
use naive_decode::{Error, Pass, Want};
use std::collections::HashMap;

/// Bytes of a device's memory that a recorded launch is taken to need. CUDA does not say how much it is. This is a round
/// number that should be enough, and was measured on no device.
pub(crate) const LAUNCH_BYTES: usize = 10 << 10;

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

    /// How many sizes there are.
    pub(crate) fn count(most_rows: usize, capacity: usize) -> usize {
        let powers = |most: usize| most.checked_ilog2().map_or(0, |power| power as usize + 1);
        // Of keys: whole powers of two below the capacity, and the capacity.
        powers(most_rows.min(FEW_ROWS)) * (powers(capacity.saturating_sub(1) / SPLIT) + 1)
    }
}

/// The steps that were recorded.
#[derive(Default)]
pub(crate) struct Graphs {
    /// None of a size that could not be recorded, which is not tried again. Those that were recorded stay.
    recorded: HashMap<StepSize, Option<Recording>>,
    /// What the device said when it last could not record one.
    pub(crate) failure: Option<Error>,
}

impl Graphs {
    /// The recording of a size, made by `record` when it is first asked for; none if it cannot be made.
    pub(crate) fn get(
        &mut self,
        size: StepSize,
        record: impl FnOnce() -> Result<Recording, Error>,
    ) -> Option<Recording> {
        *self.recorded.entry(size).or_insert_with(|| match record() {
            Ok(recording) => Some(recording),
            Err(error) => {
                let StepSize { rows, keys } = size;
                tracing::warn!(
                    "steps of {rows} rows and up to {keys} keys are launched one kernel at a time: {error}"
                );
                self.failure = Some(error);
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::Span;
    use std::collections::HashSet;

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

    #[test]
    fn sizes_are_counted() {
        for (most_rows, capacity) in
            [(1, 1), (1, 256), (3, 257), (48, 512), (64, 513), (64, 1024), (1000, 1000), (5, 4000)]
        {
            let mut sizes = HashSet::new();
            for rows in 1..=most_rows {
                let lengths = [1, capacity].into_iter().chain((1..capacity).step_by(SPLIT / 2));
                sizes.extend(lengths.filter_map(|length| {
                    let span = |i| Span::new(i, length - 1, &[1], Want::Last);
                    let pass = Pass { spans: (0..rows).map(span).collect() };
                    StepSize::of(&pass, most_rows, capacity)
                }));
            }
            assert_eq!(
                StepSize::count(most_rows, capacity),
                sizes.len(),
                "{most_rows}, {capacity}"
            );
        }
    }
}
