//! A second user, served in the same passes.

use naive_decode::{Executor, Logits, Pass, Result, Span, Want, argmax};
use ndarray::s;

/// Runs another request beside the caller's: its prompt in the first pass, then one token a pass.
/// The caller sees nothing of it, and must not be able to tell.
pub struct Beside<E> {
    executor: E,
    /// The other request's tokens that have not been fed yet.
    next: Vec<u32>,
    fed: usize,
}

impl<E: Executor> Beside<E> {
    /// The other request is sequence 1.
    pub fn new(executor: E, prompt: Vec<u32>) -> Self {
        Beside { executor, next: prompt, fed: 0 }
    }
}

impl<E: Executor> Executor for Beside<E> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        let mut both = pass.clone();
        both.spans.push(Span::new(1, self.fed, &self.next, Want::Last));
        let logits = self.executor.execute(&both)?;
        self.fed += self.next.len();
        let own = logits.nrows() - 1;
        self.next = vec![argmax(&logits.row(own).to_vec())?];
        Ok(logits.slice(s![..own, ..]).to_owned())
    }
}
