//! The fourth seam: something that can run a pass.

use crate::attention::Attention;
use crate::error::Result;
use crate::model::Model;
use crate::pass::Pass;
use ndarray::Array2;
use std::sync::Arc;

/// One row per wanted row of the pass, `[wanted, vocab]`.
pub type Logits = Array2<f32>;

/// Runs one ragged batch on some device.
pub trait Executor {
    /// Runs the pass and returns the logits that it wants.
    ///
    /// # Errors
    /// If the pass does not fit what the executor holds; nothing has then changed.
    fn execute(&mut self, pass: &Pass) -> Result<Logits>;
}

/// The model on this machine's processor, with attention of the rung's choosing.
pub struct CpuExecutor<A> {
    /// Weights, shared by everyone who runs them.
    pub model: Arc<Model>,
    /// Keys and values of the sequences that this executor runs.
    pub attention: A,
}

impl<A: Attention> Executor for CpuExecutor<A> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        self.model.forward(pass, &mut self.attention)
    }
}

impl<E: Executor + ?Sized> Executor for Box<E> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        (**self).execute(pass)
    }
}
