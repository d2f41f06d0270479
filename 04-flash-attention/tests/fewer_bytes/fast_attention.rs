//! The fast mode of attention against its definition, place by place.

use crate::case::{Heads, first_difference, heads, held, layer, span};
use flash_attention::FlashCache;
use flash_attention::threads::Pool;
use flash_attention::tile_attention::KvType;
use naive_decode::kernels::{soft_cap, softmax_weights};
use naive_decode::numerics::{LANES, round_to_bf16};
use naive_decode::{Attention, Isa, KvSize, LayerSpec, Partial, Pass, SPLIT, Visible};
use ndarray::{Array3, ArrayView3, s};
use proptest::prelude::*;

/// Numbers of a key in one block of a score.
const BLOCK: usize = 32;

#[derive(Debug, Clone)]
struct Case {
    heads: Heads,
    /// Rows of the first pass.
    held: usize,
    rows: usize,
    window: Option<usize>,
    /// Seed of a draft tree.
    tree: Option<u64>,
    scale: f32,
    isa: usize,
    threads: usize,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let window = prop_oneof![2 => Just(None), 1 => (1usize..40).prop_map(Some)];
    let tree = prop_oneof![3 => Just(None), 1 => any::<u64>().prop_map(Some)];
    let scale = prop_oneof![Just(0.1f32), Just(1.0), Just(20.0)];
    let rest = (0usize..4, 1usize..4, any::<u64>());
    (heads(), held(), 1usize..40, window, tree, scale, rest).prop_map(
        |(mut heads, held, rows, window, tree, scale, (isa, threads, seed))| {
            heads.key_dim = heads.key_dim.next_multiple_of(4);
            Case { heads, held, rows, window, tree, scale, isa, threads, seed: seed / 8 }
        },
    )
}

/// The sum of products in blocks: even numbers are one chain, odd ones another.
fn blocks(sum: f32, numbers: &[(f32, f32)], block: usize) -> f32 {
    let chain = |block: &[(f32, f32)], first: usize| {
        let products = block.iter().skip(first).step_by(2);
        products.fold(0.0f32, |sum, (a, b)| a.mul_add(*b, sum))
    };
    numbers.chunks(block).fold(sum, |sum, block| sum + (chain(block, 0) + chain(block, 1)))
}

/// One query's answer: `q [D]`, keys and values of its head `[slots][..]`.
fn answer(
    layer: LayerSpec,
    sees: &Visible,
    q: &[f32],
    (k, v): (ArrayView3<f32>, ArrayView3<f32>),
    kv_head: usize,
) -> Vec<f32> {
    let scale = layer.scale * std::f32::consts::LOG2_E;
    let q: Vec<f32> = q.iter().map(|q| round_to_bf16(q * scale)).collect();
    let seen = sees.places(layer.window);
    let mut whole = Partial::empty(v.dim().2);
    for split in 0..seen.end.div_ceil(SPLIT) {
        let places = split * SPLIT..seen.end.min((split + 1) * SPLIT);
        let mut scores = vec![[0.0; LANES]; places.len().div_ceil(LANES)];
        let mut mask = vec![0u16; scores.len()];
        for (i, place) in places.clone().enumerate() {
            let key = k.slice(s![sees.slot(place), kv_head, ..]);
            let pairs: Vec<_> = q.iter().copied().zip(key.iter().copied()).collect();
            scores[i / LANES][i % LANES] = blocks(0.0, &pairs, BLOCK);
            mask[i / LANES] |= u16::from(seen.contains(&place)) << (i % LANES);
        }
        if let Some(cap) = layer.score_cap {
            let cap = cap * std::f32::consts::LOG2_E;
            soft_cap(Isa::SCALAR, scores.as_flattened_mut(), cap);
        }
        let (maximum, sum) = softmax_weights(Isa::SCALAR, &mut scores, &mask);
        let value = |column: usize| {
            let pairs: Vec<_> = places
                .clone()
                .zip(scores.as_flattened())
                .map(|(place, weight)| {
                    (round_to_bf16(*weight), v[[sees.slot(place), kv_head, column]])
                })
                .collect();
            blocks(0.0, &pairs, LANES)
        };
        whole.join(&Partial { maximum, sum, values: (0..v.dim().2).map(value).collect() });
    }
    whole.finish().collect()
}

impl Case {
    /// Answers of the second pass, and what they should be.
    fn both(&self) -> (Array3<f32>, Array3<f32>) {
        let Heads { kv_heads, group, key_dim, value_dim, absorbed } = self.heads;
        let (mut k, mut v) = self.heads.keys_values(self.seed, self.held + self.rows);
        k.mapv_inplace(round_to_bf16);
        v.mapv_inplace(round_to_bf16);
        let value_dim = if absorbed { 0 } else { value_dim };
        let size = KvSize { heads: kv_heads, key_dim, value_dim };
        let isa = Isa::available()[self.isa % Isa::available().len()];
        let capacity = self.held + self.rows;
        let mut cache = FlashCache::of_sizes(&[Some(size)], KvType::Bf16Fast, isa, capacity, 1)
            .on_threads(Pool::new(self.threads));
        let layer = layer(self.window, self.scale);
        let q = self.heads.queries(self.seed, self.rows);
        let mut attend = |span: naive_decode::Span, q: ArrayView3<f32>| {
            let rows = span.start..span.start + span.rows();
            let (k, v) = (k.slice(s![rows.clone(), .., ..]), v.slice(s![rows, .., ..]));
            let pass = Pass::one(span);
            cache.begin(&pass).unwrap();
            let found = cache.attend(layer, &pass, q, k, v).unwrap();
            cache.commit(&pass);
            found
        };
        if self.held > 0 {
            let none = Array3::zeros((self.held, kv_heads * group, key_dim));
            attend(span(0, 0, self.held, None), none.view());
        }
        let span = span(0, self.held, self.rows, self.tree);
        let found = attend(span.clone(), q.view());
        let mut expected = Array3::zeros(found.dim());
        for ((row, head, _), _) in q.slice(s![.., .., ..1]).indexed_iter() {
            let q = q.slice(s![row, head, ..]);
            let q = q.as_slice().unwrap();
            let kept = (k.view(), v.view());
            let answer = answer(layer, &span.sees[row], q, kept, head / group);
            let mut to = expected.slice_mut(s![row, head, ..]);
            to.iter_mut().zip(answer).for_each(|(to, number)| *to = number);
        }
        (found, expected)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fast_attention_is_its_definition(case in case()) {
        let (found, expected) = case.both();
        prop_assert_eq!(first_difference(&found, &expected), None);
    }
}

#[test]
fn keys_that_are_no_fours_are_refused_by_name() {
    let size = KvSize { heads: 1, key_dim: 6, value_dim: 8 };
    let said = KvType::Bf16Fast.check(size).unwrap_err().to_string();
    assert!(said.contains("width of a head kept as bf16-fast is 6"), "{said}");
    assert!(said.contains("a multiple of 4"), "{said}");
    KvType::Int8.check(size).unwrap();
}
