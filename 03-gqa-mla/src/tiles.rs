//! Keys and values of one layer laid out for the inner loop, whatever slots they are of.

use crate::reading::Reading;
use naive_decode::Isa;
use naive_decode::kernels::multiply_rows;
use naive_decode::numerics::LANES;
use std::ops::Range;

/// One sequence and layer, copied out of wherever it is kept, once for all queries of a pass.
pub(crate) struct Tiles {
    pub(crate) isa: Isa,
    /// One for each key-value head.
    pub(crate) heads: Vec<Tiled>,
}

/// One head's entries.
pub(crate) struct Tiled {
    /// Slot of each place.
    slots: Vec<usize>,
    key_dim: usize,
    /// `[places / 16][D][16 places]`: a tile of keys is a panel whose outputs are scores.
    keys: Vec<[f32; LANES]>,
    /// `[D_v / 16][places][16 dims]`: a panel whose inputs are weights.
    values: Vec<[f32; LANES]>,
}

impl Tiled {
    /// Room for entries of these slots, keys and values `[D]`, `[D_v]` still zero.
    pub(crate) fn new(slots: Vec<usize>, key_dim: usize, value_dim: usize) -> Self {
        let keys = vec![[0.0; LANES]; slots.len().div_ceil(LANES) * key_dim];
        let values = vec![[0.0; LANES]; value_dim.div_ceil(LANES) * slots.len()];
        Tiled { slots, key_dim, keys, values }
    }

    /// Puts an entry in its place: `key [D]`, `value [D_v]`.
    pub(crate) fn put(&mut self, place: usize, key: &[f32], value: &[f32]) {
        let tile = &mut self.keys[place / LANES * self.key_dim..][..self.key_dim];
        tile.iter_mut().zip(key).for_each(|(lanes, &v)| lanes[place % LANES] = v);
        for (panel, part) in value.chunks(LANES).enumerate() {
            self.values[panel * self.slots.len() + place][..part.len()].copy_from_slice(part);
        }
    }

    /// A panel of the keys in up to sixteen places, `[D][16]`.
    fn gather_keys(&self, places: &[usize]) -> Vec<[f32; LANES]> {
        let mut panel = vec![[0.0; LANES]; self.key_dim];
        for (lane, place) in places.iter().enumerate() {
            let tile = &self.keys[place / LANES * self.key_dim..][..self.key_dim];
            panel.iter_mut().zip(tile).for_each(|(to, from)| to[lane] = from[place % LANES]);
        }
        panel
    }

    /// Dot products of a query `[D]` with the keys in some places.
    pub(crate) fn scores(&self, isa: Isa, query: &[f32], places: &[usize], scores: &mut [f32]) {
        let (query, _) = query.as_chunks::<1>();
        for (places, scores) in places.chunks(LANES).zip(scores.chunks_mut(LANES)) {
            let mut sums = [[0.0; LANES]];
            match run(places) {
                // A whole tile, or the beginning of one: the lanes behind are not looked at.
                Some(run) if run.start % LANES == 0 => {
                    let tile = &self.keys[run.start / LANES * self.key_dim..][..self.key_dim];
                    multiply_rows(isa, query, tile, &mut sums);
                }
                _ => multiply_rows(isa, query, &self.gather_keys(places), &mut sums),
            }
            scores.copy_from_slice(&sums[0][..scores.len()]);
        }
    }

    /// Adds the values in some places, each times its weight, to `sum [D_v]`.
    pub(crate) fn add_values(&self, isa: Isa, weights: &[f32], places: &[usize], sum: &mut [f32]) {
        let (weights, _) = weights.as_chunks::<1>();
        for (panel, sum) in self.values.chunks(self.slots.len()).zip(sum.chunks_mut(LANES)) {
            let mut sums = [[0.0; LANES]];
            sums[0][..sum.len()].copy_from_slice(sum);
            match run(places) {
                Some(run) => multiply_rows(isa, weights, &panel[run], &mut sums),
                None => {
                    let gathered: Vec<_> = places.iter().map(|&place| panel[place]).collect();
                    multiply_rows(isa, weights, &gathered, &mut sums);
                }
            }
            sum.copy_from_slice(&sums[0][..sum.len()]);
        }
    }
}

impl Reading for Tiles {
    fn kv_heads(&self) -> usize {
        self.heads.len()
    }

    fn places(&self, kv_head: usize) -> usize {
        self.heads[kv_head].slots.len()
    }

    fn slot(&self, kv_head: usize, place: usize) -> usize {
        self.heads[kv_head].slots[place]
    }

    fn scores(&self, kv_head: usize, query: &[f32], places: &[usize], scores: &mut [f32]) {
        self.heads[kv_head].scores(self.isa, query, places, scores);
    }

    fn add_values(&self, kv_head: usize, weights: &[f32], places: &[usize], sum: &mut [f32]) {
        self.heads[kv_head].add_values(self.isa, weights, places, sum);
    }
}

/// Places as one range, if each follows the one before it.
fn run(places: &[usize]) -> Option<Range<usize>> {
    let (first, last) = (*places.first()?, *places.last()?);
    places.is_sorted_by(|a, b| a + 1 == *b).then_some(first..last + 1)
}
