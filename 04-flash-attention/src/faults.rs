//! The faults of this rung.
//!
//! | File | Fault |
//! |---|---|
//! | `activation_outlier.rs` | eight bits for a row of activations with one far larger than the others |
//! | `group_scale.rs` | a scale for each group of weights, of which only the first is used |

mod activation_outlier;
mod group_scale;

pub use activation_outlier::{ACTIVATION_OUTLIER, with_outlier_column};
pub use group_scale::{GROUP_SCALE, first_scale_for_all};

use gqa_mla::quality::{Judge, Material, Question, Quiz};
use naive_decode::break_it::{Bench, BreakIt};
use naive_decode::{Error, Model, Result};

/// Tokens that these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![ACTIVATION_OUTLIER, GROUP_SCALE]
}

/// Nats a token that weights of eight bits may part from full precision.
const BOUND: f64 = 0.1;

/// Whether a model predicts along the bench's prompt as the full one does.
fn predicts_alike(bench: &Bench, full: &Model, model: &Model) -> Result<()> {
    let (answer, prompt) = bench.prompt.split_last().expect("a prompt has tokens");
    let (ask, prompt) = prompt.split_last().expect("a prompt has tokens");
    let questions = vec![Question { ask: vec![*ask], answer: vec![*answer] }];
    let quizzes = vec![Quiz { prompt: prompt.to_vec(), questions }];
    let judge = Judge::new(full, Material { texts: vec![bench.prompt.clone()], quizzes })?;
    let found = judge.judge_model(model)?.divergence();
    match found < BOUND {
        true => Ok(()),
        false => Err(Error::invalid(
            "KL divergence from full precision",
            format!("{found:.3} nats a token"),
            format!("less than {BOUND}"),
        )),
    }
}
