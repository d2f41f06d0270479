//! Where the bytes go.

use super::{smollm2, smollm2_weights};
use flash_attention::Tiling;
use flash_attention::fusion::llama;
use flash_attention::traffic::Bytes;
use flash_attention::traffic::formula::{self, Sizes};

const PUBLISHED: Sizes = Sizes { queries: 4096, places: 4096, key_dim: 128, value_dim: 128 };

fn fused(queries: usize) -> usize {
    formula::flash_v2(PUBLISHED, Tiling { queries, keys: 128 }).moved()
}

#[test]
fn standard_attention_of_4096_tokens() {
    let Bytes { read, written } = formula::standard(PUBLISHED);
    assert_eq!(read + written, 276_824_064);
    let scores = 4 * PUBLISHED.scores();
    assert_eq!((4 * scores) as f64 / (read + written) as f64, 32.0 / 33.0);
    // Queries, keys, values and answers, each once.
    assert_eq!(4 * 4 * PUBLISHED.answers(), 8_388_608);
}

#[test]
fn tiles_of_128_queries_halve_the_traffic() {
    let standard = formula::standard(PUBLISHED).moved();
    assert_eq!(standard / fused(128), 2);
    let times = |queries| (100.0 * standard as f64 / fused(queries) as f64).round() / 100.0;
    assert_eq!([16, 64, 128, 256].map(times), [0.26, 1.02, 2.0, 3.88]);
    assert_eq!([1024, 4096].map(times), [13.2, 33.0]);
}

/// The exercise on the first version: states go out and come in for each tile of keys.
#[test]
fn the_first_version_moves_states() {
    let v1 = formula::flash_v1(PUBLISHED, Tiling { queries: 128, keys: 128 }).moved();
    assert_eq!(v1, 280_657_920);
    let (query, state) = (128, 1 + 16 + 128);
    assert_eq!(4 * (query + 2 * state) * 4_096 * 32, 219_152_384);
    assert_eq!(4 * 2 * PUBLISHED.answers() * 32, 134_217_728);
}

#[test]
fn the_paper_gives_128_queries_to_256_kilobytes() {
    let tiling = Tiling::fitting(256 << 10, 128);
    assert_eq!(tiling, Tiling { queries: 128, keys: 128 });
    assert_eq!(Tiling::fitting(32 << 10, 128), Tiling { queries: 16, keys: 16 });
}

#[test]
fn a_decode_step_has_hardly_any_scores() {
    let decode = |queries| Sizes { queries, ..PUBLISHED };
    let share = |sizes: Sizes| {
        100.0 * (4 * 4 * sizes.scores()) as f64 / formula::standard(sizes).moved() as f64
    };
    assert_eq!((10.0 * share(decode(1))).round() / 10.0, 1.5);
    assert_eq!((10.0 * share(decode(8))).round() / 10.0, 11.1);
}

/// The table of the chapter's first page: one token, and a prompt of 2,048.
#[test]
fn what_a_model_of_135_million_weights_moves() {
    let (config, tokens) = (smollm2(), 2_048);
    assert_eq!(smollm2_weights(), 134_479_872);
    let megabytes = |numbers: usize| (4.0 * numbers as f64 / 1e5).round() / 10.0;
    assert_eq!(megabytes(smollm2_weights()), 537.9);
    let kept = config.layers * tokens * 2 * config.kv_heads * config.head_dim;
    assert_eq!(megabytes(kept), 94.4);
    let (read, written) = llama(&config, 0..config.layers).numbers_per_row();
    assert_eq!(read + written, 709_632);
    assert_eq!(megabytes(read + written), 2.8);
    // Scores out and in, weights out and in.
    let scores = |rows: usize| 4 * config.layers * config.heads * rows * tokens;
    assert_eq!(megabytes(scores(1)), 8.8);
    let gigabytes = |numbers: usize| (4.0 * numbers as f64 / 1e8).round() / 10.0;
    assert_eq!(gigabytes(tokens * (read + written)), 5.8);
    assert_eq!(gigabytes(scores(tokens)), 18.1);
}
