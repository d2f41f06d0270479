//! The faults of this rung. Those of attention leave it a plausible average of values, so the text stays fluent, and each
//! is invisible to some size: one tile, a full tile, one split. Those of weights are invisible to weights without
//! extremes.
//!
//! | File | Fault |
//! |---|---|
//! | `missing_rescale.rs` | the running maximum moves, and what was summed before stays as it was |
//! | `ragged_tile.rs` | the last tile is read to its end, past the end of the text |
//! | `averaged_splits.rs` | results of splits are averaged, not merged by their sums of weights |
//! | `activation_outlier.rs` | eight bits for a row of activations with one far larger than the others |
//! | `group_scale.rs` | a scale for each group of weights, of which only the first is used |

mod activation_outlier;
mod averaged_splits;
mod group_scale;
mod missing_rescale;
mod ragged_tile;

pub use activation_outlier::{ACTIVATION_OUTLIER, with_outlier_column};
pub use averaged_splits::{AVERAGED_SPLITS, averaged_splits};
pub use group_scale::{GROUP_SCALE, first_scale_for_all};
pub use missing_rescale::{MISSING_RESCALE, update_without_rescale};
pub use ragged_tile::{RAGGED_TILE, RaggedTile};

use crate::head::Head;
use crate::textbook::Textbook;
use crate::traffic::Traffic;
use gqa_mla::quality::{Judge, Material};
use kv_cache::faults::Stepper;
use naive_decode::break_it::{Bench, BreakIt};
use naive_decode::{Attention, CpuExecutor, Decoder, Model, Result};
use ndarray::Array2;
use std::sync::Arc;

/// Tokens that these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![MISSING_RESCALE, RAGGED_TILE, AVERAGED_SPLITS, ACTIVATION_OUTLIER, GROUP_SCALE]
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

/// Nats a token that weights of eight bits may part from full precision.
const BOUND: f64 = 0.1;

/// Whether a model predicts along the bench's prompt as the full one does.
fn predicts_alike(bench: &Bench, full: &Model, model: &Model) -> Result<()> {
    let judge = Judge::new(full, Material::prompt_alone(&bench.prompt))?;
    judge.judge_model(model)?.check_divergence(BOUND)
}
