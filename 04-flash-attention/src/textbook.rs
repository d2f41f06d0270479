//! The textbook forms as attention of a model, over lists that grow.

use crate::head::{Head, attend_heads};
use crate::traffic::Traffic;
use kv_cache::Lengths;
use naive_decode::{Attention, Isa, LayerSpec, Model, Pass, Result};
use ndarray::{Array2, Array3, ArrayView3, Axis, Slice, concatenate, s};

/// Keys `[slots, kv_heads, D]` and values `[slots, kv_heads, D_v]` of one sequence and layer.
type Kept = Option<(Array3<f32>, Array3<f32>)>;

/// Attention in a form of one's choosing: `method(head, traffic)` answers one key-value head's queries.
///
/// It keeps one list for each sequence and layer, and copies all of it in every pass: made to be looked at,
/// not to be fast. What each pass moves is added to [`Textbook::traffic`].
pub struct Textbook<M> {
    method: M,
    /// Bytes moved since it was made.
    pub traffic: Traffic,
    /// `[sequences][layers]`
    kept: Vec<Vec<Kept>>,
    lengths: Lengths,
    isa: Isa,
}

impl<M: Fn(&Head, &Traffic) -> Array2<f32> + Send> Textbook<M> {
    /// Empty lists for `sequences` sequences as long as the model can take.
    pub fn new(model: &Model, sequences: usize, method: M) -> Self {
        let kept = vec![vec![None; model.blocks.len()]; sequences];
        let lengths = Lengths::new(sequences, model.context());
        Textbook { method, traffic: Traffic::new(), kept, lengths, isa: model.isa }
    }
}

/// The rows kept so far, as many as were committed, and the new ones after them.
fn followed_by(kept: &Array3<f32>, held: usize, new: ArrayView3<f32>) -> Array3<f32> {
    let held = kept.slice_axis(Axis(0), Slice::from(..held));
    concatenate(Axis(0), &[held, new]).expect("rows of one layer have one shape")
}

impl<M: Fn(&Head, &Traffic) -> Array2<f32> + Send> Attention for Textbook<M> {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.lengths.check_pass(pass)
    }

    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let mut out = Array3::zeros((q.dim().0, q.dim().1, v.dim().2));
        for (span, rows) in pass.spans_with_rows() {
            let rows = s![rows, .., ..];
            let kept = &mut self.kept[span.sequence][layer.kv_layer];
            if layer.kv_layer == layer.index {
                let (k, v) = (k.slice(rows), v.slice(rows));
                *kept = Some(match kept.take() {
                    Some((keys, values)) => {
                        (followed_by(&keys, span.start, k), followed_by(&values, span.start, v))
                    }
                    None => (k.to_owned(), v.to_owned()),
                });
            }
            let (k, v) = kept.as_ref().expect("an earlier layer of the pass made them");
            let qkv = (q.slice(rows), k.view(), v.view());
            let answers = attend_heads(&self.method, self.isa, layer, span, qkv, &self.traffic);
            out.slice_mut(rows).assign(&answers);
        }
        Ok(out)
    }

    fn commit(&mut self, pass: &Pass) {
        self.lengths.commit(pass);
    }
}
