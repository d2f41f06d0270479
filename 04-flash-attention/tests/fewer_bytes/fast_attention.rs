//! The fast mode of attention against its definition, place by place.

use crate::second_pass::{Case, Definition, case};
use flash_attention::tile_attention::KvType;
use naive_decode::numerics::{LANES, round_to_bf16};
use naive_decode::{Element, KvSize};
use ndarray::{Array3, s};
use proptest::prelude::*;

/// Numbers of a key in one block of a score.
const BLOCK: usize = 32;

/// Keys and values in BF16, `[slots, kv_heads, ..]`, met by queries and weights that are rounded to it.
struct Pairs {
    k: Array3<f32>,
    v: Array3<f32>,
}

/// The sum of products in blocks: even numbers are one chain, odd ones another.
fn blocks(numbers: &[(f32, f32)], block: usize) -> f32 {
    let chain = |block: &[(f32, f32)], first: usize| {
        let products = block.iter().skip(first).step_by(2);
        products.fold(0.0f32, |sum, (a, b)| a.mul_add(*b, sum))
    };
    numbers.chunks(block).fold(0.0, |sum, block| sum + (chain(block, 0) + chain(block, 1)))
}

impl Definition for Pairs {
    /// The scale is in the queries: they are rounded after it.
    fn score(&self, q: &[f32], scale: f32, kv_head: usize, slot: usize) -> f32 {
        let key = self.k.slice(s![slot, kv_head, ..]);
        let q = q.iter().map(|q| round_to_bf16(q * scale));
        let pairs: Vec<_> = q.zip(key.iter().copied()).collect();
        blocks(&pairs, BLOCK)
    }

    fn sum(&self, weights: &[(usize, f32)], kv_head: usize, column: usize) -> f32 {
        let value = |slot: usize| self.v[[slot, kv_head, column]];
        let pairs: Vec<_> =
            weights.iter().map(|&(slot, weight)| (round_to_bf16(weight), value(slot))).collect();
        blocks(&pairs, LANES)
    }
}

fn difference(mut case: Case) -> Option<String> {
    case.heads.key_dim = case.heads.key_dim.next_multiple_of(4);
    let (k, v) = case.keys_values();
    let (k, v) = (k.mapv_into(round_to_bf16), v.mapv_into(round_to_bf16));
    let definition = Pairs { k, v };
    case.difference(KvType::Bf16Fast, (definition.k.view(), definition.v.view()), &definition)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fast_attention_is_its_definition(case in case()) {
        prop_assert_eq!(difference(case), None);
    }
}

#[test]
fn keys_that_are_no_fours_are_refused_by_name() {
    let size = KvSize { heads: 1, key_dim: 6, value_dim: 8 };
    for kept in [KvType::Bf16Fast, KvType::Int8] {
        let said = kept.check(size).unwrap_err().to_string();
        assert!(said.contains(&format!("width of a head kept as {kept} is 6")), "{said}");
        assert!(said.contains("a multiple of 4"), "{said}");
    }
    KvType::Exact(Element::Bf16).check(size).unwrap();
}

#[test]
fn keys_too_wide_for_whole_numbers_are_refused_by_name() {
    let size = |key_dim| KvSize { heads: 1, key_dim, value_dim: 8 };
    KvType::Int8.check(size(1036)).unwrap();
    KvType::Bf16Fast.check(size(1040)).unwrap();
    let said = KvType::Int8.check(size(1040)).unwrap_err().to_string();
    assert!(
        said.contains("kept as int8 is 1040, expected a multiple of 4, at most 1036"),
        "{said}"
    );
}
