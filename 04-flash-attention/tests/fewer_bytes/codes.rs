//! Attention over INT8 keys and values against its definition, place by place.

use crate::case::numbers;
use crate::second_pass::{Case, Definition, case};
use flash_attention::tile_attention::KvType;
use ndarray::{Array3, ArrayView3, Axis, s};
use proptest::prelude::*;

/// Codes `[slots, kv_heads, ..]`, each row's to be multiplied by its scale `[slots, kv_heads, 1]`.
struct Codes {
    codes: Array3<f32>,
    scales: Array3<f32>,
}

impl Codes {
    fn of(rows: ArrayView3<f32>) -> Self {
        let scale = |row: ndarray::ArrayView1<f32>| {
            let largest = row.fold(0.0f32, |most, x| most.max(x.abs()));
            if largest >= 1e-30 { largest / 127.0 } else { 1.0 }
        };
        let scales = rows.map_axis(Axis(2), scale).insert_axis(Axis(2));
        Codes { codes: (&rows / &scales).mapv_into(f32::round), scales }
    }
}

struct Kept {
    k: Codes,
    v: Codes,
}

/// Numbers as steps of one scale, at most 16,319 of them; where all are next to nothing, none. Gives the scale, too.
fn steps(numbers: impl Iterator<Item = f32> + Clone) -> (Vec<i64>, f32) {
    const MOST: f32 = 16_319.0;
    let largest = numbers.clone().fold(0.0f32, |most, x| most.max(x.abs()));
    if largest < 1e-30 {
        return (numbers.map(|_| 0).collect(), 0.0);
    }
    let by = MOST / largest;
    (numbers.map(|x| (x * by).round_ties_even() as i64).collect(), largest * (1.0 / MOST))
}

/// The sum of steps times codes, before it is rounded.
fn products(steps: &[i64], codes: impl Iterator<Item = f32>) -> f32 {
    let whole: i64 = steps.iter().zip(codes).map(|(steps, code)| steps * code as i64).sum();
    whole as f32
}

impl Definition for Kept {
    /// A whole number, times the query's scale and that of scores, times the key's.
    fn score(&self, q: &[f32], scale: f32, kv_head: usize, slot: usize) -> f32 {
        let key = self.k.codes.slice(s![slot, kv_head, ..]);
        let (steps, own) = steps(q.iter().copied());
        products(&steps, key.iter().copied()) * (own * scale) * self.k.scales[[slot, kv_head, 0]]
    }

    /// Weights are multiplied by their values' scales, and then have one of their own.
    fn sum(&self, weights: &[(usize, f32)], kv_head: usize, column: usize) -> f32 {
        let scaled = |&(slot, weight): &(usize, f32)| weight * self.v.scales[[slot, kv_head, 0]];
        let (steps, own) = steps(weights.iter().map(scaled));
        let codes = weights.iter().map(|&(slot, _)| self.v.codes[[slot, kv_head, column]]);
        products(&steps, codes) * own
    }
}

fn difference(mut case: Case) -> Option<String> {
    case.heads.key_dim = case.heads.key_dim.next_multiple_of(4);
    let (mut k, mut v) = case.keys_values();
    // Keys and values of many sizes, so that no scale can stand for another.
    let (slots, kv_heads, _) = k.dim();
    let sizes = |seed| numbers(seed, (slots, kv_heads, 1)).mapv_into(|size| (4.0 * size).exp2());
    k *= &sizes(3 * case.seed + 1);
    v *= &sizes(3 * case.seed + if case.heads.absorbed { 1 } else { 2 });
    let of_keys = Codes::of(k.view());
    // A value that is the beginning of its key has its key's codes and scale.
    let of_values = match case.heads.absorbed {
        true => Codes { codes: of_keys.codes.clone(), scales: of_keys.scales.clone() },
        false => Codes::of(v.view()),
    };
    let kept = Kept { k: of_keys, v: of_values };
    case.difference(KvType::Int8, (k.view(), v.view()), &kept)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn attention_over_codes_is_its_definition(case in case()) {
        prop_assert_eq!(difference(case), None);
    }
}
