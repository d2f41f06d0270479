//! Keys and values of one layer in one stretch of memory.

use crate::LargePages;
use crate::tile_attention::{Gathered, Run, TileElement, TileSource, put_key, put_value};
use naive_decode::numerics::LANES;
use naive_decode::{Error, KvSize, Result};
use ndarray::{ArrayView1, ArrayView3};

// ANCHOR: layout
/// Keys in tiles whose lanes are positions, values position by position. Where instructions take two or four numbers
/// together, so many neighbours of a key lie beside each other, and so many positions' numbers of a column.
///
/// Keys: `[sequences][kv_heads][capacity / 16][D][16 positions]`. A tile is a panel whose outputs are
/// sixteen scores, so the kernel reads keys straight forward, and no lane adds to its neighbour.
/// Values: `[sequences][kv_heads][capacity][width]`, where `width` is `D_v` filled up to whole
/// registers; nothing if a value is the beginning of its key. Scales, where numbers are codes:
/// `[sequences][kv_heads][capacity]`.
pub(super) struct Tiled<E> {
    size: KvSize,
    /// Tiles of one head.
    tiles: usize,
    width: usize,
    keys: LargePages<[E; LANES]>,
    values: LargePages<E>,
    key_scales: LargePages<f32>,
    value_scales: LargePages<f32>,
}
// ANCHOR_END: layout

impl<E: TileElement> Tiled<E> {
    /// Room for so many sequences of `capacity` tokens each.
    ///
    /// # Errors
    /// If the system does not give that much memory.
    pub(super) fn new(size: KvSize, capacity: usize, sequences: usize) -> Result<Self> {
        let tiles = capacity.div_ceil(LANES);
        let width = size.value_dim.next_multiple_of(LANES);
        // More than can be counted is more than there is.
        let all_tiles = sequences.saturating_mul(size.heads).saturating_mul(tiles);
        let slots = all_tiles.saturating_mul(LANES);
        let refused = || {
            let asked = format!("{sequences} of {capacity} tokens");
            Error::invalid("sequences of a cache", asked, "no more than the system has memory for")
        };
        let scales = |kept: bool| LargePages::new(if E::SCALED && kept { slots } else { 0 });
        Ok(Tiled {
            size,
            tiles,
            width,
            keys: LargePages::new(all_tiles.saturating_mul(size.key_dim)).ok_or_else(refused)?,
            values: LargePages::new(slots.saturating_mul(width)).ok_or_else(refused)?,
            key_scales: scales(true).ok_or_else(refused)?,
            value_scales: scales(width > 0).ok_or_else(refused)?,
        })
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let scales = size_of_val(&self.key_scales[..]) + size_of_val(&self.value_scales[..]);
        size_of_val(&self.keys[..]) + size_of_val(&self.values[..]) + scales
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
        for (slot, (k, v)) in (start..).zip(k.outer_iter().zip(v.outer_iter())) {
            for (kv_head, (k, v)) in k.outer_iter().zip(v.outer_iter()).enumerate() {
                let head = sequence * self.size.heads + kv_head;
                self.write_key(head, slot, k);
                if self.width > 0 {
                    self.write_value(head, slot, v);
                }
            }
        }
    }

    /// A key `[D]` is one lane of its tile.
    fn write_key(&mut self, head: usize, slot: usize, k: ArrayView1<f32>) {
        let dim = self.size.key_dim;
        let tile = &mut self.keys[(head * self.tiles + slot / LANES) * dim..][..dim];
        let scale = put_key(tile.as_flattened_mut(), LANES, slot % LANES, k);
        if E::SCALED {
            self.key_scales[head * self.tiles * LANES + slot] = scale;
        }
    }

    fn write_value(&mut self, head: usize, slot: usize, v: ArrayView1<f32>) {
        let first = head * self.tiles * LANES;
        let kept = &mut self.values[first * self.width..][..self.tiles * LANES * self.width];
        let scale = put_value(kept, LANES, self.width, slot, v);
        if E::SCALED {
            self.value_scales[first + slot] = scale;
        }
    }
}

impl<E: TileElement> TileSource for Tiled<E> {
    type Element = E;

    fn size(&self) -> KvSize {
        self.size
    }

    fn has_whole_tiles(&self) -> bool {
        true
    }

    /// One head's keys and values, all of them.
    fn run(&self, sequence: usize, kv_head: usize, _slot: usize) -> Run<'_, E> {
        let head = sequence * self.size.heads + kv_head;
        let slots = self.tiles * LANES;
        let keys = self.tiles * self.size.key_dim;
        // A value that is the beginning of its key has its key's scale.
        let value_scales = if self.width > 0 { &self.value_scales } else { &self.key_scales };
        let scales = if E::SCALED { head * slots..(head + 1) * slots } else { 0..0 };
        Run {
            first: 0,
            end: slots,
            keys: &self.keys[head * keys..][..keys],
            values: &self.values[head * slots * self.width..][..slots * self.width],
            key_scales: &self.key_scales[scales.clone()],
            value_scales: &value_scales[scales],
            key_dim: self.size.key_dim,
            width: self.width,
        }
    }

    fn gather(&self, sequence: usize, kv_head: usize, slot: usize, copy: Gathered<'_, E>) {
        self.run(sequence, kv_head, slot).copy_to(slot, copy);
    }
}
