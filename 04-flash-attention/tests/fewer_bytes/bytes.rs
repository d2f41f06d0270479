//! What is counted is what the formulas say.

use crate::case::numbers;
use flash_attention::traffic::formula::{self, Sizes};
use flash_attention::traffic::{Bytes, Matrix, Traffic};
use flash_attention::{Head, Tiling, flash_decoding, flash_v1, flash_v2, standard};
use naive_decode::Isa;
use ndarray::{Array2, Axis};
use std::ops::Range;

/// Attention of these sizes in which query `i` sees places `0..sees(i)`; returns what was moved.
fn moved(
    sizes: Sizes,
    sees: impl Fn(usize) -> usize,
    method: &dyn Fn(&Head, &Traffic) -> Array2<f32>,
) -> Traffic {
    let matrix = |seed, rows, columns| numbers(seed, (rows, 1, columns)).remove_axis(Axis(1));
    let sees: Vec<Range<usize>> = (0..sizes.queries).map(|query| 0..sees(query)).collect();
    let (q, k) = (matrix(1, sizes.queries, sizes.key_dim), matrix(2, sizes.places, sizes.key_dim));
    let v = matrix(3, sizes.places, sizes.value_dim);
    let traffic = Traffic::new();
    let head = Head {
        isa: Isa::best(),
        scale: 1.0,
        cap: None,
        queries: q.view(),
        keys: k.view(),
        values: v.view(),
        sees: &sees,
    };
    method(&head, &traffic);
    traffic
}

#[test]
fn counted_bytes_are_the_formulas() {
    let tilings = [(1, 1), (4, 7), (16, 16), (64, 100), (1000, 1000)];
    for (queries, places, key_dim, value_dim) in
        [(1, 1, 1, 1), (5, 40, 8, 8), (3, 512, 4, 6), (12, 700, 16, 12), (40, 1100, 8, 8)]
    {
        let sizes = Sizes { queries, places, key_dim, value_dim };
        let total = |method: &dyn Fn(&Head, &Traffic) -> Array2<f32>| -> Bytes {
            moved(sizes, |_| places, method).total()
        };
        assert_eq!(total(&standard), formula::standard(sizes), "{sizes:?}");
        let decoding = |workers| total(&|head, traffic| flash_decoding(head, workers, traffic));
        for workers in [1, 2, 7] {
            assert_eq!(decoding(workers), formula::flash_decoding(sizes), "{sizes:?}");
        }
        for (queries, keys) in tilings {
            let tiling = Tiling { queries, keys };
            let v1 = total(&|head, traffic| flash_v1(head, tiling, traffic));
            assert_eq!(v1, formula::flash_v1(sizes, tiling), "{sizes:?} {tiling:?}");
            let v2 = total(&|head, traffic| flash_v2(head, tiling, traffic));
            assert_eq!(v2, formula::flash_v2(sizes, tiling), "{sizes:?} {tiling:?}");
        }
    }
}

/// A text of 4,096 tokens, heads 128 wide: 16.7 million scores, or 524 thousand numbers of answers.
#[test]
fn the_published_ratio_is_scores_to_answers() {
    let published = Sizes { queries: 4096, places: 4096, key_dim: 128, value_dim: 128 };
    assert_eq!((published.scores(), published.answers()), (16_777_216, 524_288));
    assert_eq!(published.scores() / published.answers(), 32);
    // The same ratio, counted: what the textbook writes of scores, what the fused loop writes at all.
    let small = Sizes { queries: 256, places: 256, key_dim: 8, value_dim: 8 };
    let textbook = moved(small, |_| 256, &standard);
    let tiling = Tiling { queries: 16, keys: 16 };
    let fused = moved(small, |_| 256, &|head, traffic| flash_v2(head, tiling, traffic));
    assert_eq!(textbook.written(Matrix::Scores) / fused.total().written, 32);
    for matrix in [Matrix::Scores, Matrix::Weights, Matrix::Running, Matrix::Partials] {
        assert_eq!((fused.read(matrix), fused.written(matrix)), (0, 0), "{matrix:?}");
    }
}

/// The ratio of everything that is moved is another: keys and values come again for each tile of queries, so
/// it hangs on how many queries fast memory holds.
#[test]
fn the_whole_ratio_depends_on_fast_memory() {
    let sizes = Sizes { queries: 4096, places: 4096, key_dim: 128, value_dim: 128 };
    let textbook = formula::standard(sizes).moved() as f64;
    let ratio = |tiling| textbook / formula::flash_v2(sizes, tiling).moved() as f64;
    let fitting = |fast_bytes| ratio(Tiling::fitting(fast_bytes, 128));
    assert!(fitting(32 << 10) < 0.5, "16 queries to a tile: keys come 256 times");
    assert!((1.9..2.1).contains(&fitting(1 << 20)), "the paper's tiles are at most D queries");
    assert!(ratio(Tiling { queries: 1024, keys: 64 }) > 12.0, "keys come 4 times");
}

#[test]
fn tiles_that_nobody_sees_are_not_fetched() {
    let (tiles, rows, dim) = (8, 16, 4);
    let places = tiles * rows;
    let sizes = Sizes { queries: places, places, key_dim: dim, value_dim: dim };
    let tiling = Tiling { queries: rows, keys: rows };
    let causal = moved(sizes, |query| query + 1, &|head, traffic| flash_v2(head, tiling, traffic));
    // One tile for the first rows, two for the next, and so on.
    let fetched = tiles * (tiles + 1) / 2 * rows * dim * size_of::<f32>();
    assert_eq!((causal.read(Matrix::Keys), causal.read(Matrix::Values)), (fetched, fetched));
}
