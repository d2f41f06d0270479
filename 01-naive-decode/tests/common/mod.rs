//! Matrices that count what goes through them.

use naive_decode::roofline::Work;
use naive_decode::{DenseLinear, Isa, Linear, Result};
use ndarray::{Array2, ArrayView2};
use std::sync::{Arc, Mutex};

/// A matrix that counts what goes through it.
struct Counted {
    inner: DenseLinear,
    work: Arc<Mutex<Work>>,
}

impl Linear for Counted {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let y = self.inner.apply(x);
        let mut work = self.work.lock().unwrap();
        work.flops += 2 * (x.len() * y.ncols()) as u64;
        // Asked about no row, as a pass that wants no logits asks the head, it reads nothing.
        work.weight_bytes += if x.is_empty() { 0 } else { self.inner.bytes() as u64 };
        work.activation_bytes += 4 * (x.len() + y.len()) as u64;
        y
    }
    fn inputs(&self) -> usize {
        self.inner.inputs()
    }
    fn outputs(&self) -> usize {
        self.inner.outputs()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

/// Makes every matrix of a model one that adds to `work`.
pub(crate) fn counted(
    isa: Isa,
    work: Arc<Mutex<Work>>,
) -> impl Fn(Vec<f32>, usize, usize) -> Result<Box<dyn Linear>> {
    move |weights, outputs, inputs| {
        let inner = DenseLinear::new(&weights, outputs, inputs, isa)?;
        Ok(Box::new(Counted { inner, work: work.clone() }))
    }
}
