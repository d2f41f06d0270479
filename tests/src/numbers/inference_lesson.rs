//! Figures of the inference lesson. Its running examples are Llama-2 models on NVIDIA H100s.

mod batches;
mod cache;
mod fewer_bytes;
mod fewer_steps;
mod intensity;
mod one_user;

use super::Row;
use super::Source::InferenceLesson as SOURCE;

const WEIGHTS_70B: f64 = 140e9;

/// Its rows, idea by idea, in the order in which the lesson has them.
pub(super) const PARTS: &[&[Row]] = &[
    one_user::ROWS,
    intensity::ROWS,
    cache::ROWS,
    batches::ROWS,
    fewer_steps::ROWS,
    fewer_bytes::ROWS,
];
