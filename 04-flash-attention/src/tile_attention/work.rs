//! How attention of one layer is shared out among threads.

use super::source::TileSource;
use super::unit::{Shared, Unit, provide};
use crate::threads::{Pool, ahead};
use naive_decode::{Isa, LayerSpec, Partial, Pass, SPLIT, Visible};
use ndarray::{Array3, ArrayView3, ArrayViewMut3, Axis, s};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Queries that one task takes together, about: enough to share each key among, few enough for their
/// scores to stay in a near cache.
const QUERIES_TOGETHER: usize = 48;

/// Below this many multiply-adds, waking another thread costs more than it saves.
const SERIAL_WORK: usize = 1 << 14;

/// With fewer units than this for each thread, units are cut at their splits too, where there is more than one.
const UNITS_PER_THREAD: usize = 4;

/// Rows of a pass from which on weights are multiplied for longer than memory takes to send them.
const ENOUGH_ROWS: usize = 16;

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

/// Attention of all rows of a pass over what a layer keeps: `q [rows, heads, D]` → `[rows, heads, value_dim]`.
///
/// Work is shared out by key-value head and rows; where that gives too few pieces, as for a single row
/// over a long past, also by split (Flash-Decoding, Dao et al. 2023).
///
/// # Panics
/// If there is not a query for each row of the pass, if queries are not as wide as keys, or answers as values, if a query's
/// numbers are not neighbours in memory, or if the number of query heads is not a multiple of the number of key-value heads.
pub fn attend<S: TileSource>(
    isa: Isa,
    layer: LayerSpec,
    pass: &Pass,
    q: ArrayView3<f32>,
    kept: &S,
    value_dim: usize,
    workers: &mut Workers,
) -> Array3<f32> {
    let size = kept.size();
    assert_eq!((q.dim().0, q.dim().2), (pass.rows(), size.key_dim), "rows, and their width");
    assert!([0, value_dim].contains(&size.value_dim), "answers as wide as values");
    let Workers { threads, partials } = workers;
    let width = value_dim.next_multiple_of(naive_decode::numerics::LANES);
    let shared = Shared { isa, layer, kept, width };
    // Not filled with zeros: that would take as long as writing the answers does.
    let mut out = Array3::uninit((q.dim().0, q.dim().1, value_dim));
    // ANCHOR: share_out
    let reach = pass.spans.iter().map(|span| span.end()).max().unwrap_or(0);
    let serial = threads.threads() == 1 || q.len() * reach < SERIAL_WORK;
    let mut rows = rows(pass, q, size.heads, out.view_mut());
    let all_heads = |rows: &mut Rows| rows.units().for_each(|mut unit| unit.attend(&shared));
    let all_heads_and_on = |rows: &mut Rows| {
        all_heads(rows);
        if let ([sees], ENOUGH_ROWS..) = (rows.sees, pass.rows()) {
            let say = |bytes: &[u8]| ahead::reads_soon(layer.index, bytes);
            kept.next_layer(rows.sequence, sees.places(layer.window), say);
        }
    };
    let enough = UNITS_PER_THREAD * threads.threads();
    // The last rows of a prompt see most: nobody should begin with them when the others are done.
    rows.reverse();
    if serial {
        rows.iter_mut().for_each(all_heads);
    } else if rows.len() >= enough {
        // All heads of the same rows, one after another as they lie in memory: a processor that reads on past the end of one
        // head's finds the next one's.
        threads.run_each(&mut rows, &all_heads_and_on);
    } else {
        let mut units: Vec<Unit> = rows.iter_mut().flat_map(Rows::units).collect();
        match units.len() >= enough || reach <= SPLIT {
            true => threads.run_each(&mut units, &|unit| unit.attend(&shared)),
            false => attend_splits(threads, &shared, &mut units, partials),
        }
    }
    // ANCHOR_END: share_out
    // SAFETY: there is a query for each row of the pass, units are all rows and heads, and each has written an answer for
    // every query.
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
        assert_eq!(span.sees.len(), rows.len(), "what each row sees");
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

/// Every split of every unit is a task; then every unit is one, whose results are joined in order.
fn attend_splits<S: TileSource>(
    threads: &Pool,
    shared: &Shared<S>,
    units: &mut [Unit],
    partials: &mut Vec<Partial>,
) {
    let &Shared { isa, layer, width, .. } = shared;
    let count = |unit: &Unit| unit.splits(layer).len() * unit.queries();
    let partials = provide(partials, units.iter().map(count).sum(), width);
    let mut tasks = Vec::new();
    let mut rest = &mut *partials;
    for unit in units.iter() {
        for split in unit.splits(layer) {
            let (own, others) = rest.split_at_mut(unit.queries());
            rest = others;
            tasks.push((unit, split, own));
        }
    }
    threads.run_each(&mut tasks, &|(unit, split, own)| unit.attend_split(*split, shared, own));
    let mut found = &*partials;
    let joins = units.iter_mut().map(|unit| {
        let (own, others) = found.split_at(count(unit));
        found = others;
        (unit, own)
    });
    threads.run_each(&mut joins.collect::<Vec<_>>(), &|(unit, own)| unit.join(isa, width, own));
}

#[cfg(test)]
mod tests {
    use super::super::run::Run;
    use super::super::source::Gathered;
    use super::*;
    use naive_decode::numerics::LANES;
    use naive_decode::{KvSize, Span, Want};
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Any number of sequences of 64 tokens, all alike, and how often somebody asked what the next layer reads of them.
    struct Asked(AtomicUsize);

    const SIZE: KvSize = KvSize { heads: 2, key_dim: 16, value_dim: 16 };
    static NUMBERS: [[f32; LANES]; 64] = [[0.5; LANES]; 64];

    impl TileSource for Asked {
        type Element = f32;
        fn size(&self) -> KvSize {
            SIZE
        }
        fn has_whole_tiles(&self) -> bool {
            true
        }
        fn run(&self, _sequence: usize, _kv_head: usize, _slot: usize) -> Run<'_, f32> {
            Run {
                first: 0,
                end: NUMBERS.len() / SIZE.key_dim * LANES,
                keys: &NUMBERS,
                values: NUMBERS.as_flattened(),
                key_scales: &[],
                value_scales: &[],
                key_dim: SIZE.key_dim,
                width: SIZE.value_dim,
            }
        }
        fn gather(&self, _: usize, _: usize, _: usize, _: Gathered<'_, f32>) {
            unreachable!("tiles are whole")
        }
        fn next_layer(&self, _: usize, slots: Range<usize>, mut say: impl FnMut(&[u8])) {
            assert_eq!(slots, 0..61);
            say(&[]);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn many_texts_leave_word_of_what_the_next_layer_reads() {
        let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale: 0.25, score_cap: None };
        let mut workers = Workers::on(Pool::new(2));
        let mut asked = |texts: usize, tokens: usize| {
            let span = |text| Span::new(text, 61 - tokens, &vec![0; tokens], Want::Last);
            let pass = Pass { spans: (0..texts).map(span).collect() };
            let q = Array3::from_elem((pass.rows(), 4, SIZE.key_dim), 0.1);
            let kept = Asked(AtomicUsize::new(0));
            let out =
                attend(Isa::SCALAR, layer, &pass, q.view(), &kept, SIZE.value_dim, &mut workers);
            assert!(out.iter().all(|&x| (x - 0.5).abs() < 1e-6), "what all values are");
            kept.0.into_inner()
        };
        assert_eq!(asked(ENOUGH_ROWS - 1, 1), 0);
        assert_eq!(asked(ENOUGH_ROWS, 1), ENOUGH_ROWS);
        // Rows of a prompt are many to a text.
        assert_eq!(asked(ENOUGH_ROWS, 2), 0);
    }
}
