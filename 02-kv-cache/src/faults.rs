//! The faults of this rung. A cache is a notepad that every later token consults, so what goes wrong
//! here goes wrong quietly: the text stays fluent, and stops being about the prompt.
//!
//! | File | Fault |
//! |---|---|
//! | `overwritten_key.rs` | one cached key becomes noise after 101 tokens |
//! | `misplaced.rs` | keys and values in the wrong slot, layer, head or sequence, or nowhere |
//! | `stale_length.rs` | layers that do not see the tokens being fed |
//! | `positions.rs` | RoPE positions that part from the cache's slots |
//! | `mask_columns.rs` | a mask cut from the wrong rows when the prompt comes in chunks |
//! | `not_reset.rs` | a cache that still holds the request before |
//!
//! `guards/` holds what catches them: decorators that could stay in while serving, and comparisons
//! for tests. `recall.rs` counts right answers; `stepper.rs` decodes over any executor, so that a
//! fault can sit between the two; `beside.rs` is a second user in the same passes, and `boxed.rs` a
//! store that is chosen while the program runs.

mod beside;
mod boxed;
pub mod guards;
mod mask_columns;
mod misplaced;
mod not_reset;
mod overwritten_key;
mod positions;
mod recall;
mod stale_length;
mod stepper;

pub use beside::Beside;
pub use mask_columns::MASK_COLUMNS;
pub use misplaced::{
    FIRST_TOKEN_MISSING, Misplaced, SHARED_CACHE, SHIFTED_WRITE, WRONG_HEAD, WRONG_LAYER,
};
pub use not_reset::{CACHE_NOT_RESET, KeepsRows};
pub use overwritten_key::{OVERWRITTEN_KEY, Overwriting, overwrite_key};
pub use positions::{CACHED_POSITION_LEAKS, ROPE_OFFSET_GROWS};
pub use stale_length::{STALE_LENGTH, StaleLength};
pub use stepper::Stepper;

use crate::{Cached, ContiguousStore, KvShape, Store};
use naive_decode::break_it::{Bench, BreakIt};
use naive_decode::{CpuExecutor, Model, Result};
use std::sync::Arc;

/// Tokens that most of these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![
        OVERWRITTEN_KEY,
        SHIFTED_WRITE,
        FIRST_TOKEN_MISSING,
        STALE_LENGTH,
        WRONG_LAYER,
        WRONG_HEAD,
        CACHE_NOT_RESET,
        CACHED_POSITION_LEAKS,
        MASK_COLUMNS,
        ROPE_OFFSET_GROWS,
        SHARED_CACHE,
    ]
}

/// A store for `sequences` sequences as long as the model can take.
fn store(model: &Model, sequences: usize) -> Result<ContiguousStore> {
    let shape = KvShape::of(model);
    ContiguousStore::new(shape, model.context(), sequences)
}

/// The model over a store.
fn executor<S: Store>(model: &Arc<Model>, store: S) -> CpuExecutor<Cached<S>> {
    CpuExecutor { model: Arc::clone(model), attention: Cached::new(store, model.isa) }
}

/// Another user's prompt.
fn other_prompt(bench: &Bench) -> Result<Vec<u32>> {
    let world = Bench::world(1, 5, 2);
    bench.tokenizer.encode(&(world.prompt().to_owned() + &world.question(0)))
}
