//! A second pass over what a cache keeps in a form of its own, and its answers by definition, place by place.

use crate::case::{Heads, first_difference, heads, held, layer, span};
use flash_attention::FlashCache;
use flash_attention::threads::Pool;
use flash_attention::tile_attention::KvType;
use naive_decode::kernels::{soft_cap, softmax_weights};
use naive_decode::numerics::LANES;
use naive_decode::{Attention, Isa, KvSize, LayerSpec, Partial, Pass, SPLIT, Span};
use ndarray::{Array3, ArrayView3, s};
use proptest::prelude::*;
use std::ops::Range;

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) heads: Heads,
    /// Rows of the first pass.
    held: usize,
    rows: usize,
    window: Option<usize>,
    /// Seed of a draft tree.
    tree: Option<u64>,
    scale: f32,
    isa: usize,
    threads: usize,
    pub(crate) seed: u64,
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let window = prop_oneof![2 => Just(None), 1 => (1usize..40).prop_map(Some)];
    let tree = prop_oneof![3 => Just(None), 1 => any::<u64>().prop_map(Some)];
    let scale = prop_oneof![Just(0.1f32), Just(1.0), Just(20.0)];
    let rest = (0usize..4, 1usize..4, any::<u64>());
    (heads(), held(), 1usize..40, window, tree, scale, rest).prop_map(
        |(heads, held, rows, window, tree, scale, (isa, threads, seed))| Case {
            heads,
            held,
            rows,
            window,
            tree,
            scale,
            isa,
            threads,
            seed: seed / 8,
        },
    )
}

/// What is different in each form: scores and sums of one query, of keys and values by slot.
pub(crate) trait Definition {
    /// A query's score of a key, in base 2; `scale` changes the base, too.
    fn score(&self, q: &[f32], scale: f32, kv_head: usize, slot: usize) -> f32;
    /// A column's sum over some slots and their weights, `weights` being of all of one split.
    fn sum(&self, weights: &[(usize, f32)], kv_head: usize, column: usize) -> f32;
}

impl Case {
    /// Keys and values of both passes.
    pub(crate) fn keys_values(&self) -> (Array3<f32>, Array3<f32>) {
        self.heads.keys_values(self.seed, self.held + self.rows)
    }

    fn layer(&self) -> LayerSpec {
        layer(self.window, self.scale)
    }

    /// The first number of the second pass's answers that is not the definition's.
    pub(crate) fn difference(
        &self,
        kept: KvType,
        (k, v): (ArrayView3<f32>, ArrayView3<f32>),
        definition: &impl Definition,
    ) -> Option<String> {
        let Heads { kv_heads, group, key_dim, value_dim, absorbed } = self.heads;
        let size =
            KvSize { heads: kv_heads, key_dim, value_dim: if absorbed { 0 } else { value_dim } };
        let isa = Isa::available()[self.isa % Isa::available().len()];
        let capacity = self.held + self.rows;
        let mut cache = FlashCache::of_sizes(&[Some(size)], kept, isa, capacity, 1)
            .unwrap()
            .on_threads(Pool::new(self.threads));
        let mut attend = |span: Span, q: ArrayView3<f32>| {
            let rows = span.start..span.start + span.rows();
            let (k, v) = (k.slice(s![rows.clone(), .., ..]), v.slice(s![rows, .., ..]));
            let pass = Pass::one(span);
            cache.begin(&pass).unwrap();
            let found = cache.attend(self.layer(), &pass, q, k, v).unwrap();
            cache.commit(&pass);
            found
        };
        if self.held > 0 {
            let none = Array3::zeros((self.held, kv_heads * group, key_dim));
            attend(span(0, 0, self.held, None), none.view());
        }
        let span = span(0, self.held, self.rows, self.tree);
        let q = self.heads.queries(self.seed, self.rows);
        let found = attend(span.clone(), q.view());
        let mut expected = Array3::zeros(found.dim());
        for ((row, head, _), _) in q.slice(s![.., .., ..1]).indexed_iter() {
            let q = q.slice(s![row, head, ..]);
            let answer = self.answer(definition, &span, row, q.as_slice().unwrap(), head / group);
            let mut to = expected.slice_mut(s![row, head, ..]);
            to.iter_mut().zip(answer).for_each(|(to, number)| *to = number);
        }
        first_difference(&found, &expected)
    }

    /// One query's answer: `q [D]`.
    fn answer(
        &self,
        definition: &impl Definition,
        span: &Span,
        row: usize,
        q: &[f32],
        kv_head: usize,
    ) -> Vec<f32> {
        let (layer, sees) = (self.layer(), &span.sees[row]);
        let scale = layer.scale * std::f32::consts::LOG2_E;
        let seen = sees.places(layer.window);
        let mut whole = Partial::empty(self.heads.value_dim);
        for split in 0..seen.end.div_ceil(SPLIT) {
            let places: Range<usize> = split * SPLIT..seen.end.min((split + 1) * SPLIT);
            let mut scores = vec![[0.0; LANES]; places.len().div_ceil(LANES)];
            let mut mask = vec![0u16; scores.len()];
            for (i, place) in places.clone().enumerate() {
                scores[i / LANES][i % LANES] =
                    definition.score(q, scale, kv_head, sees.slot(place));
                mask[i / LANES] |= u16::from(seen.contains(&place)) << (i % LANES);
            }
            if let Some(cap) = layer.score_cap {
                let cap = cap * std::f32::consts::LOG2_E;
                soft_cap(Isa::SCALAR, scores.as_flattened_mut(), cap);
            }
            let (maximum, sum) = softmax_weights(Isa::SCALAR, &mut scores, &mask);
            let weights = scores.as_flattened().iter().copied();
            let weights: Vec<_> = places.map(|place| sees.slot(place)).zip(weights).collect();
            let columns = 0..self.heads.value_dim;
            let values = columns.map(|column| definition.sum(&weights, kv_head, column)).collect();
            whole.join(&Partial { maximum, sum, values });
        }
        whole.finish().collect()
    }
}
