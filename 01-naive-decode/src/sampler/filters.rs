//! The steps between logits and probabilities, each on its own.
//!
//! A score of -inf and a weight of 0 both mean "this token is out". Where tokens tie, the lower id
//! counts as the more probable one, so that no result depends on how a sort happens to work.

use crate::kernels::{self, Isa};
use crate::numerics::LANES;

/// Divides by the temperature, with the `largest` score moved to 0 first.
///
/// The move does not change the softmax, and without it a tiny temperature would overflow.
pub(super) fn temper(scores: &mut [f32], largest: f32, temperature: f32) {
    scores.iter_mut().for_each(|s| *s = (*s - largest) / temperature);
}

/// Keeps the `k` largest scores.
pub(super) fn keep_top_k(scores: &mut [f32], k: usize) {
    if k >= scores.len() {
        return;
    }
    let mut places: Vec<u64> = scores.iter().zip(0..).map(|(&s, id)| place(s, id)).collect();
    places.select_nth_unstable(k - 1);
    places[k..].iter().for_each(|&place| scores[id_at(place)] = f32::NEG_INFINITY);
}

/// Scores to weights: the numerators of the softmax.
///
/// [`numerics::exp`](crate::numerics::exp) rather than `f32::exp`, which calls the platform's library: another operating
/// system would round differently, and sooner or later draw another token.
pub(super) fn exponentials(scores: &mut [f32]) {
    kernels::exponentials(Isa::best(), scores);
}

// ANCHOR: top_p
/// Keeps the fewest largest weights whose sum reaches the fraction `p` of all; at least one.
pub(super) fn keep_top_p(weights: &mut [f32], p: f32) {
    if p >= 1.0 {
        return;
    }
    let all = total(weights);
    let enough = f64::from(p) * all;
    // One that stays and those after it, which are no heavier, weigh more than may be left out. So it weighs more than an even
    // share of that. Half a share leaves room for rounding. Few weigh so much, and only these are sorted.
    let least = (all - enough) / (2 * weights.len()) as f64;
    let mut places = heavier(weights, least);
    places.sort_unstable();
    let (mut sum, mut stay) = (0.0, Vec::new());
    for id in places.into_iter().map(id_at) {
        if sum >= enough {
            break;
        }
        sum += f64::from(weights[id]);
        stay.push((id, weights[id]));
    }
    weights.fill(0.0);
    stay.into_iter().for_each(|(id, weight)| weights[id] = weight);
}
// ANCHOR_END: top_p

/// The places of weights above `least`. Few are, so sixteen are looked at together first.
fn heavier(weights: &[f32], least: f64) -> Vec<u64> {
    let mut places = Vec::new();
    for (weights, first) in weights.chunks(LANES).zip((0..).step_by(LANES)) {
        if weights.iter().fold(false, |any, &weight| any | (f64::from(weight) > least)) {
            let heavy =
                weights.iter().zip(first..).filter(|(weight, _)| f64::from(**weight) > least);
            places.extend(heavy.map(|(&weight, id)| place(weight, id)));
        }
    }
    places
}

// ANCHOR: min_p
/// Keeps the weights that reach the fraction `min_p` of the largest.
pub(super) fn keep_min_p(weights: &mut [f32], min_p: f32) {
    if min_p == 0.0 {
        return;
    }
    let largest = weights.iter().copied().fold(0.0, f32::max);
    weights.iter_mut().filter(|w| **w < min_p * largest).for_each(|w| *w = 0.0);
}
// ANCHOR_END: min_p

/// Scales the weights so that they sum to 1, but for rounding.
pub(super) fn normalise(weights: &mut [f32]) {
    let total = total(weights);
    weights.iter_mut().for_each(|w| *w = (f64::from(*w) / total) as f32);
}

/// The sum, wide enough that a vocabulary's worth of rounding does not show; in as many interleaved partial sums as any other.
pub(super) fn total(weights: &[f32]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (whole, rest) = weights.as_chunks::<LANES>();
    for weights in whole {
        lanes.iter_mut().zip(weights).for_each(|(lane, &weight)| *lane += f64::from(weight));
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, &weight)| *lane += f64::from(weight));
    lanes.iter().sum()
}

/// Where a token stands among all: the larger its value, and then the lower its id, the smaller this number.
fn place(value: f32, id: u32) -> u64 {
    // With its bits below the sign turned over where it is negative, a float is in order as a whole number is.
    let bits = value.to_bits() as i32;
    let order = bits ^ (((bits >> 31) as u32) >> 1) as i32;
    let rising = order as u32 ^ 1 << 31;
    u64::from(!rising) << 32 | u64::from(id)
}

/// The id of the token that stands there.
fn id_at(place: u64) -> usize {
    place as u32 as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn more_probable_first(values: &[f32], a: usize, b: usize) -> Ordering {
        values[b].total_cmp(&values[a]).then(a.cmp(&b))
    }

    /// What top-k is: every token sorted, and those from the k-th on out.
    fn plain_top_k(scores: &mut [f32], k: usize) {
        let mut ids: Vec<usize> = (0..scores.len()).collect();
        ids.sort_by(|&a, &b| more_probable_first(scores, a, b));
        ids[k.min(ids.len())..].iter().for_each(|&id| scores[id] = f32::NEG_INFINITY);
    }

    /// What top-p is: every token sorted, and those after enough is reached out.
    fn plain_top_p(weights: &mut [f32], p: f32) {
        let enough = f64::from(p) * total(weights);
        let mut ids: Vec<usize> = (0..weights.len()).collect();
        ids.sort_by(|&a, &b| more_probable_first(weights, a, b));
        let mut sum_before = 0.0;
        for id in ids {
            let weight = weights[id];
            if sum_before >= enough {
                weights[id] = 0.0;
            }
            sum_before += f64::from(weight);
        }
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    /// Many that tie, zeros of both signs, some that are out.
    fn any_score() -> impl Strategy<Value = f32> {
        prop_oneof![Just(0.0), Just(-0.0), Just(-1.5), Just(f32::NEG_INFINITY), -9.0f32..9.0]
    }

    /// Many that tie, some that are out, some that hardly count.
    fn any_weight() -> impl Strategy<Value = f32> {
        prop_oneof![Just(0.0), Just(0.25), Just(0.5), 0.0f32..1.0, 0.0f32..1e-30]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 50, ..ProptestConfig::default() })]

        #[test]
        fn top_p_is_what_sorting_every_token_gives(
            weights in proptest::collection::vec(any_weight(), 1..3000),
            p in prop_oneof![Just(f32::MIN_POSITIVE), 0.0001f32..1.0, 0.999f32..1.0],
        ) {
            let (mut found, mut expected) = (weights.clone(), weights);
            keep_top_p(&mut found, p);
            plain_top_p(&mut expected, p);
            prop_assert_eq!(bits(&found), bits(&expected));
        }

        #[test]
        fn top_k_is_what_sorting_every_token_gives(
            scores in proptest::collection::vec(any_score(), 1..300),
            k in 1usize..310,
        ) {
            let (mut found, mut expected) = (scores.clone(), scores);
            keep_top_k(&mut found, k);
            plain_top_k(&mut expected, k);
            prop_assert_eq!(bits(&found), bits(&expected));
        }
    }
}
