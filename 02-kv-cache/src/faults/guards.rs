//! What catches the faults of this rung, and the weaker tests that do not.
//!
//! [`Checksummed`], [`ReadBack`], [`Poisoned`] and [`Shadow`] are decorators: an engine can run with
//! them switched in. The comparisons in `compare.rs` are for tests.

mod checksummed;
mod compare;
mod poisoned;
mod read_back;
mod shadow;

pub use checksummed::Checksummed;
pub use compare::{
    any_chunk_gives_the_same, as_many_keys_as_tokens, equals_naive, every_slot_is_filled,
    length_is_tokens_fed, same_alone_and_beside,
};
pub use poisoned::Poisoned;
pub use read_back::ReadBack;
pub use shadow::Shadow;

use crate::Place;
use naive_decode::break_it::Bench;
use naive_decode::{Executor, Pass, Result, Span, Want};

/// Tokens that a guard takes from the end of the prompt as if they had been generated.
const STEPS: usize = 4;

/// Runs the bench's prompt as prefill and a few single steps.
fn walk(bench: &Bench, executor: &mut impl Executor) -> Result<()> {
    let (prefill, steps) = bench.prompt.split_at(bench.prompt.len() - STEPS);
    executor.execute(&Pass::one(Span::new(0, 0, prefill, Want::Last)))?;
    for (start, step) in (prefill.len()..).zip(steps.chunks(1)) {
        executor.execute(&Pass::one(Span::new(0, start, step, Want::Last)))?;
    }
    Ok(())
}

/// A place as an error names it.
fn name(what: &str, place: Place) -> String {
    let Place { sequence, layer, kv_head, slot } = place;
    format!("{what} in slot {slot} of layer {layer}, head {kv_head}, sequence {sequence}")
}
