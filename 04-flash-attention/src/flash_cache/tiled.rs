//! Keys and values of one layer, as the kernels read them.

use super::element::TileElement;
use super::run::Run;
use naive_decode::numerics::LANES;
use naive_decode::{KvSize, Visible};
use ndarray::{ArrayView2, ArrayView3, Axis};
use std::ops::Range;

// ANCHOR: layout
/// Keys in tiles whose lanes are positions, values position by position.
///
/// Keys: `[sequences][kv_heads][capacity / 16][D][16 positions]`. A tile is a panel whose outputs are
/// sixteen scores, so the kernel reads keys straight forward, and no lane adds to its neighbour.
/// Values: `[sequences][kv_heads][capacity][width]`, where `width` is `D_v` filled up to whole
/// registers; nothing if a value is the beginning of its key.
pub(super) struct Tiled<E> {
    size: KvSize,
    /// Tiles of one head.
    tiles: usize,
    width: usize,
    keys: Vec<[E; LANES]>,
    values: Vec<E>,
}
// ANCHOR_END: layout

impl<E: TileElement> Tiled<E> {
    pub(super) fn new(size: KvSize, capacity: usize, sequences: usize) -> Self {
        let tiles = capacity.div_ceil(LANES);
        let width = size.value_dim.next_multiple_of(LANES);
        let heads = sequences * size.heads;
        let keys = vec![[E::default(); LANES]; heads * tiles * size.key_dim];
        let values = vec![E::default(); heads * tiles * LANES * width];
        Tiled { size, tiles, width, keys, values }
    }

    pub(super) fn kv_heads(&self) -> usize {
        self.size.heads
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        size_of_val(self.keys.as_slice()) + size_of_val(self.values.as_slice())
    }

    /// Keeps the rows of a span from slot `start` on: `k [rows, kv_heads, D]`,
    /// `v [rows, kv_heads, D_v]`.
    pub(super) fn write(
        &mut self,
        sequence: usize,
        start: usize,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) {
        for kv_head in 0..self.size.heads {
            let head = sequence * self.size.heads + kv_head;
            self.write_keys(head, start, k.index_axis(Axis(1), kv_head));
            if self.width > 0 {
                self.write_values(head, start, v.index_axis(Axis(1), kv_head));
            }
        }
    }

    /// `k [rows, D]` goes to columns of tiles, tile by tile.
    fn write_keys(&mut self, head: usize, start: usize, k: ArrayView2<f32>) {
        let dim = self.size.key_dim;
        let (mut row, end) = (0, k.nrows());
        while row < end {
            let (tile, lane) = ((start + row) / LANES, (start + row) % LANES);
            let rows = row..end.min(row + LANES - lane);
            let tile = &mut self.keys[(head * self.tiles + tile) * dim..][..dim];
            for (lanes, k) in tile.iter_mut().zip(k.columns()) {
                for (to, row) in lanes[lane..].iter_mut().zip(rows.clone()) {
                    *to = E::narrow(k[row]);
                }
            }
            row = rows.end;
        }
    }

    fn write_values(&mut self, head: usize, start: usize, v: ArrayView2<f32>) {
        let first = (head * self.tiles * LANES + start) * self.width;
        let kept = self.values[first..].chunks_exact_mut(self.width);
        for (kept, v) in kept.zip(v.rows()) {
            kept.iter_mut().zip(v).for_each(|(to, &from)| *to = E::narrow(from));
        }
    }

    /// One head's keys and values, where they are kept.
    pub(super) fn head(&self, sequence: usize, kv_head: usize) -> Run<'_, E> {
        let head = sequence * self.size.heads + kv_head;
        let (tiles, values) = (self.tiles * self.size.key_dim, self.tiles * LANES * self.width);
        Run {
            first: 0,
            keys: &self.keys[head * tiles..][..tiles],
            values: &self.values[head * values..][..values],
            key_dim: self.size.key_dim,
            width: self.width,
        }
    }

    /// The end of a draft tree's line of slots, copied: the places that do not stand where their slots
    /// do, and those that share a tile with them.
    pub(super) fn branch(&self, sequence: usize, kv_head: usize, sees: &Visible) -> Branch<E> {
        let whole = self.head(sequence, kv_head);
        let places = branch_start(sees)..sees.range.end + sees.also.len();
        let dim = self.size.key_dim;
        let mut keys = vec![[E::default(); LANES]; places.len().div_ceil(LANES) * dim];
        let mut values = Vec::with_capacity(places.len() * self.width);
        for (i, slot) in places.clone().map(|place| sees.slot(place)).enumerate() {
            let from = &whole.keys[slot / LANES * dim..][..dim];
            let to = &mut keys[i / LANES * dim..][..dim];
            to.iter_mut().zip(from).for_each(|(to, from)| to[i % LANES] = from[slot % LANES]);
            values.extend_from_slice(&whole.values[slot * self.width..][..self.width]);
        }
        Branch { places, keys, values }
    }
}

/// First place of the tile in which a row's line of slots leaves the slots' own order.
fn branch_start(sees: &Visible) -> usize {
    sees.range.end / LANES * LANES
}

/// Keys and values of some last places of a line of slots.
pub(super) struct Branch<E> {
    places: Range<usize>,
    keys: Vec<[E; LANES]>,
    values: Vec<E>,
}

impl<E: TileElement> Branch<E> {
    /// The line as two runs: what stands where it is kept, and the copied end.
    pub(super) fn line<'a>(&'a self, whole: Run<'a, E>) -> [Run<'a, E>; 2] {
        let Run { key_dim, width, .. } = whole;
        let first = self.places.start;
        let before = Run {
            keys: &whole.keys[..first / LANES * key_dim],
            values: &whole.values[..first * width],
            ..whole
        };
        [before, Run { first, keys: &self.keys, values: &self.values, key_dim, width }]
    }
}
