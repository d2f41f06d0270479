//! The steps between logits and probabilities, each on its own.
//!
//! A score of -inf and a weight of 0 both mean "this token is out". Where tokens tie, the lower id
//! counts as the more probable one, so that no result depends on how a sort happens to work.

use std::cmp::Ordering;

/// Tokens that [`keep_top_p`] sorts before it looks whether more are needed.
const FEW: usize = 256;

/// Divides by the temperature, with the largest score moved to 0 first.
///
/// The move does not change the softmax, and without it a tiny temperature would overflow.
pub(super) fn temper(scores: &mut [f32], temperature: f32) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|s| *s = (*s - largest) / temperature);
}

/// Keeps the `k` largest scores.
pub(super) fn keep_top_k(scores: &mut [f32], k: usize) {
    if k >= scores.len() {
        return;
    }
    let mut ids: Vec<usize> = (0..scores.len()).collect();
    ids.select_nth_unstable_by(k - 1, |&a, &b| more_probable_first(scores, a, b));
    ids[k..].iter().for_each(|&id| scores[id] = f32::NEG_INFINITY);
}

/// Scores to weights: the numerators of the softmax.
///
/// `libm` rather than `f32::exp`, which calls the platform's library: another operating system
/// would round differently, and sooner or later draw another token.
pub(super) fn exponentials(scores: &mut [f32]) {
    scores.iter_mut().for_each(|s| *s = libm::expf(*s));
}

// ANCHOR: top_p
/// Keeps the fewest largest weights whose sum reaches the fraction `p` of all; at least one.
///
/// Few tokens of a large vocabulary are enough, as a rule, so not all are sorted: a few of the largest, then eight
/// times as many, until they are enough.
pub(super) fn keep_top_p(weights: &mut [f32], p: f32) {
    if p >= 1.0 {
        return;
    }
    let enough = f64::from(p) * total(weights);
    let mut ids: Vec<usize> = (0..weights.len()).filter(|&id| weights[id] > 0.0).collect();
    let (mut sum, mut kept, mut sorted) = (0.0, 0, 0);
    while sum < enough && kept < ids.len() {
        if kept == sorted {
            sorted += sort_first(FEW.max(7 * sorted), &mut ids[sorted..], weights);
        }
        sum += f64::from(weights[ids[kept]]);
        kept += 1;
    }
    ids[kept..].iter().for_each(|&id| weights[id] = 0.0);
}
// ANCHOR_END: top_p

// ANCHOR: min_p
/// Keeps the weights that reach the fraction `min_p` of the largest.
pub(super) fn keep_min_p(weights: &mut [f32], min_p: f32) {
    let largest = weights.iter().copied().fold(0.0, f32::max);
    weights.iter_mut().filter(|w| **w < min_p * largest).for_each(|w| *w = 0.0);
}
// ANCHOR_END: min_p

/// Scales the weights so that they sum to 1.
pub(super) fn normalise(weights: &mut [f32]) {
    let total = total(weights);
    weights.iter_mut().for_each(|w| *w = (f64::from(*w) / total) as f32);
}

/// The sum in order of ids, wide enough that a vocabulary's worth of rounding does not show.
pub(super) fn total(weights: &[f32]) -> f64 {
    weights.iter().copied().map(f64::from).sum()
}

/// Moves the `count` most probable of these tokens to the front, in order, or all of them if they are no more; says how
/// many.
fn sort_first(count: usize, ids: &mut [usize], values: &[f32]) -> usize {
    let count = count.min(ids.len());
    if count < ids.len() {
        ids.select_nth_unstable_by(count, |&a, &b| more_probable_first(values, a, b));
    }
    ids[..count].sort_unstable_by(|&a, &b| more_probable_first(values, a, b));
    count
}

fn more_probable_first(values: &[f32], a: usize, b: usize) -> Ordering {
    values[b].total_cmp(&values[a]).then(a.cmp(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    /// Many that tie, some that are out, some that hardly count.
    fn any_weight() -> impl Strategy<Value = f32> {
        prop_oneof![Just(0.0), Just(0.25), Just(0.5), 0.0f32..1.0, 0.0f32..1e-30]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 50, ..ProptestConfig::default() })]

        #[test]
        fn top_p_is_what_sorting_every_token_gives(
            weights in proptest::collection::vec(any_weight(), 1..12 * FEW),
            p in prop_oneof![Just(f32::MIN_POSITIVE), 0.0001f32..1.0, 0.999f32..1.0],
        ) {
            let (mut found, mut expected) = (weights.clone(), weights);
            keep_top_p(&mut found, p);
            plain_top_p(&mut expected, p);
            let bits = |weights: &[f32]| -> Vec<u32> { weights.iter().map(|w| w.to_bits()).collect() };
            prop_assert_eq!(bits(&found), bits(&expected));
        }
    }
}
