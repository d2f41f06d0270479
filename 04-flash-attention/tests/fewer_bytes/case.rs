//! Random attention: sizes, visibility, numbers.

use naive_decode::break_it::noise;
use naive_decode::{KeyValues, LayerSpec, Span, Visible, Want};
use ndarray::{Array3, ArrayView3, s};
use proptest::prelude::*;

/// Sizes of one layer's attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) kv_heads: usize,
    pub(crate) group: usize,
    pub(crate) key_dim: usize,
    /// Width of a value; if `absorbed`, a value is the beginning of its key.
    pub(crate) value_dim: usize,
    pub(crate) absorbed: bool,
}

pub(crate) fn heads() -> impl Strategy<Value = Heads> {
    let absorbed = (prop::bool::weighted(0.25), 1usize..=40, 1usize..=40);
    (1usize..=3, 1usize..=5, absorbed).prop_map(|(kv_heads, group, (absorbed, a, b))| {
        let (key_dim, value_dim) = if absorbed { (a.max(b), a.min(b)) } else { (a, b) };
        Heads { kv_heads, group, key_dim, value_dim, absorbed }
    })
}

/// How many tokens came before: mostly few, now and then the end of a split and a bit more.
pub(crate) fn held() -> impl Strategy<Value = usize> {
    prop_oneof![48 => 0usize..90, 1 => 500usize..530, 1 => 1010usize..1050]
}

/// Numbers of a span's queries, or of keys and values, `[rows, heads, D]`.
pub(crate) fn numbers(seed: u64, shape: (usize, usize, usize)) -> Array3<f32> {
    Array3::from_shape_vec(shape, noise(seed, shape.0 * shape.1 * shape.2)).unwrap()
}

impl Heads {
    pub(crate) fn queries(&self, seed: u64, rows: usize) -> Array3<f32> {
        numbers(3 * seed, (rows, self.kv_heads * self.group, self.key_dim))
    }

    /// Keys and values of so many rows.
    pub(crate) fn keys_values(&self, seed: u64, rows: usize) -> (Array3<f32>, Array3<f32>) {
        let k = numbers(3 * seed + 1, (rows, self.kv_heads, self.key_dim));
        let v = match self.absorbed {
            true => k.slice(s![.., .., ..self.value_dim]).as_standard_layout().into_owned(),
            false => numbers(3 * seed + 2, (rows, self.kv_heads, self.value_dim)),
        };
        (k, v)
    }
}

/// A layer; one with a window bends its scores too.
pub(crate) fn layer(window: Option<usize>, scale: f32) -> LayerSpec {
    let score_cap = window.is_some().then_some(3.0);
    LayerSpec { index: 0, kv_layer: 0, window, scale, score_cap }
}

/// A span of rows after `held` tokens; as a draft tree, each row follows some earlier one or the text.
pub(crate) fn span(sequence: usize, held: usize, rows: usize, tree: Option<u64>) -> Span {
    let mut span = Span::new(sequence, held, &vec![0; rows], Want::All);
    let Some(seed) = tree else { return span };
    for (row, random) in noise(seed, rows).into_iter().enumerate() {
        let parent = ((random + 1.0) / 2.0 * (row + 1) as f32) as usize; // 0 is the text itself
        let mut also = match parent {
            0 => Vec::new(),
            parent => span.sees[parent - 1].also.clone(),
        };
        also.push(held + row);
        span.sees[row] = Visible { range: 0..held, also };
    }
    span
}

/// Plain numbers as rung 01 reads them.
pub(crate) struct Plain<'a> {
    pub(crate) k: ArrayView3<'a, f32>,
    pub(crate) v: ArrayView3<'a, f32>,
}

impl KeyValues for Plain<'_> {
    fn kv_heads(&self) -> usize {
        self.k.dim().1
    }
    fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        copy.copy_from_slice(self.k.slice(s![slot, kv_head, ..]).as_slice().unwrap());
    }
    fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        copy.copy_from_slice(self.v.slice(s![slot, kv_head, ..]).as_slice().unwrap());
    }
}

/// The first number whose bits differ.
pub(crate) fn first_difference(found: &Array3<f32>, expected: &Array3<f32>) -> Option<String> {
    assert_eq!(found.dim(), expected.dim());
    let mut pairs = expected.indexed_iter().zip(found);
    pairs
        .find(|((_, expected), found)| expected.to_bits() != found.to_bits())
        .map(|((at, expected), found)| format!("{found:e} at {at:?}, expected {expected:e}"))
}
