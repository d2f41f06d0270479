//! Attention as the formula is written: all scores, all weights, all answers.

use crate::head::Head;
use crate::tiles::{add_values, integer_maximum, runs, score_tile, weight};
use crate::traffic::{Matrix, Slow, Traffic};
use naive_decode::numerics::interleaved_sum;
use naive_decode::{Partial, SPLIT};
use ndarray::{Array2, ArrayView2};

// ANCHOR: standard
/// Three passes over slow memory. The matrices between them, `[queries, places]`, are written out and read
/// back: for a text of 4,096 tokens, 16.8 million scores for each head.
pub fn standard(head: &Head, traffic: &Traffic) -> Array2<f32> {
    let (queries, places) = (head.queries.nrows(), head.keys.nrows());
    let mut scores = Slow::room(Matrix::Scores, (queries, places), traffic);
    let mut weights = Slow::room(Matrix::Weights, (queries, places), traffic);
    let mut answers = Slow::room(Matrix::Answers, (queries, head.values.ncols()), traffic);

    let q = Slow::given(Matrix::Queries, head.queries, traffic).read_rows(0..queries);
    let k = Slow::given(Matrix::Keys, head.keys, traffic).read_rows(0..places);
    scores.write((0, 0), score_tile(head, q.view(), head.sees, k.view(), 0).view());

    let maxima = softmax(scores.read_rows(0..queries), &mut weights);

    let weights = weights.read_rows(0..queries);
    let v = Slow::given(Matrix::Values, head.values, traffic).read_rows(0..places);
    for (query, (weights, maxima)) in weights.outer_iter().zip(maxima).enumerate() {
        let weights = weights.to_vec();
        let whole = weigh(head, &weights, &maxima, v.view());
        let answer: Vec<f32> = whole.finish().collect();
        let answer = ArrayView2::from_shape((1, answer.len()), &answer).expect("one row");
        answers.write((query, 0), answer);
    }
    answers.into_numbers()
}
// ANCHOR_END: standard

/// Writes each query's weights, relative to the largest score of its split; returns those maxima,
/// `[queries][splits]`. They are the few numbers that are left in fast memory.
fn softmax(scores: Array2<f32>, weights: &mut Slow) -> Vec<Vec<Option<i32>>> {
    let mut maxima = Vec::with_capacity(scores.nrows());
    let mut softmaxed = scores;
    for mut row in softmaxed.rows_mut() {
        let row = row.as_slice_mut().expect("rows are contiguous");
        maxima.push(row.chunks(SPLIT).map(integer_maximum).collect::<Vec<_>>());
        for (split, maximum) in row.chunks_mut(SPLIT).zip(&maxima[maxima.len() - 1]) {
            split.iter_mut().for_each(|s| *s = weight(*s, maximum.unwrap_or(0)));
        }
    }
    weights.write((0, 0), softmaxed.view());
    maxima
}

/// One query's weighted values, split by split.
fn weigh(head: &Head, weights: &[f32], maxima: &[Option<i32>], values: ArrayView2<f32>) -> Partial {
    let mut whole = Partial::empty(values.ncols());
    for (places, maximum) in runs(weights.len(), SPLIT).zip(maxima) {
        let Some(maximum) = *maximum else { continue };
        let weights = &weights[places.clone()];
        let mut part = Partial::empty(values.ncols());
        (part.maximum, part.sum) = (maximum, interleaved_sum(weights.iter().copied()));
        let values = values.slice(ndarray::s![places, ..]);
        add_values(head, weights, values, &mut part.values);
        whole.join(&part);
    }
    whole
}
