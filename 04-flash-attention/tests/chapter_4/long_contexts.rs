//! A long past.

use super::head;
use flash_attention::tile_attention::KvType;
use flash_attention::traffic::Traffic;
use flash_attention::{FlashCache, flash_decoding};
use kv_cache::KvCache;
use naive_decode::break_it::noise;
use naive_decode::{Attention, Element, Isa, KvSize, LayerSpec, Partial, Pass, SPLIT, Span, Want};
use ndarray::{Array2, Array3, array};

#[test]
fn two_parts_merged_by_hand() {
    let mut whole = Partial { maximum: 3, sum: 2.0, values: vec![2.0] };
    let other = Partial { maximum: 5, sum: 1.5, values: vec![0.0] };
    let average = (whole.values[0] / whole.sum + other.values[0] / other.sum) / 2.0;
    assert_eq!(average, 0.5);
    whole.join(&other);
    assert_eq!(whole.finish().next(), Some(0.25));
}

#[test]
fn at_most_one_worker_for_each_split() {
    let splits = |past: usize| past.div_ceil(SPLIT);
    assert_eq!(splits(4_096), 8);
    assert_eq!(splits(512), 1);
    let numbers = |seed, rows: usize| Array2::from_shape_vec((rows, 4), noise(seed, rows * 4));
    let (q, k, v) =
        (numbers(1, 1).unwrap(), numbers(2, 4_096).unwrap(), numbers(3, 4_096).unwrap());
    let sees = std::iter::once(0..4_096).collect::<Vec<_>>();
    let head = head(&q, &k, &v, &sees);
    let alone = flash_decoding(&head, 1, &Traffic::new());
    for workers in [2, 3, 8, 100] {
        assert_eq!(flash_decoding(&head, workers, &Traffic::new()), alone);
    }
}

#[test]
fn a_weight_is_rounded_once_it_has_been_added() {
    let answer = |kept: KvType| {
        let size = KvSize { heads: 1, key_dim: 4, value_dim: 1 };
        let mut cache = FlashCache::of_sizes(&[Some(size)], kept, Isa::best(), 2, 1).unwrap();
        let pass = Pass::one(Span::new(0, 0, &[0, 0], Want::All));
        let scale = 1.0 / std::f32::consts::LOG2_E;
        let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale, score_cap: None };
        let rows = |first: [f32; 2]| {
            Array3::from_shape_fn((2, 1, 4), |(row, _, d)| if d == 0 { first[row] } else { 0.0 })
        };
        let (q, k, v) = (rows([1.0, 1.0]), rows([0.0, -0.5]), array![[[0.0]], [[1.0]]]);
        cache.begin(&pass).unwrap();
        cache.attend(layer, &pass, q.view(), k.view(), v.view()).unwrap()[[1, 0, 0]]
    };
    let rounded = |answer: f32| (f64::from(answer) * 1e5).round() / 1e5;
    let (fast, exact) = (answer(KvType::Bf16Fast), answer(Element::Bf16.into()));
    assert_eq!(rounded(fast), 0.41417);
    assert_eq!(rounded(exact), 0.41421);
}

#[test]
fn a_byte_serves_as_many_queries_as_share_it() {
    let size = KvSize { heads: 3, key_dim: 64, value_dim: 64 };
    // For one token of the past: a score and a weighted value for each of nine query heads.
    let flops = 2 * 9 * (size.key_dim + size.value_dim);
    let per_byte = |element: Element| flops as f64 / (size.numbers() * element.bytes()) as f64;
    assert_eq!(per_byte(Element::Bf16), 3.0);
    assert_eq!(per_byte(Element::F32), 1.5);
}

#[test]
fn room_comes_in_whole_tiles() {
    let size = KvSize { heads: 2, key_dim: 64, value_dim: 64 };
    let cache =
        FlashCache::of_sizes(&[Some(size)], Element::F32.into(), Isa::best(), 161, 1).unwrap();
    assert_eq!(cache.allocated_bytes() / cache.bytes_per_token(), 176);
}
