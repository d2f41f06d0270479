//! What a quantised cache holds of one sequence and layer, as attention reads it.

use super::cache::{Coded, QuantizedCache};
use crate::reading::Reading;
use kv_cache::{Place, Store};
use naive_decode::kernels::multiply_rows;
use naive_decode::numerics::LANES;
use ndarray::{ArrayView3, s};

/// Values that are brought from codes to numbers at a time.
const AT_ONCE: usize = 64;

/// Codes, rows waiting to be coded, and the rows of the pass at hand.
pub(super) struct Held<'a> {
    pub(super) cache: &'a QuantizedCache,
    pub(super) sequence: usize,
    pub(super) layer: usize,
    /// How many of the first tokens are seen as codes.
    pub(super) coded: Coded,
    /// Slot of the pass's first row, and those rows: `[rows, kv_heads, D]`, turned.
    pub(super) start: usize,
    pub(super) keys: ArrayView3<'a, f32>,
    pub(super) values: ArrayView3<'a, f32>,
}

impl Held<'_> {
    fn place(&self, kv_head: usize, slot: usize) -> Place {
        Place { sequence: self.sequence, layer: self.layer, kv_head, slot }
    }

    /// A key's numbers `[W]`, but for the factor that is returned.
    fn key(&self, kv_head: usize, place: usize, numbers: &mut [f32]) -> f32 {
        if place < self.coded.keys {
            let (codec, slab) = self.cache.key_codes();
            let head = (self.sequence, self.layer, kv_head);
            let tile = slab.tile(head, place / codec.tokens());
            return codec.numbers(tile, place % codec.tokens(), numbers);
        }
        let (row, rest) = numbers.split_at_mut(self.keys.dim().2);
        match place.checked_sub(self.start) {
            Some(fresh) => copy(self.keys, fresh, kv_head, row),
            None => self.cache.waiting().key(self.place(kv_head, self.cache.line(place)), row),
        }
        rest.fill(0.0);
        1.0
    }

    /// A value's numbers `[D]`, but for the factor that is returned.
    fn value(&self, kv_head: usize, place: usize, numbers: &mut [f32]) -> f32 {
        if place < self.coded.values {
            let (codec, slab) = self.cache.value_codes();
            let head = (self.sequence, self.layer, kv_head);
            let tile = slab.tile(head, place / codec.tokens());
            return codec.numbers(tile, place % codec.tokens(), numbers);
        }
        match place.checked_sub(self.start) {
            Some(fresh) => copy(self.values, fresh, kv_head, numbers),
            None => {
                self.cache.waiting().value(self.place(kv_head, self.cache.line(place)), numbers)
            }
        }
        1.0
    }
}

fn copy(rows: ArrayView3<f32>, row: usize, kv_head: usize, to: &mut [f32]) {
    to.iter_mut().zip(rows.slice(s![row, kv_head, ..])).for_each(|(to, from)| *to = *from);
}

impl Reading for Held<'_> {
    fn kv_heads(&self) -> usize {
        self.keys.dim().1
    }

    fn places(&self, _kv_head: usize) -> usize {
        self.start + self.keys.dim().0
    }

    // ANCHOR: scores
    /// Sixteen keys side by side, each as its codes' numbers; a scale meets the finished sum.
    fn scores(&self, kv_head: usize, query: &[f32], places: &[usize], scores: &mut [f32]) {
        let query = query.as_chunks::<1>().0;
        let mut panel = vec![[0.0; LANES]; query.len()];
        let mut numbers = vec![0.0; query.len()];
        for (places, scores) in places.chunks(LANES).zip(scores.chunks_mut(LANES)) {
            let mut factors = [0.0; LANES];
            for (lane, &place) in places.iter().enumerate() {
                factors[lane] = self.key(kv_head, place, &mut numbers);
                panel.iter_mut().zip(&numbers).for_each(|(lanes, &x)| lanes[lane] = x);
            }
            let mut sums = [[0.0; LANES]];
            multiply_rows(self.cache.isa(), query, &panel, &mut sums);
            let scaled = sums[0].iter().zip(factors).map(|(sum, factor)| sum * factor);
            scores.iter_mut().zip(scaled).for_each(|(score, scaled)| *score = scaled);
        }
    }
    // ANCHOR_END: scores

    /// Sixteen dimensions side by side; a scale meets the weight.
    fn add_values(&self, kv_head: usize, weights: &[f32], places: &[usize], sum: &mut [f32]) {
        let mut panels = vec![[[0.0; LANES]; AT_ONCE]; sum.len().div_ceil(LANES)];
        let mut numbers = vec![0.0; sum.len()];
        for (places, weights) in places.chunks(AT_ONCE).zip(weights.chunks(AT_ONCE)) {
            let mut scaled = [[0.0]; AT_ONCE];
            for (k, (&place, &weight)) in places.iter().zip(weights).enumerate() {
                scaled[k] = [weight * self.value(kv_head, place, &mut numbers)];
                for (panel, part) in panels.iter_mut().zip(numbers.chunks(LANES)) {
                    panel[k][..part.len()].copy_from_slice(part);
                }
            }
            let n = places.len();
            for (panel, sum) in panels.iter().zip(sum.chunks_mut(LANES)) {
                let mut sums = [[0.0; LANES]];
                sums[0][..sum.len()].copy_from_slice(sum);
                multiply_rows(self.cache.isa(), &scaled[..n], &panel[..n], &mut sums);
                sum.copy_from_slice(&sums[0][..sum.len()]);
            }
        }
    }
}
