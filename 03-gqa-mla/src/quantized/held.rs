//! What a quantised cache holds of one sequence and layer, as attention reads it.

use super::codec::Codec;
use super::scheme::Coded;
use super::slab::Slab;
use super::waiting::Rows;
use crate::reading::Reading;
use naive_decode::Isa;
use naive_decode::kernels::multiply_rows;
use naive_decode::numerics::LANES;

/// Values that are brought from codes to numbers at a time.
const AT_ONCE: usize = 64;

/// Codes, and the rows that are not coded.
pub(super) struct Held<'a> {
    pub(super) isa: Isa,
    pub(super) keys: (&'a dyn Codec, &'a Slab),
    pub(super) values: (&'a dyn Codec, &'a Slab),
    /// How many of the first tokens are seen as codes.
    pub(super) coded: Coded,
    pub(super) rows: Rows<'a>,
}

impl Held<'_> {
    /// A key's numbers `[W]`, but for the factor that is returned.
    fn key(&self, kv_head: usize, place: usize, numbers: &mut [f32]) -> f32 {
        if place < self.coded.keys {
            return self.decode(self.keys, kv_head, place, numbers);
        }
        // A row as it is meets the query as it is: the first D of its W numbers.
        let (row, rest) = numbers.split_at_mut(self.rows.keys.dim().2);
        self.rows.key(kv_head, place, row);
        rest.fill(0.0);
        1.0
    }

    /// A value's numbers `[D]`, but for the factor that is returned.
    fn value(&self, kv_head: usize, place: usize, numbers: &mut [f32]) -> f32 {
        if place < self.coded.values {
            return self.decode(self.values, kv_head, place, numbers);
        }
        self.rows.value(kv_head, place, numbers);
        1.0
    }

    fn decode(
        &self,
        (codec, slab): (&dyn Codec, &Slab),
        kv_head: usize,
        place: usize,
        numbers: &mut [f32],
    ) -> f32 {
        let head = (self.rows.sequence, self.rows.layer, kv_head);
        let tile = slab.tile(head, place / codec.tokens());
        codec.numbers(tile, place % codec.tokens(), numbers)
    }
}

impl Reading for Held<'_> {
    fn kv_heads(&self) -> usize {
        self.rows.keys.dim().1
    }

    fn places(&self, _kv_head: usize) -> usize {
        self.rows.start + self.rows.keys.dim().0
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
            multiply_rows(self.isa, query, &panel, &mut sums);
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
                multiply_rows(self.isa, &scaled[..n], &panel[..n], &mut sums);
                sum.copy_from_slice(&sums[0][..sum.len()]);
            }
        }
    }
}
