//! FlashAttention in the loop order of its second version.

use crate::head::{Head, Tiling};
use crate::online::Online;
use crate::tiles::{runs, score_tile, tiles_by_split};
use crate::traffic::{Matrix, Slow, Traffic};
use naive_decode::Partial;
use ndarray::{Array2, ArrayView2};
use std::ops::Range;

/// How one query takes in one tile: the state, the head, the first place, scores `[n]`, values `[n, D_v]`.
pub(crate) type Step<'a> = &'a dyn Fn(&mut Online, &Head, usize, &[f32], ArrayView2<f32>);

/// Tiles of queries outside, tiles of keys and values inside; one division at the end (Dao 2023).
///
/// A query's state never leaves fast memory, and tiles of queries do not meet: threads take one each. Keys and
/// values are fetched once for each tile of queries. Tiles that none of them sees are not fetched.
pub fn flash_v2(head: &Head, tiling: Tiling, traffic: &Traffic) -> Array2<f32> {
    flash_v2_by(&Online::update, head, tiling, traffic)
}

// ANCHOR: v2
/// The same with a step of one's own.
pub(crate) fn flash_v2_by(
    step: Step,
    head: &Head,
    tiling: Tiling,
    traffic: &Traffic,
) -> Array2<f32> {
    let (queries, value_dim) = (head.queries.nrows(), head.values.ncols());
    let q = Slow::given(Matrix::Queries, head.queries, traffic);
    let k = Slow::given(Matrix::Keys, head.keys, traffic);
    let v = Slow::given(Matrix::Values, head.values, traffic);
    let mut answers = Slow::room(Matrix::Answers, (queries, value_dim), traffic);
    for rows in runs(queries, tiling.queries) {
        let q_tile = q.read_rows(rows.clone());
        let sees = &head.sees[rows.clone()];
        let mut whole: Vec<_> = rows.clone().map(|_| Partial::empty(value_dim)).collect();
        for tiles in tiles_by_split(head.keys.nrows(), tiling.keys) {
            let mut online = vec![Online::new(value_dim); rows.len()];
            for places in tiles.filter(|places| seen_by_any(sees, places)) {
                let (k_tile, v_tile) = (k.read_rows(places.clone()), v.read_rows(places.clone()));
                let scores = score_tile(head, q_tile.view(), sees, k_tile.view(), places.start);
                for (online, scores) in online.iter_mut().zip(scores.rows()) {
                    let scores = scores.to_slice().expect("rows are contiguous");
                    step(online, head, places.start, scores, v_tile.view());
                }
            }
            whole.iter_mut().zip(online).for_each(|(whole, part)| whole.join(&part.partial()));
        }
        let normalised: Vec<f32> = whole.iter().flat_map(Partial::finish).collect();
        let tile = Array2::from_shape_vec((rows.len(), value_dim), normalised);
        answers.write((rows.start, 0), tile.expect("one row for each query").view());
    }
    answers.into_numbers()
}
// ANCHOR_END: v2

/// Whether some query sees one of the places.
fn seen_by_any(sees: &[Range<usize>], places: &Range<usize>) -> bool {
    sees.iter().any(|seen| seen.start < places.end && places.start < seen.end)
}
