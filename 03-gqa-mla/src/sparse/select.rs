//! What one row reads: which blocks in full, which by their stand-in, and the window.

use super::Pattern;
use crate::reading::Reading;
use crate::tiles::Tiles;
use naive_decode::numerics::exp;
use naive_decode::{LayerSpec, Visible};
use ndarray::{ArrayView2, s};
use std::f32::consts::LN_2;

/// The entries that one row reads, of each head: places of `tiles`, of which the first `entries`
/// are the sequence's own and the others stand-ins.
pub(super) struct RowReading<'a> {
    tiles: &'a Tiles,
    /// Number of the sequence's own entries.
    entries: usize,
    block: usize,
    /// Stand-ins that were looked at to choose, in each head.
    compared: usize,
    /// `[kv_heads]`: places to read, in the order of the slots they are of.
    read: Vec<Vec<usize>>,
}

impl<'a> RowReading<'a> {
    /// Chooses for one row with queries `q [heads, D]`. Blocks are made of tokens that it sees all
    /// of, within the layer's window if it has one; what it sees besides, a draft tree's branch for
    /// one, is read in full.
    pub(super) fn choose(
        tiles: &'a Tiles,
        entries: usize,
        pattern: Pattern,
        layer: LayerSpec,
        q: ArrayView2<f32>,
        sees: &Visible,
    ) -> Self {
        let Pattern { block, selected, window } = pattern;
        let (start, end) = (sees.places(layer.window).start, sees.range.end.min(entries));
        let own = start.min(end)..end;
        // A window may begin in the middle of a branch.
        let also = &sees.also[start.saturating_sub(sees.range.end)..];
        // Whole blocks before the window.
        let first = own.start.div_ceil(block);
        let blocks = first..(own.end.saturating_sub(window) / block).max(first);
        let compared = if blocks.len() > selected { blocks.len() } else { 0 };
        let group = q.nrows() / tiles.heads.len();
        // ANCHOR: choose
        let read = (0..tiles.heads.len()).map(|kv_head| {
            let in_full = if compared > 0 {
                let stand_ins: Vec<usize> = blocks.clone().map(|block| entries + block).collect();
                let queries = q.slice(s![kv_head * group..(kv_head + 1) * group, ..]);
                best(&liked(tiles, layer, kv_head, queries, &stand_ins), selected)
            } else {
                vec![true; blocks.len()]
            };
            let mut read: Vec<usize> = (own.start..(first * block).min(own.end)).collect();
            for (number, in_full) in blocks.clone().zip(in_full) {
                match in_full {
                    true => read.extend(number * block..(number + 1) * block),
                    false => read.push(entries + number),
                }
            }
            read.extend((blocks.end * block).max(own.start)..own.end);
            read.extend(also);
            read
        });
        // ANCHOR_END: choose
        let read = read.collect();
        RowReading { tiles, entries, block, compared, read }
    }

    /// Entries read by all heads together, stand-ins that were only compared included.
    pub(super) fn entries_read(&self) -> usize {
        let own = |read: &Vec<usize>| read.iter().filter(|&&place| place < self.entries).count();
        self.read.iter().map(|read| own(read) + self.compared).sum()
    }

    fn places_of(&self, kv_head: usize, places: &[usize]) -> Vec<usize> {
        places.iter().map(|&place| self.read[kv_head][place]).collect()
    }
}

/// How much each stand-in is liked by the queries `[group, D]` of one group: the sum of their
/// softmax weights over stand-ins (§3.3.2, equations 8 to 10, with blocks for comparison and for
/// selection the same).
fn liked(
    tiles: &Tiles,
    layer: LayerSpec,
    kv_head: usize,
    queries: ArrayView2<f32>,
    stand_ins: &[usize],
) -> Vec<f32> {
    let mut liked = vec![0.0; stand_ins.len()];
    let mut scores = vec![0.0; stand_ins.len()];
    for query in queries.outer_iter() {
        tiles.scores(kv_head, &query.to_vec(), stand_ins, &mut scores);
        layer.score(tiles.isa, &mut scores);
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|score| *score = exp((*score - highest) * LN_2));
        let sum: f32 = scores.iter().sum();
        liked.iter_mut().zip(&scores).for_each(|(liked, weight)| *liked += weight / sum);
    }
    liked
}

/// Marks the first block, which is always among them, and those liked best, `count` in all.
fn best(liked: &[f32], count: usize) -> Vec<bool> {
    let mut others: Vec<usize> = (1..liked.len()).collect();
    others.sort_by(|&a, &b| liked[b].total_cmp(&liked[a]));
    let mut marked = vec![false; liked.len()];
    let first = liked.first().map(|_| 0);
    first.into_iter().chain(others).take(count).for_each(|block| marked[block] = true);
    marked
}

impl Reading for RowReading<'_> {
    fn kv_heads(&self) -> usize {
        self.read.len()
    }

    fn places(&self, kv_head: usize) -> usize {
        self.read[kv_head].len()
    }

    /// A stand-in has the slot of its block's last token.
    fn slot(&self, kv_head: usize, place: usize) -> usize {
        let place = self.read[kv_head][place];
        match place.checked_sub(self.entries) {
            None => place,
            Some(block) => (block + 1) * self.block - 1,
        }
    }

    fn scores(&self, kv_head: usize, query: &[f32], places: &[usize], scores: &mut [f32]) {
        let places = self.places_of(kv_head, places);
        self.tiles.scores(kv_head, query, &places, scores);
    }

    /// A stand-in counts for all of its block, however its score was bent.
    fn add_counts(&self, kv_head: usize, places: &[usize], scores: &mut [f32]) {
        let count = libm::log2f(self.block as f32);
        for (score, place) in scores.iter_mut().zip(self.places_of(kv_head, places)) {
            if place >= self.entries {
                *score += count;
            }
        }
    }

    fn add_values(&self, kv_head: usize, weights: &[f32], places: &[usize], sum: &mut [f32]) {
        let places = self.places_of(kv_head, places);
        self.tiles.add_values(kv_head, weights, &places, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiles::Tiled;
    use naive_decode::Isa;
    use ndarray::array;

    #[test]
    fn blocks_are_chosen_by_scores_as_they_are_bent() {
        // Blocks of one token, each its own stand-in. The first query finds all in block 1, the second a little more in block 2.
        // Without a cap the first is surer than the second; bent towards 1, neither of its scores says so much.
        let keys = [[0.0, 0.0], [50.0, -1.0], [0.0, 1.0], [0.0, 0.0]];
        let mut tiled = Tiled::new((0..8).collect(), 2, 1);
        for (place, key) in keys.iter().chain(&keys).enumerate() {
            tiled.put(place, key, &[0.0]);
        }
        let tiles = Tiles { heads: vec![tiled], isa: Isa::best() };
        let queries = array![[1.0, 0.0], [0.0, 1.0]];
        let chosen = |score_cap| {
            let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale: 1.0, score_cap };
            let pattern = Pattern { block: 1, selected: 2, window: 1 };
            let sees = Visible::until(4);
            RowReading::choose(&tiles, 4, pattern, layer, queries.view(), &sees).read[0].clone()
        };
        // A stand-in is read of those that were not chosen.
        assert_eq!(chosen(None), [0, 1, 4 + 2, 3]);
        assert_eq!(chosen(Some(1.0)), [0, 4 + 1, 2, 3]);
    }
}
