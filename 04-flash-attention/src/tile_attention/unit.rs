//! One key-value head and the queries that meet it together.

use super::blocks::{Block, blocks, most_together};
use super::element::TileElement;
use super::line::Line;
use super::run::{Found, Queries, Room};
use super::source::TileSource;
use super::ways::{Packed, Way};
use crate::kernels::Simd;
use naive_decode::kernels::{Kernel, Vector};
use naive_decode::{Isa, LayerSpec, Partial, SPLIT, Visible};
use ndarray::{ArrayView3, ArrayViewMut3, Axis};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Queries from which on AMX's tiles are worth their shapes.
const MANY_QUERIES: usize = 8;

/// What all units of a layer have in common.
pub(super) struct Shared<'a, S> {
    pub(super) isa: Isa,
    pub(super) layer: LayerSpec,
    pub(super) kept: &'a S,
    /// Numbers of a value, filled up to whole registers.
    pub(super) width: usize,
}

/// One key-value head and some rows of one sequence.
pub(super) struct Unit<'a> {
    pub(super) sequence: usize,
    pub(super) kv_head: usize,
    pub(super) sees: &'a [Visible],
    /// `[rows, group, D]`
    pub(super) q: ArrayView3<'a, f32>,
    /// `[rows, group, D_v]`
    pub(super) out: ArrayViewMut3<'a, MaybeUninit<f32>>,
}

/// What a thread keeps from one task to the next, so that tasks allocate nothing.
#[derive(Default)]
struct Bench {
    room: Room,
    blocks: Vec<Block>,
    packed: Packed,
    sees: Vec<Range<usize>>,
}

/// What a unit's queries found, kept likewise.
#[derive(Default)]
struct Results {
    /// In one split.
    found: Found,
    /// The same, to be joined.
    part: Vec<Partial>,
    /// In all splits so far.
    whole: Vec<Partial>,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::default();
    static RESULTS: RefCell<Results> = RefCell::default();
}

impl Unit<'_> {
    pub(super) fn queries(&self) -> usize {
        self.q.dim().0 * self.q.dim().1
    }

    /// Splits that some row sees a part of.
    pub(super) fn splits(&self, layer: LayerSpec) -> Range<usize> {
        let places = || self.sees.iter().map(|sees| sees.places(layer.window));
        let start = places().map(|seen| seen.start).min().unwrap_or(0);
        let end = places().map(|seen| seen.end).max().unwrap_or(0);
        start / SPLIT..end.div_ceil(SPLIT)
    }

    /// All splits, one after another, and the answers.
    pub(super) fn attend<S: TileSource>(&mut self, shared: &Shared<S>) {
        let splits = self.splits(shared.layer);
        RESULTS.with_borrow_mut(|results| match splits.len() {
            1 => self.attend_only(splits.start, shared, &mut results.found),
            _ => self.attend_all(splits, shared, results),
        });
    }

    /// One split of several: what each query found there.
    pub(super) fn attend_split<S: TileSource>(
        &self,
        split: usize,
        shared: &Shared<S>,
        partials: &mut [Partial],
    ) {
        RESULTS.with_borrow_mut(|Results { found, .. }| {
            self.with_queries(shared, |room, queries, line| {
                queries.attend(split, line, room, shared.width, found);
            });
            found.copy_to(partials);
        });
    }

    /// The only split.
    fn attend_only<S: TileSource>(&mut self, split: usize, shared: &Shared<S>, found: &mut Found) {
        let &Shared { isa, width, .. } = shared;
        self.with_queries(shared, |room, queries, line| {
            queries.attend(split, line, room, width, found);
        });
        // As if joined to what has seen nothing: that makes zero of minus zero.
        found.values.iter_mut().for_each(|value| *value += 0.0);
        for (query, (_, sum)) in found.weights.iter().enumerate() {
            self.finish(isa, query, *sum, &found.values[query * width..][..width]);
        }
    }

    /// Joins what was found in all splits, `[split][query]`, in their order, and writes the answers.
    pub(super) fn join(&mut self, isa: Isa, width: usize, found: &[Partial]) {
        RESULTS.with_borrow_mut(|Results { whole, .. }| {
            let whole = &mut provide(whole, 1, width)[0];
            for query in 0..self.queries() {
                clear(whole);
                found.iter().skip(query).step_by(self.queries()).for_each(|part| whole.join(part));
                self.finish(isa, query, whole.sum, &whole.values);
            }
        });
    }

    /// Several splits, or none.
    fn attend_all<S: TileSource>(
        &mut self,
        splits: Range<usize>,
        shared: &Shared<S>,
        Results { found, part, whole }: &mut Results,
    ) {
        let part = provide(part, self.queries(), shared.width);
        let whole = provide(whole, self.queries(), shared.width);
        whole.iter_mut().for_each(clear);
        self.with_queries(shared, |room, queries, line| {
            for split in splits {
                queries.attend(split, line, room, shared.width, found);
                found.copy_to(part);
                whole.iter_mut().zip(&*part).for_each(|(whole, part)| whole.join(part));
            }
        });
        for (query, whole) in whole.iter().enumerate() {
            self.finish(shared.isa, query, whole.sum, &whole.values);
        }
    }

    /// Packs the queries, finds what they see, and hands both to `run`.
    fn with_queries<S: TileSource>(
        &self,
        shared: &Shared<S>,
        run: impl FnOnce(&mut Room, &Queries, &mut Line<S>),
    ) {
        let &Shared { isa, layer, kept, .. } = shared;
        let group = self.q.dim().1;
        let simd = Simd::within(isa);
        let simd = if self.queries() < MANY_QUERIES { simd.without_tiles() } else { simd };
        let scale = layer.scale * std::f32::consts::LOG2_E;
        let score_cap = layer.score_cap.map(|cap| cap * std::f32::consts::LOG2_E);
        let query = |i| {
            let row = self.q.index_axis(Axis(0), i / group);
            row.index_axis_move(Axis(0), i % group)
                .to_slice()
                .expect("a query's numbers are neighbours")
        };
        BENCH.with_borrow_mut(|Bench { room, blocks: handfuls, packed, sees }| {
            handfuls.clear();
            handfuls.extend(blocks(self.queries(), most_together(isa)));
            <S::Element as TileElement>::Way::pack(simd, scale, handfuls, query, packed);
            sees.clear();
            let places = self.sees.iter().map(|sees| sees.places(layer.window));
            sees.extend(places.flat_map(|places| std::iter::repeat_n(places, group)));
            let queries = Queries { isa, simd, scale, score_cap, blocks: handfuls, packed, sees };
            run(room, &queries, &mut Line::new(kept, self.sequence, self.kv_head, self.sees));
        });
    }

    /// Writes one query's answer `[D_v]`: its sums of values, divided by its sum of weights.
    fn finish(&mut self, isa: Isa, query: usize, sum: f32, values: &[f32]) {
        let group = self.q.dim().1;
        let row = self.out.index_axis_mut(Axis(0), query / group);
        let out = row.index_axis_move(Axis(0), query % group);
        let out = out.into_slice().expect("answers are contiguous");
        isa.run(Divide {
            values: &values[..out.len()],
            by: if sum == 0.0 { 1.0 } else { sum },
            out,
        });
    }
}

/// Divides sums of values by a sum of weights, which is 1 for a query that saw nothing.
struct Divide<'a> {
    values: &'a [f32],
    by: f32,
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Divide<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for (out, value) in self.out.iter_mut().zip(self.values) {
            out.write(value / self.by);
        }
    }
}

/// `count` partials of so many columns. Those that are there are kept, also where fewer are wanted: layers with a window and
/// layers without take turns.
pub(super) fn provide(partials: &mut Vec<Partial>, count: usize, width: usize) -> &mut [Partial] {
    if partials.len() < count {
        partials.resize_with(count, || Partial::empty(width));
    }
    let partials = &mut partials[..count];
    partials.iter_mut().for_each(|partial| partial.values.resize(width, 0.0));
    partials
}

/// Back to what a query that has seen nothing knows, without giving up its room.
fn clear(partial: &mut Partial) {
    (partial.maximum, partial.sum) = (Partial::LOWEST, 0.0);
    partial.values.fill(0.0);
}
