//! The other half of a block: each row by itself, wider and back.

use crate::kernels::Isa;
use crate::linear::Linear;
use ndarray::{Array2, ArrayView2};

/// What a block does to each row after attention.
pub trait FeedForward: Send + Sync {
    /// Normed hidden rows `[rows, hidden]` → `[rows, hidden]`.
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32>;
    /// Bytes of weights that one pass reads.
    fn bytes(&self) -> usize;
}

/// What a gate does to what goes past it: the first numbers are the gate, and become the product.
pub type Gate = fn(Isa, &mut [f32], &[f32]);

/// A gated linear unit (Shazeer 2020): `down(gate(x) · up(x))`, with a function of the gate. SwiGLU, which is Llama's, has
/// [`silu_gate`](crate::kernels::silu_gate), GeGLU [`gelu_gate`](crate::kernels::gelu_gate).
pub struct GatedUnit {
    /// `hidden → intermediate`
    pub gate: Box<dyn Linear>,
    /// `hidden → intermediate`
    pub up: Box<dyn Linear>,
    /// `intermediate → hidden`
    pub down: Box<dyn Linear>,
    /// What the gate does.
    pub activation: Gate,
    /// Instruction set for it.
    pub isa: Isa,
}

impl FeedForward for GatedUnit {
    // ANCHOR: swiglu
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut gate = self.gate.apply(x);
        let up = self.up.apply(x);
        let contiguous = "Linear gives contiguous rows";
        (self.activation)(
            self.isa,
            gate.as_slice_mut().expect(contiguous),
            up.as_slice().expect(contiguous),
        );
        self.down.apply(gate.view())
    }
    // ANCHOR_END: swiglu

    fn bytes(&self) -> usize {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}
