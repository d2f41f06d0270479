//! Attention over caches whose keys and values are not there as plain numbers, or not all there.
//!
//! A quantised cache answers "how well does this query match those keys" from its codes, sixteen keys at
//! a time. A cache that holds some entries only, or reads some only, lays out what it holds once a pass. The
//! order of all sums is that of [`naive_decode::attend_span`], so that a cache that loses nothing gives the
//! same bits. What these caches save is bytes that are kept: each query reads for itself, also where several
//! share a head.

use naive_decode::kernels::softmax_weights;
use naive_decode::numerics::LANES;
use naive_decode::{Isa, LayerSpec, Partial, SPLIT, Span, Visible};
use ndarray::{ArrayView3, ArrayViewMut3, s};
use rayon::prelude::*;
use std::ops::Range;

/// What is kept of one sequence and one layer, as attention reads it.
///
/// Each head holds its entries in *places*, counted from 0. An entry's *slot* is its token's index in the
/// sequence; slots ascend with places, and a slot that was dropped is in no place.
pub trait Reading: Sync {
    /// Number of key-value heads.
    fn kv_heads(&self) -> usize;
    /// Places of a head.
    fn places(&self, kv_head: usize) -> usize;
    /// The slot in a place.
    fn slot(&self, _kv_head: usize, place: usize) -> usize {
        place
    }
    /// Dot products of a query with the keys in some places, ascending; one score each.
    fn scores(&self, kv_head: usize, query: &[f32], places: &[usize], scores: &mut [f32]);
    /// Adds to finished scores, in base 2, the logarithm of how many entries each place stands for.
    fn add_counts(&self, _kv_head: usize, _places: &[usize], _scores: &mut [f32]) {}
    /// Adds the values in some places, each times its weight, in order of place.
    fn add_values(&self, kv_head: usize, weights: &[f32], places: &[usize], sum: &mut [f32]);
}

/// How one query shared out its attention.
pub struct Attended<'a> {
    /// Row of the span.
    pub row: usize,
    /// Query head.
    pub head: usize,
    /// Key-value head that it read.
    pub kv_head: usize,
    /// Places it saw, ascending.
    pub places: &'a [usize],
    /// Its weight on each, 1 in all.
    pub weights: &'a [f32],
}

/// Attention of one span's rows: `q [rows, heads, D]` → `out [rows, heads, D_v]`. If somebody watches,
/// they are told of every query's weights, row by row and head by head.
pub fn attend_reading(
    isa: Isa,
    layer: LayerSpec,
    span: &Span,
    q: ArrayView3<f32>,
    reading: &impl Reading,
    mut out: ArrayViewMut3<f32>,
    watch: Option<&mut dyn FnMut(Attended)>,
) {
    let (rows, heads, _) = q.dim();
    let value_dim = out.dim().2;
    let group = heads / reading.kv_heads();
    let weights_wanted = watch.is_some();
    let answers: Vec<Answer> = (0..rows * heads)
        .into_par_iter()
        .map(|i| {
            let (row, head) = (i / heads, i % heads);
            let query = q.slice(s![row, head, ..]).to_vec();
            let first = span.sees[row].places(layer.window).start;
            let query = Query { isa, layer, query: &query, first };
            let seen = seen(reading, head / group, &span.sees[row], layer.window);
            query.meet(reading, head / group, seen, value_dim, weights_wanted)
        })
        .collect();
    for (i, answer) in answers.iter().enumerate() {
        let mut out = out.slice_mut(s![i / heads, i % heads, ..]);
        out.iter_mut().zip(&answer.values).for_each(|(to, from)| *to = *from);
    }
    if let Some(watch) = watch {
        for (i, Answer { seen: places, weights, .. }) in answers.iter().enumerate() {
            let (row, head) = (i / heads, i % heads);
            watch(Attended { row, head, kv_head: head / group, places, weights });
        }
    }
}

/// Places of a head whose slots a row may look at.
fn seen(
    reading: &impl Reading,
    kv_head: usize,
    sees: &Visible,
    window: Option<usize>,
) -> Vec<usize> {
    let first = sees.places(window).start;
    // A window counts the row's own line of slots, in which those of a draft tree stand without gaps.
    let in_line = |slot: usize| match sees.also.binary_search(&slot) {
        Ok(i) => sees.range.end + i,
        Err(_) => slot,
    };
    (0..reading.places(kv_head))
        .filter(|&place| {
            let slot = reading.slot(kv_head, place);
            sees.contains(slot) && in_line(slot) >= first
        })
        .collect()
}

struct Query<'a> {
    isa: Isa,
    layer: LayerSpec,
    query: &'a [f32],
    /// Where what it may see begins, in the row's line of slots.
    first: usize,
}

struct Answer {
    values: Vec<f32>,
    seen: Vec<usize>,
    /// Empty if nobody watches.
    weights: Vec<f32>,
}

impl Query<'_> {
    fn meet(
        &self,
        reading: &impl Reading,
        kv_head: usize,
        seen: Vec<usize>,
        value_dim: usize,
        weights_wanted: bool,
    ) -> Answer {
        let mut whole = Partial::empty(value_dim);
        // Of each split: its weights, and the maximum that they are relative to.
        let mut kept: Vec<(Vec<f32>, i32)> = Vec::new();
        for (lanes, places) in splits(self.first, &seen) {
            let mut tiles = vec![[0.0f32; LANES]; lanes.end.div_ceil(LANES)];
            let scores = &mut tiles.as_flattened_mut()[lanes.clone()];
            reading.scores(kv_head, self.query, places, scores);
            self.layer.score(self.isa, scores);
            reading.add_counts(kv_head, places, scores);
            let bit = |lane: usize| u16::from(lanes.contains(&lane)) << (lane % LANES);
            let mask = |first| (first..first + LANES).fold(0, |mask, lane| mask | bit(lane));
            let masks: Vec<u16> = (0..lanes.end).step_by(LANES).map(mask).collect();
            let mut part = Partial::empty(value_dim);
            (part.maximum, part.sum) = softmax_weights(self.isa, &mut tiles, &masks);
            let weights = &tiles.as_flattened()[lanes];
            reading.add_values(kv_head, weights, places, &mut part.values);
            if weights_wanted {
                kept.push((weights.to_vec(), part.maximum));
            }
            whole.join(&part);
        }
        let (maximum, sum) = (whole.maximum, whole.sum);
        let weights = kept
            .into_iter()
            .flat_map(|(weights, own)| {
                let factor =
                    naive_decode::numerics::power_of_two(own.saturating_sub(maximum)) / sum;
                weights.into_iter().map(move |weight| weight * factor)
            })
            .collect();
        Answer { values: whole.finish().collect(), seen, weights }
    }
}

/// What a row sees, split by split: the lanes that a part takes of its first tiles, and its places.
///
/// Both go by the row's line of slots, in which `first` is the first that it sees: a window may begin
/// late in a split, and in the middle of a tile.
fn splits(first: usize, seen: &[usize]) -> impl Iterator<Item = (Range<usize>, &[usize])> {
    let (begun, whole) = seen.split_at(seen.len().min(SPLIT - first % SPLIT));
    let begun = (first % LANES..first % LANES + begun.len(), begun);
    let whole = whole.chunks(SPLIT).map(|places| (0..places.len(), places));
    std::iter::once(begun).chain(whole).filter(|(_, places)| !places.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::{KeyValues, Want, attend_span};
    use ndarray::Array3;

    /// Plain numbers, `[slots, kv_heads, D]`.
    struct Plain {
        k: Array3<f32>,
        v: Array3<f32>,
    }

    impl Reading for Plain {
        fn kv_heads(&self) -> usize {
            self.k.dim().1
        }
        fn places(&self, _kv_head: usize) -> usize {
            self.k.dim().0
        }
        fn scores(&self, kv_head: usize, query: &[f32], places: &[usize], scores: &mut [f32]) {
            for (score, &place) in scores.iter_mut().zip(places) {
                let key = self.k.slice(s![place, kv_head, ..]);
                // One chain of fused multiply-adds, as in every kernel.
                *score = query.iter().zip(key).fold(0.0, |sum, (q, k)| q.mul_add(*k, sum));
            }
        }
        fn add_values(&self, kv_head: usize, weights: &[f32], places: &[usize], sum: &mut [f32]) {
            for (&weight, &place) in weights.iter().zip(places) {
                let value = self.v.slice(s![place, kv_head, ..]);
                sum.iter_mut().zip(value).for_each(|(sum, &v)| *sum = weight.mul_add(v, *sum));
            }
        }
    }

    impl KeyValues for Plain {
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

    fn noise(shape: (usize, usize, usize), seed: u32) -> Array3<f32> {
        let mut state = seed;
        Array3::from_shape_fn(shape, |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 22) as f32 - 2.0
        })
    }

    #[test]
    fn nothing_lost_is_the_same_bits_and_weights_add_up() {
        // Past one split of 512, with and without a window, which begins within a tile of lanes.
        for (held, rows, window) in [
            (0, 5, None),
            (500, 30, None),
            (1100, 3, None),
            (500, 30, Some(40)),
            (1100, 3, Some(530)),
        ] {
            let slots = held + rows;
            let plain = Plain { k: noise((slots, 2, 16), 1), v: noise((slots, 2, 8), 2) };
            let q = noise((rows, 6, 16), 3);
            let span = Span::new(0, held, &vec![0; rows], Want::Last);
            let layer = LayerSpec { index: 0, kv_layer: 0, window, scale: 0.25, score_cap: None };
            let mut expected = Array3::zeros((rows, 6, 8));
            attend_span(Isa::best(), layer, &span, q.view(), &plain, expected.view_mut());
            let mut found = Array3::zeros((rows, 6, 8));
            let mut queries = 0;
            let mut watch = |attended: Attended| {
                queries += 1;
                assert_eq!(attended.kv_head, attended.head / 3);
                let held = held + attended.row + 1;
                assert_eq!(attended.places.len(), window.map_or(held, |window| held.min(window)));
                assert!((attended.weights.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            };
            let out = found.view_mut();
            attend_reading(Isa::best(), layer, &span, q.view(), &plain, out, Some(&mut watch));
            assert_eq!(queries, rows * 6);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_window_counts_slots() {
        let plain = Plain { k: noise((40, 1, 4), 1), v: noise((40, 1, 4), 2) };
        let span = Span::new(0, 30, &[0; 10], Want::Last);
        let visible = |row: usize| seen(&plain, 0, &span.sees[row], Some(8));
        assert_eq!(visible(0), (23..31).collect::<Vec<_>>());
        assert_eq!(visible(9), (32..40).collect::<Vec<_>>());
        let branch = Visible { range: 0..20, also: vec![22, 25] };
        assert_eq!(seen(&plain, 0, &branch, Some(4)), [18, 19, 22, 25]);
    }
}
