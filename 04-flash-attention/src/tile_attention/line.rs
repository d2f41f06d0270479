//! The places that some rows see, as runs of tiles.

use super::element::TileElement;
use super::run::Run;
use super::source::{Gathered, TileSource};
use naive_decode::numerics::LANES;
use naive_decode::{KvSize, Visible};
use std::ops::Range;

/// One head of a sequence, place by place.
///
/// Most places are read where they are kept. Two kinds are first copied together: those of a draft tree's
/// branch, whose slots have other branches' between them; and all of them, where a tile's slots do not lie
/// together.
pub(super) struct Line<'a, S: TileSource> {
    source: &'a S,
    sequence: usize,
    kv_head: usize,
    /// The row whose line of slots it is, if that is not the slots' own order.
    branch: Option<&'a Visible>,
    /// Places from here on are copied; a multiple of sixteen.
    gathered_from: usize,
    gathered: Copied<S::Element>,
}

/// Places that are copied, from a multiple of sixteen on.
struct Copied<E> {
    places: Range<usize>,
    keys: Vec<[E; LANES]>,
    values: Vec<E>,
    key_scales: Vec<f32>,
    value_scales: Vec<f32>,
}

impl<'a, S: TileSource> Line<'a, S> {
    /// The line of rows that see `sees`: any number of rows of the text, or one of a draft tree.
    pub(super) fn new(source: &'a S, sequence: usize, kv_head: usize, sees: &'a [Visible]) -> Self {
        let branch = match sees {
            [sees] if !sees.also.is_empty() => Some(sees),
            _ => None,
        };
        let gathered_from = match (source.has_whole_tiles(), branch) {
            (false, _) => 0,
            // The first place that does not stand where its slot does shares a tile with some that do.
            (true, Some(sees)) => sees.range.end / LANES * LANES,
            (true, None) => usize::MAX,
        };
        let gathered = Copied {
            places: 0..0,
            keys: Vec::new(),
            values: Vec::new(),
            key_scales: Vec::new(),
            value_scales: Vec::new(),
        };
        Line { source, sequence, kv_head, branch, gathered_from, gathered }
    }

    /// Copies what must be copied of `places`, which begin with a whole tile.
    pub(super) fn gather(&mut self, places: &Range<usize>) {
        let start = places.start.max(self.gathered_from);
        let places = start..places.end.max(start);
        if places.is_empty() {
            self.gathered.places = 0..0;
            return;
        }
        let size = self.source.size();
        let width = size.value_dim.next_multiple_of(LANES);
        self.gathered.clear(places.clone(), size.key_dim, width);
        for (i, place) in places.enumerate() {
            let slot = self.branch.map_or(place, |sees| sees.slot(place));
            let copy = self.gathered.place(i, size.key_dim, width);
            self.source.gather(self.sequence, self.kv_head, slot, copy);
        }
    }

    /// The runs that `places` lie in, in order, once [`Line::gather`] has seen to those places.
    pub(super) fn runs(
        &self,
        places: &Range<usize>,
    ) -> impl Iterator<Item = Run<'_, S::Element>> + Clone {
        let Line { source, sequence, kv_head, gathered_from, .. } = *self;
        let (mut at, end) = (places.start, places.end.min(gathered_from));
        let kept = std::iter::from_fn(move || {
            (at < end).then(|| {
                // A branch's own places come from the copy.
                let run = source.run(sequence, kv_head, at).until(gathered_from);
                at = run.end;
                run
            })
        });
        let copied = (!self.gathered.places.is_empty()).then(|| self.gathered.run(source.size()));
        kept.chain(copied)
    }
}

impl<E: TileElement> Copied<E> {
    /// Room for some places, nothing in it.
    fn clear(&mut self, places: Range<usize>, key_dim: usize, width: usize) {
        let slots = places.len().next_multiple_of(LANES);
        refill(&mut self.keys, slots / LANES * key_dim, [E::default(); LANES]);
        refill(&mut self.values, slots * width, E::default());
        let scales = if E::SCALED { slots } else { 0 };
        refill(&mut self.key_scales, scales, 0.0);
        refill(&mut self.value_scales, scales, 0.0);
        self.places = places;
    }

    /// Room for the `i`-th of the places.
    fn place(&mut self, i: usize, key_dim: usize, width: usize) -> Gathered<'_, E> {
        let keys = &mut self.keys[i / LANES * key_dim..][..key_dim];
        let values = &mut self.values[i / LANES * LANES * width..][..LANES * width];
        let scales = self.key_scales.get_mut(i).zip(self.value_scales.get_mut(i));
        Gathered { keys, lane: i % LANES, values, scales }
    }

    fn run(&self, size: KvSize) -> Run<'_, E> {
        Run {
            first: self.places.start,
            end: self.places.end.next_multiple_of(LANES),
            keys: &self.keys,
            values: &self.values,
            key_scales: &self.key_scales,
            value_scales: &self.value_scales,
            key_dim: size.key_dim,
            width: size.value_dim.next_multiple_of(LANES),
        }
    }
}

fn refill<T: Copy>(items: &mut Vec<T>, count: usize, item: T) {
    items.clear();
    items.resize(count, item);
}
