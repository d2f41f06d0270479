//! Seam: what stands between the halves of a block.

use crate::numerics::rms_norm;
use ndarray::Array2;

/// The residual stream, to which every half of a block adds, and the norm through which every half reads it.
pub trait Residual: Send + Sync {
    /// Adds `made [rows, hidden]`, if there is something, to the stream `x [rows, hidden]`; then each of its rows
    /// RMS-normed by `weight [hidden]`, or as it is where there is none, `[rows, hidden]`.
    fn add_norm(
        &self,
        x: &mut Array2<f32>,
        made: Option<Array2<f32>>,
        weight: Option<&[f32]>,
        epsilon: f32,
    ) -> Array2<f32>;

    /// Whether the model goes on with the wanted rows only, once the last block's attention is done.
    fn leaves_unread(&self) -> bool {
        false
    }
}

/// All rows are added, and then all rows are normed.
pub struct AddThenNorm;

impl Residual for AddThenNorm {
    // ANCHOR: add_norm
    fn add_norm(
        &self,
        x: &mut Array2<f32>,
        made: Option<Array2<f32>>,
        weight: Option<&[f32]>,
        epsilon: f32,
    ) -> Array2<f32> {
        if let Some(made) = made {
            *x += &made;
        }
        let Some(weight) = weight else { return x.clone() };
        let rows = x.as_slice().expect("the residual stream is contiguous");
        let normed = rms_norm(rows, weight, epsilon);
        Array2::from_shape_vec(x.dim(), normed).expect("a norm keeps the shape")
    }
    // ANCHOR_END: add_norm
}
