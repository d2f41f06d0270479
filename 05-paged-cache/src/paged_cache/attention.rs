//! A pass: room for its rows, attention through the tables, and what is given back after it.

use super::{PagedCache, Pool};
use crate::blocks::BlockId;
use crate::layout::LayerPlace;
use crate::pages::{Page, PagedLayer, Pages};
use crate::table::Tables;
use flash_attention::tile_attention::{self, TileElement, Workers};
use naive_decode::{Attention, Error, LayerSpec, Pass, Result, Span, Visible};
use ndarray::{Array3, ArrayView3, Axis};

/// Rows from which on threads share out their writing.
const MANY_ROWS: usize = 8;

impl Attention for PagedCache {
    // ANCHOR: begin
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        let needed = self.blocks_needed(pass)?;
        if needed > self.blocks.free() {
            let asked = self.blocks.used() + needed;
            return Err(self.too_few("the pool of blocks", self.blocks.count(), asked));
        }
        pass.spans.iter().try_for_each(|span| self.grow(span))
    }
    // ANCHOR_END: begin

    // ANCHOR: attend
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let place = self.layout.layer(layer.kv_layer)?;
        for span in &pass.spans {
            self.check_visible(layer, place.group, span)?;
        }
        let PagedCache { pool, tables, workers, isa, layout, .. } = self;
        on_pages!(pool, pages => {
            // A layer that shares an earlier one's keys and values finds them written.
            if layer.kv_layer == layer.index {
                let own = layout.tokens();
                write(pages, &place, tables, own, pass, (k, v), workers);
            }
            let next = layout.next_layer(layer.kv_layer);
            let kept = PagedLayer { pages, place, next, tables };
            Ok(tile_attention::attend(*isa, layer, pass, q, &kept, v.dim().2, workers))
        }, _memory => {
            let expected = "those of the processor's memory";
            Err(Error::invalid("keys and values to attend to", "a device's", expected))
        })
    }
    // ANCHOR_END: attend

    fn commit(&mut self, pass: &Pass) {
        self.lengths.commit(pass);
        for span in &pass.spans {
            self.drop_unused(span.sequence);
            for group in 0..self.layout.groups().len() {
                let needed = self.first_kept(group, span.end()) / self.layout.tokens();
                if let Some(tables) = &mut self.tables[span.sequence] {
                    tables.groups[group].give_back_before(needed, &mut self.blocks);
                }
            }
        }
    }
}

impl PagedCache {
    /// Refuses rows that would look at what lies in blocks that have been given back.
    fn check_visible(&self, layer: LayerSpec, group: usize, span: &Span) -> Result<()> {
        let table = &self.tables(span.sequence)?.groups[group];
        let held = table.given_back() * self.layout.tokens();
        let first_seen =
            |sees: &Visible| sees.places(layer.window).next().map(|place| sees.slot(place));
        match span.sees.iter().filter_map(first_seen).find(|&slot| slot < held) {
            None => Ok(()),
            Some(slot) => {
                let (sequence, index) = (span.sequence, layer.index);
                let what = format!("first slot of sequence {sequence} seen in layer {index}");
                Err(Error::invalid(what, slot, format!("at least {held}, the first still held")))
            }
        }
    }
}

/// Where a row of a pass goes: its block, its place in there, the row.
type Slot = (BlockId, usize, usize);

/// Each row of a pass to its slot's block: `k [rows, kv_heads, D]`, `v [rows, kv_heads, D_v]`.
fn write<E: TileElement>(
    pages: &mut Pages<E>,
    place: &LayerPlace,
    tables: &[Option<Tables>],
    tokens: usize,
    pass: &Pass,
    (k, v): (ArrayView3<f32>, ArrayView3<f32>),
    workers: &Workers,
) {
    let mut slots = Vec::with_capacity(k.dim().0);
    for (span, rows) in pass.spans_with_rows() {
        let table = &tables[span.sequence].as_ref().expect("begin has seen it").groups[place.group];
        slots.extend(rows.zip(span.start..).map(|(row, slot)| {
            let block = table.block(slot / tokens).expect("begin has made room");
            (block, slot % tokens, row)
        }));
    }
    slots.sort_by_key(|&(block, ..)| block.index());
    let by_block: Vec<_> = slots.chunk_by(|a, b| a.0 == b.0).collect();
    let pages = pages.pages(by_block.iter().map(|slots| slots[0].0));
    let mut blocks: Vec<_> = pages.into_iter().zip(by_block).collect();
    workers.share(slots.len() >= MANY_ROWS, &mut blocks, &|mut blocks| {
        let ask = |block: Option<&(Page<E>, &[Slot])>| {
            block.into_iter().for_each(|(page, slots)| page.ask_for_keys(place, slots[0].1));
        };
        ask(blocks.first());
        while let Some(((page, slots), rest)) = std::mem::take(&mut blocks).split_first_mut() {
            ask(rest.first());
            for &(_, offset, row) in *slots {
                let (k, v) = (k.index_axis(Axis(0), row), v.index_axis(Axis(0), row));
                for (kv_head, (k, v)) in k.outer_iter().zip(v.outer_iter()).enumerate() {
                    page.write(place, offset, kv_head, k, v);
                }
            }
            blocks = rest;
        }
    });
}
