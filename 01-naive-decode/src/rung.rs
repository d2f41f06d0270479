//! What a rung tells the others about itself: one list of these drives the ladder's table, the
//! equality matrix and the benches.

use crate::attention::NaiveAttention;
use crate::decode::{Decoder, NaiveDecoder};
use crate::error::Result;
use crate::executor::CpuExecutor;
use crate::model::Model;
use std::sync::Arc;

/// How to set a rung up for one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Tokens that the sequence may grow to.
    pub capacity: usize,
    /// Most prompt tokens to run in one pass; the whole prompt if not said.
    pub prefill_chunk: Option<usize>,
    /// Threads that share out attention where a rung has a pool of its own for that; the process's pool if not said.
    pub threads: Option<usize>,
}

/// One way to decode: a step of the staircase.
#[derive(Clone, Copy)]
pub struct Rung {
    /// Name of the crate it lives in.
    pub package: &'static str,
    /// What it changes, in a few words.
    pub change: &'static str,
    /// Sets it up for one sequence.
    pub start: fn(Arc<Model>, Settings) -> Result<Box<dyn Decoder>>,
}

/// Rung 01: everything again, every time.
pub const NAIVE: Rung = Rung {
    package: "naive-decode",
    change: "nothing kept: the whole text again for every token",
    start: |model, settings| {
        let capacity = settings.capacity.min(model.context());
        let attention = NaiveAttention::new(model.isa);
        Ok(Box::new(NaiveDecoder::over(CpuExecutor { model, attention }, capacity)))
    },
};
