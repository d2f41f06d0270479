//! Executors around an executor: one changes each span before it runs, one looks at the pass.

use crate::error::Result;
use crate::executor::{Executor, Logits};
use crate::pass::{Pass, Span};

/// Changes every span on its way in. With the right closure this is half of this project's faults:
/// a wrong position, a wrong mask.
pub struct Edited<E, F> {
    /// Who runs the changed pass.
    pub executor: E,
    /// The change.
    pub edit: F,
}

impl<E: Executor, F: FnMut(&mut Span)> Executor for Edited<E, F> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        let mut pass = pass.clone();
        pass.spans.iter_mut().for_each(&mut self.edit);
        self.executor.execute(&pass)
    }
}

/// Refuses a pass that a check finds fault with. Cheap enough to leave in while serving.
pub struct Checked<E> {
    /// Who runs the pass if the check lets it through.
    pub executor: E,
    /// The check.
    pub check: fn(&Pass) -> Result<()>,
}

impl<E: Executor> Executor for Checked<E> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        (self.check)(pass)?;
        self.executor.execute(pass)
    }
}
