//! Every instruction set takes the steps that one would take by hand.

use super::*;
use crate::tile_attention::element::{put_key, put_value};
use crate::tile_attention::run::Run;
use naive_decode::break_it::noise;
use naive_decode::numerics::round_to_bf16;
use ndarray::ArrayView1;

/// The sum of products in blocks, added to `sum`: even numbers one chain, odd ones another.
fn plain(sum: f32, a: &[f32], b: &[f32], block: usize) -> f32 {
    a.chunks(block).zip(b.chunks(block)).fold(sum, |sum, (a, b)| {
        let chain = |first: usize| {
            let products = a.iter().zip(b).skip(first).step_by(2);
            products.fold(0.0f32, |sum, (a, b)| a.mul_add(*b, sum))
        };
        sum + (chain(0) + chain(1))
    })
}

fn rounded(numbers: impl IntoIterator<Item = f32>) -> Vec<f32> {
    numbers.into_iter().map(round_to_bf16).collect()
}

/// Keys and values of `places` places; what is past them in the last tile is not zero.
struct Kept {
    /// `[places][dim]`, `[places][width]`, as kept.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    tiles: Vec<[Paired; LANES]>,
    value_tiles: Vec<Paired>,
}

impl Kept {
    fn new(places: usize, dim: usize, width: usize) -> Self {
        let slots = places.next_multiple_of(LANES);
        let rows = |seed: u64, width: usize| -> Vec<Vec<f32>> {
            let all = noise(seed, slots * width);
            all.chunks(width).map(|row| rounded(row.iter().copied())).collect()
        };
        let (keys, values) = (rows(1, dim), rows(2, width));
        let mut tiles = vec![[Paired::default(); LANES]; slots / LANES * dim];
        let mut value_tiles = vec![Paired::default(); slots * width];
        for (place, (key, value)) in keys.iter().zip(&values).enumerate() {
            let tile = tiles[place / LANES * dim..][..dim].as_flattened_mut();
            put_key(tile, LANES, place % LANES, ArrayView1::from(key));
            put_value(&mut value_tiles, LANES, width, place, ArrayView1::from(value));
        }
        Kept { keys, values, tiles, value_tiles }
    }

    fn tiles(&self, places: usize, width: usize) -> Tiles<'_, Paired> {
        let run = Run {
            first: 0,
            end: self.keys.len(),
            keys: &self.tiles,
            values: &self.value_tiles[..if width > 0 { self.value_tiles.len() } else { 0 }],
            key_scales: &[],
            value_scales: &[],
            key_dim: self.keys[0].len(),
            width,
        };
        Tiles::of(std::iter::once(run), &(0..places))
    }
}

#[track_caller]
fn same(found: f32, expected: f32, what: &str) {
    assert_eq!(found.to_bits(), expected.to_bits(), "{what}: {found:e}, expected {expected:e}");
}

#[test]
fn scores_are_blocks_of_32_in_order() {
    for dim in [4, 20, 32, 36, 64, 100, 128] {
        for (queries, places) in [(1, 1), (3, 70), (8, 16), (16, 33), (17, 40), (48, 200)] {
            let kept = Kept::new(places, dim, LANES);
            let q = noise(3, queries * dim);
            for simd in Simd::available() {
                let mut packed = vec![0; queries * dim / 2];
                round(simd, &q, 0.3, &mut packed);
                let tiles = kept.tiles(places, LANES);
                let mut scores = vec![[f32::NAN; LANES]; queries * tiles.count];
                score(simd, &packed, tiles.keys(), tiles.values(), &mut scores);
                for (query, scores) in scores.chunks_exact(tiles.count).enumerate() {
                    let q = rounded(q[query * dim..][..dim].iter().map(|q| q * 0.3));
                    for (place, key) in kept.keys.iter().enumerate().take(places) {
                        let what = format!("{simd:?}: {dim} wide, query {query}, place {place}");
                        let expected = plain(0.0, &q, key, 2 * BLOCK);
                        same(scores.as_flattened()[place], expected, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn values_are_added_tile_by_tile() {
    for width in [16, 48, 64, 112] {
        for (queries, places) in [(1, 1), (3, 70), (8, 16), (16, 33), (17, 41), (48, 200)] {
            let kept = Kept::new(places, 96, width);
            // A value of its own, and one that is the beginning of its key.
            for (own, columns) in [(width, width), (0, width.min(96))] {
                for simd in Simd::available() {
                    let (mut room, tiles) = (Room::default(), kept.tiles(places, own));
                    let weights: Vec<Vec<f32>> = (0..queries)
                        .map(|query| {
                            let mut weights = noise(4 + query as u64, tiles.count * LANES);
                            weights[places..].fill(0.0);
                            room.take_weights(simd, query, &weights);
                            rounded(weights)
                        })
                        .collect();
                    let mut sums = vec![0.0; queries * width];
                    room.add_values(simd, &tiles, &mut sums, width);
                    for (query, weights) in weights.iter().enumerate() {
                        for column in 0..columns {
                            let rows = if own > 0 { &kept.values } else { &kept.keys };
                            let values: Vec<f32> = rows.iter().map(|row| row[column]).collect();
                            let found = sums[query * width + column];
                            let what = format!("{simd:?}: {width} wide, query {query}, {column}");
                            same(found, plain(0.0, weights, &values, LANES), &what);
                        }
                    }
                }
            }
        }
    }
}

/// Half of the smallest number is what the first tile's values leave, which is zero to the second tile's.
#[test]
fn what_became_zero_is_not_added() {
    let (places, width) = (2 * LANES, 16);
    let mut kept = Kept::new(places, 32, width);
    let small = 2f32.powi(-63);
    for place in 0..places {
        let value = match place {
            0 => 1.5 * small,
            1 => -small,
            16 => small,
            _ => 0.0,
        };
        kept.values[place] = vec![value; width];
        let value = ArrayView1::from(&kept.values[place]);
        put_value(&mut kept.value_tiles, LANES, width, place, value);
    }
    for simd in Simd::available() {
        let (mut room, tiles) = (Room::default(), kept.tiles(places, width));
        room.take_weights(simd, 0, &vec![small; places]);
        let mut sums = vec![0.0; width];
        room.add_values(simd, &tiles, &mut sums, width);
        sums.iter().for_each(|&sum| same(sum, f32::MIN_POSITIVE, &format!("{simd:?}")));
    }
}
