//! What happens to a tile once it is in fast memory. Every form of attention here is built of these.

use crate::head::Head;
use naive_decode::SPLIT;
use naive_decode::kernels::{multiply_rows, soft_cap};
use naive_decode::numerics::{LANES, exp2_parts, power_of_two, to_int};
use ndarray::{Array2, ArrayView2};
use std::ops::Range;

/// Base-2 scores of a tile of queries `[q, D]` against a tile of keys `[n, D]` whose first place is
/// `first`: `[q, n]`. What a query does not see scores minus infinity.
pub(crate) fn score_tile(
    head: &Head,
    queries: ArrayView2<f32>,
    sees: &[Range<usize>],
    keys: ArrayView2<f32>,
    first: usize,
) -> Array2<f32> {
    let mut scores = Array2::zeros((queries.nrows(), keys.nrows()));
    for panel_start in (0..keys.nrows()).step_by(LANES) {
        let lanes = panel_start..(panel_start + LANES).min(keys.nrows());
        // [D][16]: lanes are places, so that each score is one chain over D.
        let mut panel = vec![[0.0; LANES]; keys.ncols()];
        for (lane, place) in lanes.clone().enumerate() {
            panel.iter_mut().zip(keys.row(place)).for_each(|(to, &key)| to[lane] = key);
        }
        for (query, mut scores) in queries.rows().into_iter().zip(scores.rows_mut()) {
            let query: Vec<[f32; 1]> = query.iter().map(|&q| [q]).collect();
            let mut sums = [[0.0; LANES]];
            multiply_rows(head.isa, &query, &panel, &mut sums);
            sums[0].iter_mut().for_each(|sum| *sum *= head.scale);
            if let Some(cap) = head.cap {
                soft_cap(head.isa, &mut sums[0], cap);
            }
            lanes.clone().zip(sums[0]).for_each(|(place, sum)| scores[place] = sum);
        }
    }
    for (mut scores, seen) in scores.rows_mut().into_iter().zip(sees) {
        for (place, score) in (first..).zip(&mut scores) {
            if !seen.contains(&place) {
                *score = f32::NEG_INFINITY;
            }
        }
    }
    scores
}

// ANCHOR: weight
/// The softmax weight of a base-2 score, relative to `2^maximum`.
pub(crate) fn weight(score: f32, maximum: i32) -> f32 {
    if score == f32::NEG_INFINITY {
        return 0.0;
    }
    let (p, i) = exp2_parts(score);
    p * power_of_two(i.saturating_sub(maximum))
}

/// `floor` of the largest score; none if nothing is seen.
pub(crate) fn integer_maximum<'a>(scores: impl IntoIterator<Item = &'a f32>) -> Option<i32> {
    let high = scores.into_iter().fold(f32::NEG_INFINITY, |high, &score| high.max(score));
    (high > f32::NEG_INFINITY).then(|| to_int(high.floor()))
}
// ANCHOR_END: weight

/// Adds weighted values `[n, D_v]` to a sum `[D_v]`, in order of place.
pub(crate) fn add_values(head: &Head, weights: &[f32], values: ArrayView2<f32>, sum: &mut [f32]) {
    let (weights, _) = weights.as_chunks::<1>();
    for (panel_index, sum) in sum.chunks_mut(LANES).enumerate() {
        // [n][16]: lanes are dimensions.
        let columns = panel_index * LANES..panel_index * LANES + sum.len();
        let mut panel = vec![[0.0; LANES]; values.nrows()];
        for (to, value) in panel.iter_mut().zip(values.rows()) {
            to.iter_mut().zip(columns.clone()).for_each(|(to, column)| *to = value[column]);
        }
        let mut sums = [[0.0; LANES]];
        sums[0][..sum.len()].copy_from_slice(sum);
        multiply_rows(head.isa, weights, &panel, &mut sums);
        sum.copy_from_slice(&sums[0][..sum.len()]);
    }
}

/// Places `0..places` cut into splits, each cut into tiles of at most `size`.
pub(crate) fn tiles_by_split(
    places: usize,
    size: usize,
) -> impl Iterator<Item = impl Iterator<Item = Range<usize>>> {
    (0..places).step_by(SPLIT).map(move |start| {
        let end = (start + SPLIT).min(places);
        (start..end).step_by(size).map(move |first| first..(first + size).min(end))
    })
}

/// `0..count` in runs of at most `size`.
pub(crate) fn runs(count: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(size).map(move |first| first..(first + size).min(count))
}
