//! The pool's memory, and the kernels' way into it.

use crate::blocks::BlockId;
use crate::layout::{LayerPlace, Layout};
use crate::offload::BlockBytes;
use crate::table::Tables;
use flash_attention::LargePages;
use flash_attention::kernels::{LINE, prefetch};
use flash_attention::tile_attention::{Gathered, Run, TileElement, TileSource, put_key, put_value};
use naive_decode::numerics::LANES;
use naive_decode::{Error, KvSize, Result};
use ndarray::ArrayView1;
use std::ops::Range;

/// The next `count` items after `skipped`; `rest` is then what comes after them.
fn next<'a, T>(rest: &mut &'a mut [T], skipped: usize, count: usize) -> &'a mut [T] {
    let (taken, after) = std::mem::take(rest)[skipped..].split_at_mut(count);
    *rest = after;
    taken
}

// ANCHOR: pages
/// All blocks of a pool, one after another: `[blocks][layers of a group][…]`.
///
/// A block's bytes follow each other, whatever layers they are of, so that a block is copied, offloaded and
/// brought back in one piece. In a layer, keys are `[kv_heads][tokens / lanes][D][lanes]`, tiles as rung 04
/// keeps them, and values `[kv_heads][tokens][width]`, both interleaved in pairs for BF16-fast, in fours for INT8. Blocks of fewer than
/// sixteen tokens have tiles of as many lanes.
pub(crate) struct Pages<E> {
    tokens: usize,
    numbers_per_block: usize,
    scales_per_block: usize,
    numbers: LargePages<E>,
    scales: LargePages<f32>,
}
// ANCHOR_END: pages

impl<E: TileElement> Pages<E> {
    /// Memory for this many blocks.
    ///
    /// # Errors
    /// If the system does not give that much.
    pub(crate) fn new(layout: &Layout, blocks: usize) -> Result<Self> {
        let refused = || {
            let bytes = blocks * layout.block_bytes();
            Error::invalid("bytes of the pool", bytes, "no more than the system has to give")
        };
        Ok(Pages {
            tokens: layout.tokens(),
            numbers_per_block: layout.numbers,
            scales_per_block: layout.scales,
            numbers: LargePages::new(blocks * layout.numbers).ok_or_else(refused)?,
            scales: LargePages::new(blocks * layout.scales).ok_or_else(refused)?,
        })
    }

    /// Has the system give the memory now, and not as it is written.
    pub(crate) fn claim(&self) {
        self.numbers.claim();
        self.scales.claim();
    }

    /// Slots whose keys lie side by side.
    fn lanes(&self) -> usize {
        self.tokens.min(LANES)
    }

    /// The place in a table of the block that a slot is in: a shift, as tokens of a block are a power of two, and a division
    /// takes long for what is asked of every tile.
    fn place_of(&self, slot: usize) -> usize {
        slot >> self.tokens.trailing_zeros()
    }

    fn numbers_of(&self, block: BlockId) -> Range<usize> {
        let first = block.index() * self.numbers_per_block;
        first..first + self.numbers_per_block
    }

    fn scales_of(&self, block: BlockId) -> Range<usize> {
        let first = block.index() * self.scales_per_block;
        first..first + self.scales_per_block
    }

    /// Some blocks, to be written, in the order of their numbers.
    ///
    /// # Panics
    /// If they are not in ascending order, each once.
    pub(crate) fn pages(&mut self, blocks: impl Iterator<Item = BlockId>) -> Vec<Page<'_, E>> {
        let (tokens, lanes) = (self.tokens, self.lanes());
        let (mut numbers, mut scales) = (&mut self.numbers[..], &mut self.scales[..]);
        let mut first = 0;
        let (per_block, scales_per_block) = (self.numbers_per_block, self.scales_per_block);
        let page = |block: BlockId| {
            let skipped = block.index().checked_sub(first).expect("ascending order");
            first = block.index() + 1;
            Page {
                tokens,
                lanes,
                numbers: next(&mut numbers, skipped * per_block, per_block),
                scales: next(&mut scales, skipped * scales_per_block, scales_per_block),
            }
        };
        blocks.map(page).collect()
    }
}

/// One block's memory, to be written.
pub(crate) struct Page<'a, E> {
    tokens: usize,
    lanes: usize,
    numbers: &'a mut [E],
    scales: &'a mut [f32],
}

impl<E: TileElement> Page<'_, E> {
    /// Asks memory for the tiles of keys, all heads', that a slot is a lane of. One key meets as many cache lines as it
    /// has numbers or half as many, and to wait for one after another would take longer than everything else.
    pub(crate) fn ask_for_keys(&self, layer: &LayerPlace, offset: usize) {
        let (tokens, lanes, dim) = (self.tokens, self.lanes, layer.size.key_dim);
        for kv_head in 0..layer.size.heads {
            let tile = layer.keys + (kv_head * tokens + offset / lanes * lanes) * dim;
            let tile = bytemuck::cast_slice::<E, u8>(&self.numbers[tile..][..dim * lanes]);
            tile.chunks(LINE).for_each(|line| prefetch(line.as_ptr()));
        }
    }

    // ANCHOR: write
    /// Writes one head's key `[D]` and value `[D_v]` to a slot.
    pub(crate) fn write(
        &mut self,
        layer: &LayerPlace,
        offset: usize,
        kv_head: usize,
        key: ArrayView1<f32>,
        value: ArrayView1<f32>,
    ) {
        let (tokens, lanes, dim) = (self.tokens, self.lanes, layer.size.key_dim);
        let page = &mut self.numbers;
        let slot = kv_head * tokens + offset;
        let tile = layer.keys + (kv_head * tokens + offset / lanes * lanes) * dim;
        let scale = put_key(&mut page[tile..][..dim * lanes], lanes, offset % lanes, key);
        if E::SCALED {
            self.scales[layer.key_scales + slot] = scale;
        }
        if layer.width > 0 {
            let values = &mut page[layer.values + kv_head * tokens * layer.width..];
            let scale = put_value(values, lanes, layer.width, offset, value);
            if E::SCALED {
                self.scales[layer.value_scales + slot] = scale;
            }
        }
    }
    // ANCHOR_END: write
}

impl<E: TileElement> Pages<E> {
    /// Copies one slot of a layer, all heads, to another slot.
    pub(crate) fn copy_slot(
        &mut self,
        layer: &LayerPlace,
        (from, from_offset): (BlockId, usize),
        (to, to_offset): (BlockId, usize),
    ) {
        let (tokens, lanes) = (self.tokens, self.lanes());
        let LayerPlace { size, width, keys, values, key_scales, value_scales, .. } = *layer;
        let (from_page, to_page) = (self.numbers_of(from).start, self.numbers_of(to).start);
        let (from_scales, to_scales) = (self.scales_of(from).start, self.scales_of(to).start);
        for kv_head in 0..size.heads {
            let slot = kv_head * tokens;
            let key = |page: usize, offset: usize, d: usize| {
                let tile = keys + (slot + offset / lanes * lanes) * size.key_dim;
                page + tile + E::key_at(lanes, offset % lanes, d)
            };
            for d in 0..size.key_dim {
                self.numbers[key(to_page, to_offset, d)] =
                    self.numbers[key(from_page, from_offset, d)];
            }
            let value = |page: usize, offset: usize, column: usize| {
                page + values + slot * width + E::value_at(lanes, width, offset, column)
            };
            for column in 0..width {
                self.numbers[value(to_page, to_offset, column)] =
                    self.numbers[value(from_page, from_offset, column)];
            }
            if E::SCALED {
                // Where both are the same, the second copy changes nothing.
                for scales in [key_scales, value_scales] {
                    self.scales[to_scales + scales + slot + to_offset] =
                        self.scales[from_scales + scales + slot + from_offset];
                }
            }
        }
    }

    /// Makes `to` what `from` is.
    pub(crate) fn copy(&mut self, from: BlockId, to: BlockId) {
        let (numbers, scales) = (self.numbers_of(from), self.scales_of(from));
        let (to_numbers, to_scales) = (self.numbers_of(to).start, self.scales_of(to).start);
        self.numbers.copy_within(numbers, to_numbers);
        self.scales.copy_within(scales, to_scales);
    }
}

impl<E: TileElement> BlockBytes for Pages<E> {
    fn block_bytes(&self) -> usize {
        self.numbers_per_block * size_of::<E>() + self.scales_per_block * size_of::<f32>()
    }

    fn copy_out(&self, block: BlockId, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.extend_from_slice(bytemuck::cast_slice(&self.numbers[self.numbers_of(block)]));
        bytes.extend_from_slice(bytemuck::cast_slice(&self.scales[self.scales_of(block)]));
        Ok(())
    }

    fn copy_in(&mut self, block: BlockId, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.block_bytes() {
            let expected = format!("{}, a block", self.block_bytes());
            return Err(Error::invalid("bytes to bring back", bytes.len(), expected));
        }
        let (numbers, scales) = (self.numbers_of(block), self.scales_of(block));
        let (first, second) = bytes.split_at(numbers.len() * size_of::<E>());
        bytemuck::cast_slice_mut(&mut self.numbers[numbers]).copy_from_slice(first);
        bytemuck::cast_slice_mut(&mut self.scales[scales]).copy_from_slice(second);
        Ok(())
    }
}

// ANCHOR: paged_layer
/// One layer of all sequences, read through their tables.
pub(crate) struct PagedLayer<'a, E> {
    pub(crate) pages: &'a Pages<E>,
    pub(crate) place: LayerPlace,
    /// The next layer that makes its own.
    pub(crate) next: LayerPlace,
    /// By sequence; none for those that are closed.
    pub(crate) tables: &'a [Option<Tables>],
}

impl<'a, E: TileElement> PagedLayer<'a, E> {
    /// The block that a slot is in; none if it has been given back.
    fn block(&self, sequence: usize, slot: usize) -> Option<BlockId> {
        let tables = self.tables[sequence].as_ref()?;
        tables.groups[self.place.group].block(self.pages.place_of(slot))
    }
    // ANCHOR_END: paged_layer

    /// One head's part of a block, whose tiles are whole.
    fn part(&self, block: BlockId, kv_head: usize, first: usize) -> Run<'a, E> {
        let LayerPlace { size, width, keys, values, key_scales, value_scales, .. } = self.place;
        let tokens = self.pages.tokens;
        let page = &self.pages.numbers[self.pages.numbers_of(block)];
        let scales = &self.pages.scales[self.pages.scales_of(block)];
        let of_head = |first: usize| match E::SCALED {
            true => &scales[first + kv_head * tokens..][..tokens],
            false => &scales[..0],
        };
        let keys = &page[keys + kv_head * tokens * size.key_dim..][..tokens * size.key_dim];
        Run {
            first,
            end: first + tokens,
            keys: keys.as_chunks().0,
            values: &page[values + kv_head * tokens * width..][..tokens * width],
            key_scales: of_head(key_scales),
            value_scales: of_head(value_scales),
            key_dim: size.key_dim,
            width,
        }
    }
}

impl<E: TileElement> TileSource for PagedLayer<'_, E> {
    type Element = E;

    fn size(&self) -> KvSize {
        self.place.size
    }

    fn has_whole_tiles(&self) -> bool {
        self.pages.tokens >= LANES
    }

    // ANCHOR: run
    /// As far as memory goes on: one block.
    fn run(&self, sequence: usize, kv_head: usize, slot: usize) -> Run<'_, E> {
        let block = self.block(sequence, slot).expect("slots that rows see are in blocks");
        self.part(block, kv_head, self.pages.place_of(slot) * self.pages.tokens)
    }
    // ANCHOR_END: run

    fn next_layer(&self, sequence: usize, slots: Range<usize>, mut say: impl FnMut(&[u8])) {
        let Some(tables) = &self.tables[sequence] else { return };
        let LayerPlace { group, size, width, keys, values, .. } = self.next;
        let tokens = self.pages.tokens;
        // Keys and values of a layer lie one after the other.
        let numbers = values - keys + size.heads * tokens * width;
        for block in self.pages.place_of(slots.start)..slots.end.div_ceil(tokens) {
            if let Some(block) = tables.groups[group].block(block) {
                let page = &self.pages.numbers[self.pages.numbers_of(block)];
                say(bytemuck::cast_slice(&page[keys..][..numbers]));
            }
        }
    }

    fn gather(&self, sequence: usize, kv_head: usize, slot: usize, copy: Gathered<'_, E>) {
        let Some(block) = self.block(sequence, slot) else { return };
        let LayerPlace { size, width, keys, values, key_scales, value_scales, .. } = self.place;
        let (tokens, lanes) = (self.pages.tokens, self.pages.lanes());
        let (offset, page) = (slot % tokens, &self.pages.numbers[self.pages.numbers_of(block)]);
        let scales = &self.pages.scales[self.pages.scales_of(block)];
        let tile = keys + (kv_head * tokens + offset / lanes * lanes) * size.key_dim;
        let (values, place) = (values + kv_head * tokens * width, kv_head * tokens + offset);
        copy.fill(
            |d| page[tile + E::key_at(lanes, offset % lanes, d)],
            |column| page[values + E::value_at(lanes, width, offset, column)],
            || (scales[key_scales + place], scales[value_scales + place]),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::table::Table;
    use gqa_mla::Maker;
    use naive_decode::Element;

    #[test]
    fn what_the_next_layer_reads_is_said_and_nothing_else() {
        let wide = Maker { size: KvSize { heads: 2, key_dim: 8, value_dim: 16 }, window: None };
        let narrow =
            Maker { size: KvSize { heads: 3, key_dim: 4, value_dim: 3 }, window: Some(64) };
        let absorbed = Maker { size: KvSize { heads: 1, key_dim: 20, value_dim: 0 }, window: None };
        let made = [Some(wide), None, Some(narrow), Some(absorbed), Some(wide)];
        let layout = Layout::of(&made, 32, Element::F32.into()).unwrap();
        let pages = Pages::<f32>::new(&layout, 4).unwrap();
        let table = Table::of([None, Some(2), Some(0), Some(3)].map(|it| it.map(BlockId)).to_vec());
        let groups = vec![table; layout.groups().len()];
        let tables = [None, Some(Tables { groups })];
        for (layer, after) in [(0, 2), (2, 3), (3, 4), (4, 0)] {
            let [place, next] = [layer, after].map(|layer| layout.layer(layer).unwrap());
            let found = layout.next_layer(layer);
            assert_eq!((found.group, found.keys), (next.group, next.keys), "after layer {layer}");
            let kept = PagedLayer { pages: &pages, place, next, tables: &tables };
            let mut said = Vec::new();
            kept.next_layer(1, 10..70, |bytes| {
                said.extend(bytes.as_ptr_range().start.addr()..bytes.as_ptr_range().end.addr())
            });
            kept.next_layer(0, 10..70, |_| panic!("this sequence is closed"));
            let after = PagedLayer { place: next, ..kept };
            let mut read = Vec::new();
            for (head, slot) in (0..next.size.heads).flat_map(|head| [(head, 32), (head, 64)]) {
                let run = after.run(1, head, slot);
                for part in [run.keys.as_flattened(), run.values] {
                    let bytes = part.as_ptr_range();
                    read.extend(bytes.start.addr()..bytes.end.addr());
                }
            }
            said.sort_unstable();
            read.sort_unstable();
            assert!(said == read, "layer {layer}: {} bytes, not {}", said.len(), read.len());
        }
    }
}
