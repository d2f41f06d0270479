//! The faults of this rung. Each leaves attention a plausible average of values, so the text stays fluent; and
//! each is invisible to some size: one tile, a full tile, one split.
//!
//! | File | Fault |
//! |---|---|
//! | `missing_rescale.rs` | the running maximum moves, and what was summed before stays as it was |
//! | `ragged_tile.rs` | the last tile is read to its end, past the end of the text |
//! | `averaged_splits.rs` | results of splits are averaged, not merged by their sums of weights |

mod averaged_splits;
mod missing_rescale;
mod ragged_tile;

pub use averaged_splits::{AVERAGED_SPLITS, averaged_splits};
pub use missing_rescale::{MISSING_RESCALE, update_without_rescale};
pub use ragged_tile::{RAGGED_TILE, RaggedTile};

use crate::head::Head;
use crate::textbook::Textbook;
use crate::traffic::Traffic;
use kv_cache::faults::Stepper;
use naive_decode::break_it::BreakIt;
use naive_decode::{Attention, CpuExecutor, Decoder, Model};
use ndarray::Array2;
use std::sync::Arc;

/// Tokens that these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![MISSING_RESCALE, RAGGED_TILE, AVERAGED_SPLITS]
}

/// A decoder over some attention.
fn decoder(model: &Arc<Model>, attention: impl Attention + 'static) -> Box<dyn Decoder> {
    let executor = CpuExecutor { model: Arc::clone(model), attention };
    Box::new(Stepper::new(executor, model.context(), usize::MAX))
}

/// A decoder whose attention has the given form.
fn by(
    model: &Arc<Model>,
    method: impl Fn(&Head, &Traffic) -> Array2<f32> + Send + 'static,
) -> Box<dyn Decoder> {
    decoder(model, Textbook::new(model, 1, method))
}
