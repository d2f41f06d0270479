//! The target's last hidden states, taken where they go into its head.
//!
//! Heads that guess further ahead read what the target's own head reads. That is the argument of a [`Linear`],
//! so a `Linear` around the head can keep it. The model does not know.

use naive_decode::{Linear, Model};
use ndarray::{Array2, ArrayView2};
use std::sync::{Arc, Mutex, PoisonError};

// ANCHOR: tap
/// A head that remembers what it was last given.
///
/// It hears every pass of the model that it is in. So whoever reads it must be the only one who runs that model,
/// as a [`Speculation`](crate::Speculation) is; a proposer that reads another's rows proposes nonsense, which
/// costs time and changes no token.
pub struct Tap {
    head: Arc<dyn Linear>,
    seen: Mutex<Array2<f32>>,
}
// ANCHOR_END: tap

impl Tap {
    /// A model with a tap before its head.
    pub fn on(model: Model) -> (Model, Arc<Tap>) {
        let seen = Mutex::new(Array2::zeros((0, model.config.hidden_size)));
        let tap = Arc::new(Tap { head: Arc::from(model.head), seen });
        (Model { head: Box::new(Arc::clone(&tap)), ..model }, tap)
    }

    /// What the last pass brought to the head: one row for each that wanted logits, `[wanted, hidden]`.
    pub fn seen(&self) -> Array2<f32> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The head itself, past the tap.
    pub fn head(&self) -> &Arc<dyn Linear> {
        &self.head
    }
}

impl Linear for Tap {
    // ANCHOR: apply
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = x.to_owned();
        self.head.apply(x)
    }
    // ANCHOR_END: apply

    fn inputs(&self) -> usize {
        self.head.inputs()
    }

    fn outputs(&self) -> usize {
        self.head.outputs()
    }

    fn bytes(&self) -> usize {
        self.head.bytes()
    }
}
