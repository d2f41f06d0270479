//! The cache itself: a pool, and tables of its blocks for each sequence.
//!
//! | File | Holds |
//! |---|---|
//! | `sequences.rs` | sequences are opened and closed, and begin with what others have |
//! | `attention.rs` | a pass: room for its rows, attention through the tables, what is given back |
//! | `growth.rs` | blocks for the rows of a pass: how many, and how they are taken |
//! | `rollback.rs` | what is left to do once a draft tree has been verified |
//! | `integrity.rs` | whether everything that must hold does |

use crate::blocks::Blocks;
use crate::layout::{Behind, Layout};
use crate::offload::{BlockBytes, BlockMemory};
use crate::pages::Pages;
use crate::table::Tables;
use flash_attention::threads;
use flash_attention::tile_attention::{Code, KvType, Paired, Workers};
use gqa_mla::Maker;
use half::{bf16, f16};
use kv_cache::{KvCache, Lengths};
use naive_decode::{Element, Error, Isa, KvSize, Model, Result};
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
    /// Room for this many tokens of a model, in blocks of sixteen, exactly as the model makes keys and values. More than can
    /// be counted is more than there is, and is refused when the pool is set aside.
    ///
    /// # Errors
    /// If the model's first layer makes no keys and values.
    pub fn for_tokens(model: &Model, tokens: usize) -> Result<Self> {
        let (kept, behind) = (model.kv_element.into(), Behind::Kept);
        let layout = Layout::new(model, 16, kept, behind)?;
        let blocks = layout.blocks_for(tokens).saturating_mul(layout.groups().len());
        let bytes = blocks.saturating_mul(layout.block_bytes());
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
    Bf16Fast(Pages<Paired>),
    F16(Pages<f16>),
    Int8(Pages<Code>),
    /// A device's, which attends to it itself.
    Elsewhere(Box<dyn BlockMemory>),
}

/// Runs the same code on whichever type it is, and other code on a device's memory.
macro_rules! on_pages {
    ($pool:expr, $pages:ident => $code:expr, $memory:ident => $other:expr) => {
        match $pool {
            Pool::F32($pages) => $code,
            Pool::Bf16($pages) => $code,
            Pool::Bf16Fast($pages) => $code,
            Pool::F16($pages) => $code,
            Pool::Int8($pages) => $code,
            Pool::Elsewhere($memory) => $other,
        }
    };
}

// After the macro, which they use.
mod attention;
mod growth;
mod integrity;
mod rollback;
mod sequences;

impl PagedCache {
    /// Sets the pool aside; no sequence is open yet.
    ///
    /// # Errors
    /// If the block size is none, the pool has no room for one block, is larger than the system's memory or has more blocks
    /// than can be numbered, or the model's first layer makes no keys and values.
    pub fn new(model: &Model, room: Room) -> Result<Self> {
        let layout = Layout::new(model, room.block, room.kept, room.behind)?;
        PagedCache::over(layout, room, model.isa)
    }

    /// Has the system give the pool's memory from now on, in another thread, and not only as it is written: for a
    /// server that has the machine to itself. A device's pool is there already.
    pub fn claim(&self) {
        on_pages!(&self.pool, pages => pages.claim(), _memory => {});
    }

    /// The same over a layout of one's own.
    ///
    /// # Errors
    /// If the pool has no room for one block, is larger than the system's memory, or has more blocks than can be numbered.
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
            KvType::Bf16Fast => Pool::Bf16Fast(Pages::new(&layout, count)?),
            KvType::Int8 => Pool::Int8(Pages::new(&layout, count)?),
        };
        let mut cache = PagedCache::with_pool(layout, pool, count, room.capacity, isa)?;
        cache.rollback = room.rollback;
        Ok(cache)
    }

    // ANCHOR: elsewhere
    /// Tables over `count` blocks of a device's memory, for sequences of at most `capacity` tokens: growth, forks, copy on
    /// write, rollback and parking are as ever. Attention is the device's; the cache's own `attend` refuses.
    ///
    /// # Errors
    /// If `tokens` of a block is not a power of two from 1 to 256; there are no layers, or some have no heads or no numbers, or
    /// cannot be kept so; the memory's blocks do not have the bytes that these layers need; or there is no block, or more
    /// than can be numbered.
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
        PagedCache::with_pool(layout, pool, count, capacity, Isa::best())
    }
    // ANCHOR_END: elsewhere

    fn with_pool(
        layout: Layout,
        pool: Pool,
        count: usize,
        capacity: usize,
        isa: Isa,
    ) -> Result<Self> {
        if u32::try_from(count).is_err() {
            let expected = format!("at most {}, as blocks are numbered in 32 bits", u32::MAX);
            return Err(Error::invalid("blocks of the pool", count, expected));
        }
        Ok(PagedCache {
            layout,
            pool,
            blocks: Blocks::new(count),
            tables: Vec::new(),
            lengths: Lengths::new(0, capacity),
            rollback: 0,
            isa,
            workers: Workers::on(threads::Pool::shared()),
        })
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

    /// First slot of a group that is kept of a sequence of `length` tokens: shorter by what may be rolled back, it would
    /// still see this one.
    pub(crate) fn first_kept(&self, group: usize, length: usize) -> usize {
        self.first_seen(group, length.saturating_sub(self.rollback))
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
