//! The other half of a block: each row by itself, wider and back.

use crate::kernels::{Isa, silu_gate};
use crate::linear::Linear;
use ndarray::{Array2, ArrayView2};

/// What a block does to each row after attention.
pub trait FeedForward: Send + Sync {
    /// Normed hidden rows `[rows, hidden]` → `[rows, hidden]`.
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32>;
    /// Bytes of weights that one pass reads.
    fn bytes(&self) -> usize;
}

/// SwiGLU (Shazeer 2020): `down(silu(gate(x)) · up(x))`.
pub struct SwiGlu {
    /// `hidden → intermediate`
    pub gate: Box<dyn Linear>,
    /// `hidden → intermediate`
    pub up: Box<dyn Linear>,
    /// `intermediate → hidden`
    pub down: Box<dyn Linear>,
    /// Instruction set for the gate.
    pub isa: Isa,
}

impl FeedForward for SwiGlu {
    // ANCHOR: swiglu
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut gate = self.gate.apply(x);
        let up = self.up.apply(x);
        let contiguous = "Linear gives contiguous rows";
        silu_gate(
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
