//! Attention of few queries over a long past, shared out by split.

use crate::head::Head;
use crate::online::Online;
use crate::tiles::{integer_maximum, runs, score_tile};
use crate::traffic::{Matrix, Slow, Traffic};
use naive_decode::numerics::LANES;
use naive_decode::{Partial, SPLIT};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Flash-Decoding (Dao et al. 2023): the past is cut into splits, a worker takes some of them, and the
/// partial results are joined at the end.
///
/// `workers` shares the splits out; it cannot change a bit of the answer. Splits are fixed places of the text,
/// and their results are joined in order, whoever made them.
pub fn flash_decoding(head: &Head, workers: usize, traffic: &Traffic) -> Array2<f32> {
    by_splits(head, workers, traffic, &|scores, first, values| {
        let mut online = Online::new(head.values.ncols());
        online.update(head, first, scores, values);
        online.partial()
    })
}

/// How far above the unified maximum the largest score of a split may lie, in powers of two. Below it, the
/// smallest weights would be cut off earlier than they should; above it, sums would come near infinity.
pub const UNIFIED_RANGE: RangeInclusive<i32> = 0..=64;

// ANCHOR: unified
/// FlashDecoding++ (Hong et al. 2023): all splits use one maximum that is agreed beforehand, so none has to
/// be rescaled, and none waits for another's.
///
/// A split whose scores do not fit it is done again the usual way. The number of those is returned too. As any
/// maximum is only a power of two in every sum, the answers are the same bits, but for what is cut off as too small (see
/// [`Online::move_maximum`]) and for values so large that 2^64 of one are infinite.
pub fn unified_maximum(
    head: &Head,
    workers: usize,
    unified: i32,
    traffic: &Traffic,
) -> (Array2<f32>, usize) {
    let redone = AtomicUsize::new(0);
    let answers = by_splits(head, workers, traffic, &|scores, first, values| {
        let mut online = Online::new(head.values.ncols());
        online.maximum = unified;
        online.add(head, first, scores, values);
        let above = integer_maximum(scores).map(|max| max.saturating_sub(unified));
        if above.is_none_or(|above| UNIFIED_RANGE.contains(&above)) {
            return online.partial();
        }
        redone.fetch_add(1, Ordering::Relaxed);
        let mut online = Online::new(head.values.ncols());
        online.update(head, first, scores, values);
        online.partial()
    });
    (answers, redone.into_inner())
}
// ANCHOR_END: unified

/// One query's partial result over a split, from its scores, first place and values.
type Split<'a> = &'a (dyn Fn(&[f32], usize, ArrayView2<f32>) -> Partial + Sync);

fn by_splits(head: &Head, workers: usize, traffic: &Traffic, split: Split) -> Array2<f32> {
    let (queries, value_dim) = (head.queries.nrows(), head.values.ncols());
    let splits: Vec<Range<usize>> = runs(head.keys.nrows(), SPLIT).collect();
    let q = Slow::given(Matrix::Queries, head.queries, traffic);
    let k = Slow::given(Matrix::Keys, head.keys, traffic);
    let v = Slow::given(Matrix::Values, head.values, traffic);
    let bytes = size_of::<i32>() + (1 + value_dim) * size_of::<f32>();
    let of_split = |places: &Range<usize>| -> Vec<Partial> {
        let q = q.read_rows(0..queries);
        let (k, v) = (k.read_rows(places.clone()), v.read_rows(places.clone()));
        let scores = score_tile(head, q.view(), head.sees, k.view(), places.start);
        traffic.count_written(Matrix::Partials, queries * bytes);
        let rows = scores.rows().into_iter();
        rows.map(|row| split(row.to_slice().expect("rows are contiguous"), places.start, v.view()))
            .collect()
    };
    // ANCHOR: merge
    // Each worker takes neighbouring splits; the list that comes back is in order of split.
    let per_worker = splits.len().div_ceil(workers.max(1)).max(1);
    let parts: Vec<Vec<Partial>> =
        splits.par_chunks(per_worker).flat_map_iter(|own| own.iter().map(of_split)).collect();
    let mut answers = Slow::room(Matrix::Answers, (queries, value_dim), traffic);
    for query in 0..queries {
        let mut whole = Partial::empty(value_dim);
        for part in &parts {
            traffic.count_read(Matrix::Partials, bytes);
            whole.join(&part[query]);
        }
        let answer = Array2::from_shape_vec((1, value_dim), whole.finish().collect());
        answers.write((query, 0), answer.expect("one row").view());
    }
    // ANCHOR_END: merge
    answers.into_numbers()
}

const _: () = assert!(SPLIT.is_multiple_of(LANES), "a split begins in lane 0");
