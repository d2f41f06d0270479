//! A softmax in pieces.

use super::{adding, head};
use flash_attention::traffic::{Matrix, Traffic};
use flash_attention::{Online, Tiling, flash_v1, flash_v2};
use naive_decode::break_it::noise;
use naive_decode::numerics::{exp, exp2_parts, power_of_two};
use ndarray::{Array2, s};

fn numbers(seed: u64, rows: usize, columns: usize) -> Array2<f32> {
    Array2::from_shape_vec((rows, columns), noise(seed, rows * columns)).unwrap()
}

/// The example that the page works by hand: four base-2 scores, and values 1 to 4.
#[test]
fn online_softmax_by_hand() {
    let scores = [1.5, 3.25, 0.75, 5.0];
    let values = Array2::from_shape_fn((4, 1), |(place, _)| place as f32 + 1.0);
    let nothing = Array2::zeros((0, 1));
    let head = adding(nothing.view());
    let in_tiles_of = |size: usize| {
        let mut online = Online::new(1);
        for first in (0..4).step_by(size) {
            let tile = first..first + size;
            online.update(&head, first, &scores[tile.clone()], values.slice(s![tile, ..]));
        }
        online
    };
    let mut first_tile = Online::new(1);
    first_tile.update(&head, 0, &scores[..2], values.slice(s![..2, ..]));
    assert_eq!(first_tile.maximum, 3);
    let before = first_tile.values[0];
    first_tile.move_maximum(5);
    assert_eq!(first_tile.values[0] / before, 0.25);
    let rounded = |x: f32| (1000.0 * x).round() / 1000.0;
    let two = in_tiles_of(2);
    let sum: f32 = two.lanes.iter().sum();
    assert_eq!([before, sum, two.values[0]].map(rounded), [2.732, 1.438, 4.841]);
    assert_eq!(rounded(two.values[0] / sum), 3.366);
    assert_eq!(in_tiles_of(1), two);
    assert_eq!(in_tiles_of(4), two);
}

/// Sum of the weights of scores that come in tiles, each time brought to the maximum so far.
fn sum_in_tiles(
    scores: &[f32],
    size: usize,
    maximum_of: fn(f32) -> f32,
    weight: fn(f32, f32) -> f32,
    factor: fn(f32) -> f32,
) -> f32 {
    let (mut maximum, mut sum) = (f32::NEG_INFINITY, 0.0);
    for tile in scores.chunks(size) {
        let high = tile.iter().fold(maximum, |high, &score| high.max(maximum_of(score)));
        if high > maximum && maximum > f32::NEG_INFINITY {
            sum *= factor(maximum - high);
        }
        maximum = high;
        for &score in tile {
            sum += weight(score, maximum);
        }
    }
    sum
}

#[test]
fn an_integer_maximum_makes_tiles_exact_and_another_does_not() {
    let with_integers = |scores: &[f32], size| {
        let weight = |score: f32, maximum: f32| {
            let (p, i) = exp2_parts(score);
            p * power_of_two(i - maximum as i32)
        };
        sum_in_tiles(scores, size, f32::floor, weight, |moved| power_of_two(moved as i32))
    };
    let with_floats = |scores: &[f32], size| {
        sum_in_tiles(scores, size, |score| score, |score, maximum| exp(score - maximum), exp)
    };
    let rows: Vec<Vec<f32>> = (0..200).map(|row| noise(row, 96)).collect();
    let differing = |sum: &dyn Fn(&[f32], usize) -> f32| {
        let rows = rows.iter().map(|row| row.iter().map(|x| 20.0 * x).collect::<Vec<f32>>());
        rows.filter(|scores| sum(scores, 16).to_bits() != sum(scores, 96).to_bits()).count()
    };
    let (integers, floats) = (differing(&with_integers), differing(&with_floats));
    assert_eq!(integers, 0);
    assert!(floats > 0);
}

#[test]
fn only_the_first_version_sends_states_out() {
    let (q, k, v) = (numbers(1, 40, 8), numbers(2, 40, 8), numbers(3, 40, 8));
    let sees = vec![0..40; 40];
    let head = head(&q, &k, &v, &sees);
    let tiling = Tiling { queries: 8, keys: 8 };
    let (v1, v2) = (Traffic::new(), Traffic::new());
    assert_eq!(flash_v1(&head, tiling, &v1), flash_v2(&head, tiling, &v2));
    assert!(v1.written(Matrix::Running) > 0);
    assert_eq!(v2.written(Matrix::Running), 0);
    // What each fetches again: queries for every tile of keys, or keys for every tile of queries.
    let times = |traffic: &Traffic, matrix| traffic.read(matrix) / (40 * 8 * 4);
    assert_eq!([Matrix::Queries, Matrix::Keys].map(|matrix| times(&v1, matrix)), [5, 1]);
    assert_eq!([Matrix::Queries, Matrix::Keys].map(|matrix| times(&v2, matrix)), [1, 5]);
}
