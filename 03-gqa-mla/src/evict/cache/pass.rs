//! A pass through the evicting cache: write, read and be watched, then choose.

use super::super::head::Head;
use super::super::{Evict, Observation, Phase};
use super::{EvictingCache, Sequence};
use crate::reading::{Attended, attend_reading};
use crate::tiles::Tiles;
use kv_cache::KvCache;
use naive_decode::{Attention, LayerSpec, Pass, Result, Span, Want};
use ndarray::{Array3, ArrayView3, s};

impl<P: Evict> EvictingCache<P> {
    /// Appends a span's keys and values `[rows, kv_heads, D]` to a layer's heads.
    fn append(&mut self, layer: usize, span: &Span, k: ArrayView3<f32>, v: ArrayView3<f32>) {
        let kv_heads = self.shape.kv_heads;
        let heads = &mut self.sequences[span.sequence].heads[layer * kv_heads..][..kv_heads];
        for (kv_head, head) in heads.iter_mut().enumerate() {
            head.reserve(span.rows(), self.budget);
            for (row, slot) in (span.start..span.end()).enumerate() {
                let contiguous = "heads are contiguous";
                let (k, v) = (k.slice(s![row, kv_head, ..]), v.slice(s![row, kv_head, ..]));
                head.push(slot, k.to_slice().expect(contiguous), v.to_slice().expect(contiguous));
            }
        }
    }

    /// A layer's heads, laid out for the inner loop.
    fn tiles(&self, layer: usize, span: &Span, value_dim: usize) -> Result<Tiles> {
        let kv_heads = self.shape.kv_heads;
        let heads = &self.sequences[span.sequence].heads[layer * kv_heads..][..kv_heads];
        let turn = self.rope.as_ref().map(|rope| (rope, span.end()));
        let tiled = |head: &Head<P>| head.tiled(value_dim, self.shape.key_dim, turn);
        Ok(Tiles { isa: self.isa, heads: heads.iter().map(tiled).collect::<Result<_>>()? })
    }
}

impl<P: Evict> Attention for EvictingCache<P> {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.lengths.check_pass(pass)?;
        for span in &pass.spans {
            self.sequences[span.sequence].heads.iter_mut().for_each(Head::begin);
        }
        Ok(())
    }

    // ANCHOR: attend
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
            if layer.kv_layer == layer.index {
                let (k, v) = (k.slice(s![rows.clone(), .., ..]), v.slice(s![rows.clone(), .., ..]));
                self.append(layer.index, span, k, v);
            }
            let tiles = self.tiles(layer.kv_layer, span, v.dim().2)?;
            let first = layer.kv_layer * self.shape.kv_heads;
            let Sequence { heads, prompt, .. } = &mut self.sequences[span.sequence];
            let mut watch = |attended: Attended| {
                let slot = span.start + attended.row;
                heads[first + attended.kv_head].observe(&Observation {
                    layer: layer.index,
                    head: attended.head,
                    slot,
                    since_prompt: prompt.map_or(0, |prompt| slot + 1 - prompt),
                    places: attended.places,
                    weights: attended.weights,
                });
            };
            let watch: Option<&mut dyn FnMut(Attended)> =
                if self.observes { Some(&mut watch) } else { None };
            let q = q.slice(s![rows.clone(), .., ..]);
            attend_reading(
                self.isa,
                layer,
                span,
                q,
                &tiles,
                out.slice_mut(s![rows, .., ..]),
                watch,
            );
        }
        Ok(out)
    }
    // ANCHOR_END: attend

    // ANCHOR: commit
    fn commit(&mut self, pass: &Pass) {
        self.peak_bytes = self.peak_bytes.max(self.allocated_bytes());
        self.lengths.commit(pass);
        for span in &pass.spans {
            let phase = match (self.sequences[span.sequence].prompt, span.want) {
                (Some(_), _) => Phase::Generation,
                (None, Want::Nothing) => Phase::Prompt,
                (None, Want::Last | Want::All) => Phase::PromptEnd,
            };
            let turns = self.turns(span.end(), phase);
            let sequence = &mut self.sequences[span.sequence];
            if phase == Phase::PromptEnd {
                sequence.prompt = Some(span.end());
            }
            for (head, turn) in sequence.heads.iter_mut().zip(turns) {
                if head.commit(turn) {
                    sequence.dropped_at = span.end();
                }
            }
        }
    }
    // ANCHOR_END: commit
}
