//! The type of one kept number, and how a kernel reads it.

use half::{bf16, f16};
use naive_decode::kernels::Vector;
use naive_decode::numerics::LANES;

// ANCHOR: element
/// A number as the cache keeps it.
///
/// Kernels read it through [`TileElement::load`]: widened in the register, never beforehand in memory.
/// A type that needs more than itself to be widened (an INT8 code and its scale) would bring it here.
pub(super) trait TileElement: Copy + Default + Send + Sync + 'static {
    /// The nearest number that this type holds. Keys and values were rounded to it where they were
    /// made, so nothing is lost.
    fn narrow(value: f32) -> Self;
    /// The first [`Vector::WIDTH`] numbers of a slice at least that long.
    ///
    /// # Safety
    /// The instruction set of `V` must be present, and the slice long enough.
    unsafe fn load<V: Vector>(from: &[Self]) -> V;
}
// ANCHOR_END: element

impl TileElement for f32 {
    fn narrow(value: f32) -> Self {
        value
    }
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        // SAFETY: the caller vouches for the instruction set and the length.
        unsafe { V::load(from) }
    }
}

impl TileElement for bf16 {
    fn narrow(value: f32) -> Self {
        bf16::from_f32(value)
    }
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        // SAFETY: the caller vouches for the instruction set and the length.
        unsafe { V::load_bf16(from) }
    }
}

/// No register widens f16 on every path, so it goes number by number: right, and not fast.
impl TileElement for f16 {
    fn narrow(value: f32) -> Self {
        f16::from_f32(value)
    }
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        let mut wide = [0.0; LANES];
        for (wide, narrow) in wide.iter_mut().zip(&from[..V::WIDTH]) {
            *wide = narrow.to_f32();
        }
        // SAFETY: the caller vouches for the instruction set; a register is no wider than LANES.
        unsafe { V::load(&wide) }
    }
}
