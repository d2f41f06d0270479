//! What blocks are made of in families that add something to Llama's matrices and norms.
//!
//! Each is a decorator over a seam of rung 01: it holds what Llama has and does one thing more.

use naive_decode::kernels::{gelu_gate, soft_cap};
use naive_decode::numerics::rms_norm;
use naive_decode::{
    FeedForward, Isa, KvSize, Linear, Parts, Projected, Projection, Result, Rope, SwiGlu,
};
use ndarray::{Array2, Array3, ArrayView2};
use std::ops::Range;

/// A matrix whose outputs are added to by a bias of their own.
pub(super) struct Biased {
    linear: Box<dyn Linear>,
    /// `[outputs]`
    bias: Vec<f32>,
}

impl Biased {
    /// Reads `{name}.weight` and `{name}.bias`.
    ///
    /// # Errors
    /// If one of them is missing or has another shape.
    pub(super) fn read(
        parts: &Parts,
        name: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Box<dyn Linear>> {
        let linear = parts.matrix(&format!("{name}.weight"), outputs, inputs)?;
        let bias = parts.vector(&format!("{name}.bias"), outputs)?;
        Ok(Box::new(Biased { linear, bias }))
    }
}

impl Linear for Biased {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut out = self.linear.apply(x);
        // After the chain, so that the chain is that of a matrix without.
        for mut row in out.rows_mut() {
            row.iter_mut().zip(&self.bias).for_each(|(out, bias)| *out += bias);
        }
        out
    }

    fn inputs(&self) -> usize {
        self.linear.inputs()
    }

    fn outputs(&self) -> usize {
        self.linear.outputs()
    }

    fn bytes(&self) -> usize {
        self.linear.bytes() + size_of_val(self.bias.as_slice())
    }
}

/// A head whose logits are bent to stay within a bound (Gemma 2).
pub(super) struct Capped {
    pub(super) linear: Box<dyn Linear>,
    pub(super) cap: f32,
    pub(super) isa: Isa,
}

impl Linear for Capped {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut logits = self.linear.apply(x);
        let values = logits.as_slice_mut().expect("Linear gives contiguous rows");
        soft_cap(self.isa, values, self.cap);
        logits
    }

    fn inputs(&self) -> usize {
        self.linear.inputs()
    }

    fn outputs(&self) -> usize {
        self.linear.outputs()
    }

    fn bytes(&self) -> usize {
        self.linear.bytes()
    }
}

/// GeGLU (Shazeer 2020): SwiGLU with GELU, in its tanh form, for the gate.
pub(super) struct GeGlu(pub(super) SwiGlu);

impl FeedForward for GeGlu {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let GeGlu(SwiGlu { gate, up, down, isa }) = self;
        let mut gate = gate.apply(x);
        let up = up.apply(x);
        let contiguous = "Linear gives contiguous rows";
        gelu_gate(*isa, gate.as_slice_mut().expect(contiguous), up.as_slice().expect(contiguous));
        down.apply(gate.view())
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// RMSNorm on what a half of a block gives back, before it joins the residual stream.
pub(super) struct Normed<T: ?Sized> {
    /// `[hidden]`
    pub(super) weight: Vec<f32>,
    pub(super) epsilon: f32,
    pub(super) inner: Box<T>,
}

impl<T: ?Sized> Normed<T> {
    fn norm(&self, x: &Array2<f32>) -> Array2<f32> {
        let values = x.as_slice().expect("Linear gives contiguous rows");
        let normed = rms_norm(values, &self.weight, self.epsilon);
        Array2::from_shape_vec(x.dim(), normed).expect("a norm keeps the shape")
    }
}

impl FeedForward for Normed<dyn FeedForward> {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.norm(&self.inner.apply(x))
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + size_of_val(self.weight.as_slice())
    }
}

impl Projection for Normed<dyn Projection> {
    fn kv(&self) -> Option<KvSize> {
        self.inner.kv()
    }

    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        self.inner.project(x, positions, rope)
    }

    fn has_own_rope(&self) -> bool {
        self.inner.has_own_rope()
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        self.norm(&self.inner.output(attended))
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + size_of_val(self.weight.as_slice())
    }
}

/// Reads one matrix that is several, one below the other, and takes it apart: `outputs` rows each.
///
/// # Errors
/// If it is missing or has another shape.
pub(super) fn fused<const N: usize>(
    parts: &Parts,
    name: &str,
    outputs: [usize; N],
    inputs: usize,
) -> Result<[Box<dyn Linear>; N]> {
    let shape = [outputs.iter().sum(), inputs];
    let all = parts.when_asked(name, &shape);
    let mut first = 0;
    let matrices = outputs.map(|outputs| {
        let rows = first..first + outputs;
        first = rows.end;
        let Range { start, end } = rows;
        // Not before the shape is known to be the file's: a config alone may have sizes without end.
        parts.rows(name, shape, rows, &|| Ok(all()?[start * inputs..end * inputs].to_vec()))
    });
    let mut made = Vec::with_capacity(N);
    for matrix in matrices {
        made.push(matrix?);
    }
    Ok(made.try_into().ok().expect("one matrix for each number of rows"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::TARGET;
    use naive_decode::{Config, Error, LoadOptions, Model, dense};

    #[test]
    fn rows_beyond_all_counting_are_refused_by_their_shape() {
        let config = Config::from_json("config.json", TARGET.config).unwrap();
        let options = LoadOptions::default();
        let tensors = |name: &str, shape: &[usize]| match name {
            "fused" => Err(Error::invalid(name, format!("{shape:?}"), "[6, 2]")),
            _ => Ok(vec![0.0; shape.iter().product()]),
        };
        let fused = |parts: &Parts, _| {
            fused(parts, "fused", [1 << 48; 3], 1 << 24).map(|_| panic!("accepted"))
        };
        let said = Model::assemble_blocks(config, options, &tensors, &dense(options.isa), &fused);
        let said = said.err().unwrap().to_string();
        assert!(said.contains("fused") && said.contains("16777216]"), "{said}");
    }
}
