//! How attention of one layer is shared out among threads.

use super::blocks::{Block, blocks};
use super::element::TileElement;
use super::line::Line;
use super::run::{Queries, Room};
use super::source::TileSource;
use super::ways::{Packed, Way};
use crate::kernels::Simd;
use crate::threads::Pool;
use naive_decode::{Isa, LayerSpec, Partial, Pass, SPLIT, Visible};
use ndarray::{Array3, ArrayView3, ArrayViewMut3, Axis, s};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// Queries that one task takes together, about: enough to share each key among, few enough for their
/// scores to stay in a near cache.
const QUERIES_TOGETHER: usize = 48;

/// Queries from which on AMX's tiles are worth their shapes.
const MANY_QUERIES: usize = 8;

/// Below this many multiply-adds, waking another thread costs more than it saves.
const SERIAL_WORK: usize = 1 << 14;

/// With fewer units than this for each thread, units are cut at their splits too, where there is more than one.
const UNITS_PER_THREAD: usize = 4;

/// Threads that attention is shared out among, and what they keep from one layer to the next.
pub struct Workers {
    threads: Arc<Pool>,
    /// Room for the splits' results.
    partials: Vec<Partial>,
}

impl Workers {
    /// Workers on the threads of a pool: best the one that the model's weights are packed for, which has
    /// nothing to do meanwhile.
    pub fn on(threads: Arc<Pool>) -> Self {
        Workers { threads, partials: Vec::new() }
    }

    /// Shares out `items`, neighbours together, on all threads if there is so much to do: `task` is called with as many
    /// in a row as a thread has.
    pub fn share<T: Send>(&self, much: bool, items: &mut [T], task: &(dyn Fn(&mut [T]) + Sync)) {
        match much {
            true => self.threads.run_chunks(items, 1, &|_, items| task(items)),
            false => task(items),
        }
    }
}

/// Some rows of one sequence.
struct Rows<'a> {
    sequence: usize,
    /// Query heads to a key-value head.
    group: usize,
    sees: &'a [Visible],
    /// `[rows, heads, D]`
    q: ArrayView3<'a, f32>,
    /// `[rows, heads, D_v]`
    out: ArrayViewMut3<'a, MaybeUninit<f32>>,
}

/// One key-value head and some rows of one sequence.
struct Unit<'a> {
    sequence: usize,
    kv_head: usize,
    sees: &'a [Visible],
    /// `[rows, group, D]`
    q: ArrayView3<'a, f32>,
    /// `[rows, group, D_v]`
    out: ArrayViewMut3<'a, MaybeUninit<f32>>,
}

/// Attention of all rows of a pass over what a layer keeps: `q [rows, heads, D]` → `[rows, heads, value_dim]`.
///
/// Work is shared out by key-value head and rows; where that gives too few pieces, as for a single row
/// over a long past, also by split (Flash-Decoding, Dao et al. 2023).
///
/// # Panics
/// If the number of query heads is not a multiple of the number of key-value heads.
pub fn attend<S: TileSource>(
    isa: Isa,
    layer: LayerSpec,
    pass: &Pass,
    q: ArrayView3<f32>,
    kept: &S,
    value_dim: usize,
    workers: &mut Workers,
) -> Array3<f32> {
    let Workers { threads, partials } = workers;
    let width = value_dim.next_multiple_of(naive_decode::numerics::LANES);
    // Not filled with zeros: that would take as long as writing the answers does.
    let mut out = Array3::uninit((q.dim().0, q.dim().1, value_dim));
    // ANCHOR: share_out
    let reach = pass.spans.iter().map(|span| span.end()).max().unwrap_or(0);
    let serial = threads.threads() == 1 || q.len() * reach < SERIAL_WORK;
    let mut rows = rows(pass, q, kept.size().heads, out.view_mut());
    let whole = |unit: &mut Unit| unit.attend(isa, layer, kept, width);
    let all_heads = |rows: &mut Rows| rows.units().for_each(|mut unit| whole(&mut unit));
    let enough = UNITS_PER_THREAD * threads.threads();
    // The last rows of a prompt see most: nobody should begin with them when the others are done.
    rows.reverse();
    if serial {
        rows.iter_mut().for_each(all_heads);
    } else if rows.len() >= enough {
        // All heads of the same rows, one after another as they lie in memory: a processor that reads on past the end of one
        // head's finds the next one's.
        threads.run_each(&mut rows, &all_heads);
    } else {
        let mut units: Vec<Unit> = rows.iter_mut().flat_map(Rows::units).collect();
        match units.len() >= enough || reach <= SPLIT {
            true => threads.run_each(&mut units, &whole),
            false => attend_splits(threads, isa, layer, kept, width, &mut units, partials),
        }
    }
    // ANCHOR_END: share_out
    // SAFETY: units are all rows and heads, and each has written an answer for every query.
    unsafe { out.assume_init() }
}

/// Cuts a pass into rows that are taken together. Rows of a draft tree stand alone: each has a line of slots of its own.
fn rows<'a>(
    pass: &'a Pass,
    q: ArrayView3<'a, f32>,
    kv_heads: usize,
    mut out: ArrayViewMut3<'a, MaybeUninit<f32>>,
) -> Vec<Rows<'a>> {
    let heads = q.dim().1;
    assert!(heads.is_multiple_of(kv_heads), "whole groups of query heads");
    let group = heads / kv_heads;
    let most = (QUERIES_TOGETHER / group).max(1);
    let mut cut = Vec::with_capacity(q.dim().0.div_ceil(most));
    for (span, rows) in pass.spans_with_rows() {
        let mut first = 0;
        while first < span.rows() {
            let rest = &span.sees[first..];
            let plain = rest.iter().take(most).take_while(|sees| sees.also.is_empty()).count();
            let sees = &rest[..plain.max(1)];
            let own = rows.start + first..rows.start + first + sees.len();
            let (now, later) = out.split_at(Axis(0), sees.len());
            out = later;
            let q = q.slice_move(s![own, .., ..]);
            cut.push(Rows { sequence: span.sequence, group, sees, q, out: now });
            first += sees.len();
        }
    }
    cut
}

impl Rows<'_> {
    /// A unit for each key-value head.
    fn units(&mut self) -> impl Iterator<Item = Unit<'_>> {
        let Rows { sequence, group, sees, ref q, ref mut out } = *self;
        let heads =
            q.axis_chunks_iter(Axis(1), group).zip(out.axis_chunks_iter_mut(Axis(1), group));
        heads.enumerate().map(move |(kv_head, (q, out))| Unit { sequence, kv_head, sees, q, out })
    }
}

/// Every split of every unit is a task; then the results of each unit are joined in order.
fn attend_splits<S: TileSource>(
    threads: &Pool,
    isa: Isa,
    layer: LayerSpec,
    kept: &S,
    width: usize,
    units: &mut [Unit],
    partials: &mut Vec<Partial>,
) {
    let count = |unit: &Unit| unit.splits(layer).len() * unit.queries();
    provide(partials, units.iter().map(count).sum(), width);
    let mut tasks = Vec::new();
    let mut rest = &mut partials[..];
    for unit in units.iter() {
        for split in unit.splits(layer) {
            let (own, others) = rest.split_at_mut(unit.queries());
            rest = others;
            tasks.push((unit, split, own));
        }
    }
    threads.run_each(&mut tasks, &|(unit, split, own)| {
        let run = |room: &mut Room, queries: &Queries, line: &mut Line<S>| {
            queries.attend(*split, line, room, own);
        };
        unit.with_queries(isa, layer, kept, run);
    });
    let (mut parts, mut whole) = (&partials[..], Partial::empty(width));
    for unit in units {
        let (own, others) = parts.split_at(unit.splits(layer).len() * unit.queries());
        parts = others;
        for query in 0..unit.queries() {
            clear(&mut whole);
            own.iter().skip(query).step_by(unit.queries()).for_each(|part| whole.join(part));
            unit.finish(query, &whole);
        }
    }
}

/// What a thread keeps from one task to the next, so that tasks allocate nothing.
#[derive(Default)]
struct Bench {
    room: Room,
    blocks: Vec<Block>,
    packed: Packed,
    sees: Vec<Range<usize>>,
}

thread_local! {
    static BENCH: Cell<Bench> = Cell::default();
    /// Of each query, the result of one split and that of all so far.
    static RESULTS: Cell<(Vec<Partial>, Vec<Partial>)> = Cell::default();
}

impl Unit<'_> {
    fn queries(&self) -> usize {
        self.q.dim().0 * self.q.dim().1
    }

    /// Splits that some row sees a part of.
    fn splits(&self, layer: LayerSpec) -> Range<usize> {
        let places = || self.sees.iter().map(|sees| sees.places(layer.window));
        let start = places().map(|seen| seen.start).min().unwrap_or(0);
        let end = places().map(|seen| seen.end).max().unwrap_or(0);
        start / SPLIT..end.div_ceil(SPLIT)
    }

    /// All splits, one after another.
    fn attend<S: TileSource>(&mut self, isa: Isa, layer: LayerSpec, kept: &S, width: usize) {
        let (mut part, mut whole) = RESULTS.take();
        provide(&mut part, self.queries(), width);
        provide(&mut whole, self.queries(), width);
        whole.iter_mut().for_each(clear);
        self.with_queries(isa, layer, kept, |room, queries, line| {
            for split in self.splits(layer) {
                queries.attend(split, line, room, &mut part);
                whole.iter_mut().zip(&part).for_each(|(whole, part)| whole.join(part));
            }
        });
        for (query, whole) in whole.iter().enumerate() {
            self.finish(query, whole);
        }
        RESULTS.set((part, whole));
    }

    /// Packs the queries, finds what they see, and hands both to `run`.
    fn with_queries<S: TileSource>(
        &self,
        isa: Isa,
        layer: LayerSpec,
        kept: &S,
        run: impl FnOnce(&mut Room, &Queries, &mut Line<S>),
    ) {
        let mut bench = BENCH.take();
        let Bench { room, blocks: handfuls, packed, sees, .. } = &mut bench;
        let group = self.q.dim().1;
        handfuls.clear();
        handfuls.extend(blocks(self.queries()));
        let simd = Simd::within(isa);
        let simd = if self.queries() < MANY_QUERIES { simd.without_tiles() } else { simd };
        let scale = layer.scale * std::f32::consts::LOG2_E;
        let query = |i| {
            let row = self.q.index_axis(Axis(0), i / group);
            row.index_axis_move(Axis(0), i % group)
                .to_slice()
                .expect("a query's numbers are neighbours")
        };
        <S::Element as TileElement>::Way::pack(simd, scale, handfuls, query, packed);
        sees.clear();
        let places = self.sees.iter().map(|sees| sees.places(layer.window));
        sees.extend(places.flat_map(|places| std::iter::repeat_n(places, group)));
        let score_cap = layer.score_cap.map(|cap| cap * std::f32::consts::LOG2_E);
        let queries = Queries { isa, simd, scale, score_cap, blocks: handfuls, packed, sees };
        run(room, &queries, &mut Line::new(kept, self.sequence, self.kv_head, self.sees));
        BENCH.set(bench);
    }

    /// Writes one query's answer `[D_v]`.
    fn finish(&mut self, query: usize, whole: &Partial) {
        let group = self.q.dim().1;
        let row = self.out.index_axis_mut(Axis(0), query / group);
        let out = row.index_axis_move(Axis(0), query % group);
        let out = out.into_slice().expect("answers are contiguous");
        assert!(out.len() <= whole.values.len(), "a number for each place");
        out.iter_mut().zip(whole.finish()).for_each(|(out, value)| _ = out.write(value));
    }
}

/// Makes `count` partials of so many columns, keeping those that are there.
fn provide(partials: &mut Vec<Partial>, count: usize, width: usize) {
    partials.resize_with(count, || Partial::empty(width));
    partials.iter_mut().for_each(|partial| partial.values.resize(width, 0.0));
}

/// Back to what a query that has seen nothing knows, without giving up its room.
fn clear(partial: &mut Partial) {
    (partial.maximum, partial.sum) = (i32::MIN / 2, 0.0);
    partial.values.fill(0.0);
}
