//! The cache itself: sequences, their tables, and attention through them.
//!
//! | File | Holds |
//! |---|---|
//! | `growth.rs` | blocks for the rows of a pass: how many, and how they are taken |
//! | `rollback.rs` | what is left to do once a draft tree has been verified |
//! | `integrity.rs` | whether everything that must hold does |

use crate::blocks::{BlockId, Blocks};
use crate::layout::{Behind, LayerPlace, Layout};
use crate::offload::{BlockBytes, BlockMemory};
use crate::pages::{PagedLayer, Pages};
use crate::table::{Table, Tables};
use flash_attention::threads;
use flash_attention::tile_attention::{self, KvType, TileElement, Workers};
use gqa_mla::Maker;
use half::{bf16, f16};
use kv_cache::{KvCache, Lengths};
use naive_decode::{
    Attention, Element, Error, Isa, KvSize, LayerSpec, Model, Pass, Result, Span, Visible,
};
use ndarray::{Array3, ArrayView3, Axis};
use std::sync::Arc;

/// How large a pool is, and how it is cut up.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Most bytes of keys and values, in whole blocks.
    pub bytes: usize,
    /// Tokens of a block: a power of two from 1 to 256.
    pub block: usize,
    /// Most tokens of one sequence.
    pub capacity: usize,
    /// What keys and values are kept as.
    pub kept: KvType,
    /// Whether layers with a window keep what lies behind it.
    pub behind: Behind,
    /// Tokens that any sequence can be rolled back by where [`Behind::Freed`] gives blocks back.
    pub rollback: usize,
}

impl Room {
    /// Room for so many tokens of a model, in blocks of sixteen, exactly as the model makes keys and values.
    ///
    /// # Errors
    /// If the model's first layer makes no keys and values.
    pub fn for_tokens(model: &Model, tokens: usize) -> Result<Self> {
        let (kept, behind) = (model.kv_element.into(), Behind::Kept);
        let layout = Layout::new(model, 16, kept, behind)?;
        let blocks = layout.blocks_for(tokens) * layout.groups().len();
        let bytes = blocks * layout.block_bytes();
        Ok(Room { bytes, block: 16, capacity: model.context(), kept, behind, rollback: 0 })
    }
}

// ANCHOR: cache
/// Attention over keys and values in blocks of one pool, found through tables.
///
/// Invariants: every block in a table is held by it (see [`Blocks`]); the tables of a sequence of length `n`
/// have a place for each of its `n` tokens, and more only after a pass that was not committed; slots below the
/// length are written, unless they lie behind a window; a block that several hold is never written.
pub struct PagedCache {
    layout: Layout,
    pool: Pool,
    blocks: Blocks,
    /// By sequence; none for those that are closed.
    tables: Vec<Option<Tables>>,
    lengths: Lengths,
    rollback: usize,
    isa: Isa,
    workers: Workers,
}
// ANCHOR_END: cache

/// The pool's memory, by what its numbers are kept as.
pub(crate) enum Pool {
    F32(Pages<f32>),
    Bf16(Pages<bf16>),
    F16(Pages<f16>),
    Int8(Pages<i8>),
    /// A device's, which attends to it itself.
    Elsewhere(Box<dyn BlockMemory>),
}

/// Runs the same code on whichever type it is, and other code on a device's memory.
macro_rules! on_pages {
    ($pool:expr, $pages:ident => $code:expr, $memory:ident => $other:expr) => {
        match $pool {
            Pool::F32($pages) => $code,
            Pool::Bf16($pages) => $code,
            Pool::F16($pages) => $code,
            Pool::Int8($pages) => $code,
            Pool::Elsewhere($memory) => $other,
        }
    };
}

// After the macro, which they use.
mod growth;
mod integrity;
mod rollback;

impl PagedCache {
    /// Sets the pool aside; no sequence is open yet.
    ///
    /// # Errors
    /// If the block size is none, the pool has no room for one block or is larger than the system's memory, or
    /// the model's first layer makes no keys and values.
    pub fn new(model: &Model, room: Room) -> Result<Self> {
        let layout = Layout::new(model, room.block, room.kept, room.behind)?;
        PagedCache::over(layout, room, model.isa)
    }

    /// The same over a layout of one's own.
    ///
    /// # Errors
    /// If the pool has no room for one block, or is larger than the system's memory.
    pub fn over(layout: Layout, room: Room, isa: Isa) -> Result<Self> {
        let count = room.bytes / layout.block_bytes();
        if count == 0 {
            let expected = format!("at least {}, one block", layout.block_bytes());
            return Err(Error::invalid("bytes of the pool", room.bytes, expected));
        }
        let pool = match layout.kept() {
            KvType::Exact(Element::F32) => Pool::F32(Pages::new(&layout, count)?),
            KvType::Exact(Element::Bf16) => Pool::Bf16(Pages::new(&layout, count)?),
            KvType::Exact(Element::F16) => Pool::F16(Pages::new(&layout, count)?),
            KvType::Int8 => Pool::Int8(Pages::new(&layout, count)?),
        };
        let mut cache = PagedCache::with_pool(layout, pool, count, room.capacity, isa);
        cache.rollback = room.rollback;
        Ok(cache)
    }

    // ANCHOR: elsewhere
    /// Tables over `count` blocks of a device's memory, for sequences of at most `capacity` tokens: growth, forks, copy on
    /// write, rollback and parking are as ever. Attention is the device's; through [`Attention::attend`] there is none.
    ///
    /// # Errors
    /// If `tokens` of a block is not a power of two from 1 to 256, or there is no block.
    pub fn elsewhere(
        memory: Box<dyn BlockMemory>,
        layers: &[KvSize],
        (tokens, kept): (usize, KvType),
        count: usize,
        capacity: usize,
    ) -> Result<Self> {
        let made: Vec<Option<Maker>> =
            layers.iter().map(|&size| Some(Maker { size, window: None })).collect();
        let layout = Layout::of(&made, tokens, kept)?;
        if count == 0 {
            return Err(Error::invalid("blocks of the pool", 0, "at least 1"));
        }
        if memory.block_bytes() != layout.block_bytes() {
            let expected = format!("{}, for the model's keys and values", layout.block_bytes());
            return Err(Error::invalid(
                "bytes of a device's block",
                memory.block_bytes(),
                expected,
            ));
        }
        let pool = Pool::Elsewhere(memory);
        Ok(PagedCache::with_pool(layout, pool, count, capacity, Isa::best()))
    }
    // ANCHOR_END: elsewhere

    fn with_pool(layout: Layout, pool: Pool, count: usize, capacity: usize, isa: Isa) -> Self {
        PagedCache {
            layout,
            pool,
            blocks: Blocks::new(count),
            tables: Vec::new(),
            lengths: Lengths::new(0, capacity),
            rollback: 0,
            isa,
            workers: Workers::on(threads::Pool::shared()),
        }
    }

    /// The same, with attention shared out among the threads of this pool instead of the process's.
    #[must_use]
    pub fn on_threads(mut self, pool: Arc<threads::Pool>) -> Self {
        self.workers = Workers::on(pool);
        self
    }

    /// How blocks are laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Who holds which block.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The same, to take, share and release blocks; and the memory of each. What is taken here, and held by
    /// no table, the caller must name to [`PagedCache::check_integrity`].
    pub fn parts(&mut self) -> (&mut Blocks, &mut dyn BlockBytes) {
        let memory: &mut dyn BlockBytes =
            on_pages!(&mut self.pool, pages => pages, memory => &mut **memory);
        (&mut self.blocks, memory)
    }

    /// The tables of a sequence, one for each group of layers.
    ///
    /// # Errors
    /// If there is no such sequence.
    pub fn tables(&self, sequence: usize) -> Result<&Tables> {
        let tables = self.tables.get(sequence).and_then(Option::as_ref);
        tables.ok_or_else(|| Error::invalid("sequence", sequence, "one that is open"))
    }

    /// Sequences that have been opened and not closed.
    pub fn open_sequences(&self) -> usize {
        self.tables.iter().flatten().count()
    }

    // ANCHOR: open
    /// A new sequence, empty: it holds no block until its first pass.
    pub fn open(&mut self) -> usize {
        let empty = Tables { groups: vec![Table::default(); self.layout.groups().len()] };
        self.open_with(empty, 0)
    }

    /// A new sequence that begins with what is in `tables`, whose references become its own.
    pub(crate) fn open_with(&mut self, tables: Tables, length: usize) -> usize {
        let sequence = self.tables.iter().position(Option::is_none).unwrap_or_else(|| {
            self.tables.push(None);
            self.lengths.add()
        });
        self.tables[sequence] = Some(tables);
        self.lengths.set(sequence, length);
        sequence
    }

    /// Ends a sequence: the blocks that nobody else holds are free.
    ///
    /// # Errors
    /// If there is no such sequence.
    pub fn close(&mut self, sequence: usize) -> Result<()> {
        self.reset(sequence)?;
        self.tables[sequence] = None;
        Ok(())
    }
    // ANCHOR_END: open

    // ANCHOR: fork
    /// A second sequence with the same tokens, in the same blocks. The first of the two to write into a
    /// block that both have gets a copy of it (copy on write).
    ///
    /// # Errors
    /// If there is no such sequence.
    pub fn fork(&mut self, sequence: usize) -> Result<usize> {
        self.tables(sequence)?;
        self.drop_unused(sequence);
        let PagedCache { tables, blocks, .. } = self;
        let own = tables[sequence].as_ref().expect("it is open");
        let groups = own.groups.iter().map(|table| table.share(blocks)).collect();
        Ok(self.open_with(Tables { groups }, self.lengths.of(sequence)))
    }
    // ANCHOR_END: fork

    /// A new sequence whose first `tokens` tokens are in `blocks`, of which the caller holds a reference
    /// each; from now on the sequence does.
    ///
    /// # Errors
    /// If there are not as many blocks as the tokens need, or the layout has several groups, whose blocks
    /// differ. The references are then still the caller's.
    pub fn adopt(&mut self, blocks: &[BlockId], tokens: usize) -> Result<usize> {
        let groups = self.layout.groups().len();
        if groups != 1 {
            let expected = "1: layers with a window must keep what is shared (Behind::Kept)";
            return Err(Error::invalid("groups of layers", groups, expected));
        }
        self.check_length(tokens)?;
        if blocks.len() != self.layout.blocks_for(tokens) {
            let expected = format!("{}, for {tokens} tokens", self.layout.blocks_for(tokens));
            return Err(Error::invalid("blocks to begin with", blocks.len(), expected));
        }
        let table = Table::of(blocks.iter().copied().map(Some).collect());
        Ok(self.open_with(Tables { groups: vec![table] }, tokens))
    }

    /// Whether a sequence may be so long.
    pub(crate) fn check_length(&self, tokens: usize) -> Result<()> {
        let (what, capacity) = ("a sequence of this cache".into(), self.lengths.capacity());
        match tokens <= capacity {
            true => Ok(()),
            false => Err(Error::Capacity { what, capacity, asked: tokens }),
        }
    }

    /// Gives back places past a sequence's length: a pass that was not committed leaves some, for the next
    /// one to use.
    fn drop_unused(&mut self, sequence: usize) {
        let places = self.layout.blocks_for(self.lengths.of(sequence));
        if let Some(tables) = &mut self.tables[sequence] {
            for table in &mut tables.groups {
                table.truncate(places, &mut self.blocks);
            }
        }
    }

    /// First slot of a group that the row after `length` tokens sees.
    pub(crate) fn first_seen(&self, group: usize, length: usize) -> usize {
        let window = self.layout.groups()[group].window;
        window.map_or(0, |window| (length + 1).saturating_sub(window))
    }

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

impl KvCache for PagedCache {
    fn len(&self, sequence: usize) -> usize {
        self.lengths.of(sequence)
    }

    fn capacity(&self) -> usize {
        self.lengths.capacity()
    }

    // ANCHOR: truncate
    /// Refuses, too, where a layer's window would begin in a block that has been given back.
    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.tables(sequence)?;
        self.lengths.check_truncate(sequence, length)?;
        self.check_windows(sequence, length)?;
        self.lengths.truncate(sequence, length);
        self.drop_unused(sequence);
        Ok(())
    }
    // ANCHOR_END: truncate

    fn bytes_per_token(&self) -> usize {
        self.layout.bytes_per_token()
    }

    /// The whole pool, whoever has its blocks.
    fn allocated_bytes(&self) -> usize {
        self.blocks.count() * self.layout.block_bytes()
    }
}

impl Attention for PagedCache {
    // ANCHOR: begin
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        let needed = self.blocks_needed(pass)?;
        if needed > self.blocks.free() {
            let tokens = self.layout.tokens();
            return Err(Error::Capacity {
                what: "the pool of blocks".into(),
                capacity: self.blocks.count() * tokens,
                asked: (self.blocks.used() + needed) * tokens,
            });
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
        let mut out = Array3::zeros((q.dim().0, q.dim().1, v.dim().2));
        on_pages!(pool, pages => {
            // A layer that shares an earlier one's keys and values finds them written.
            if layer.kv_layer == layer.index {
                write(pages, &place, tables, layout.tokens(), pass, k, v);
            }
            let kept = PagedLayer { pages, place, tables };
            tile_attention::attend(*isa, layer, pass, q, &kept, out.view_mut(), workers);
        }, _memory => {
            let expected = "those of the processor's memory";
            return Err(Error::invalid("keys and values to attend to", "a device's", expected));
        });
        Ok(out)
    }
    // ANCHOR_END: attend

    fn commit(&mut self, pass: &Pass) {
        self.lengths.commit(pass);
        for span in &pass.spans {
            self.drop_unused(span.sequence);
            for group in 0..self.layout.groups().len() {
                // Shorter by what may be rolled back, it would still need this.
                let shortest = span.end().saturating_sub(self.rollback);
                let needed = self.first_seen(group, shortest) / self.layout.tokens();
                if let Some(tables) = &mut self.tables[span.sequence] {
                    tables.groups[group].give_back_before(needed, &mut self.blocks);
                }
            }
        }
    }
}

/// Each row of a pass to its slot's block: `k [rows, kv_heads, D]`, `v [rows, kv_heads, D_v]`.
fn write<E: TileElement>(
    pages: &mut Pages<E>,
    place: &LayerPlace,
    tables: &[Option<Tables>],
    tokens: usize,
    pass: &Pass,
    k: ArrayView3<f32>,
    v: ArrayView3<f32>,
) {
    for (span, rows) in pass.spans_with_rows() {
        let table = &tables[span.sequence].as_ref().expect("begin has seen it").groups[place.group];
        for (row, slot) in rows.zip(span.start..) {
            let block = table.block(slot / tokens).expect("begin has made room");
            let (k, v) = (k.index_axis(Axis(0), row), v.index_axis(Axis(0), row));
            for (kv_head, (k, v)) in k.outer_iter().zip(v.outer_iter()).enumerate() {
                pages.write(place, (block, slot % tokens), kv_head, k, v);
            }
        }
    }
}
