//! One latent for all heads.

use gqa_mla::mla::{Form, MlaConfig};
use kv_cache::{ContiguousStore, KvShape, Place, Store};
use naive_decode::{Element, KvSize, Rope};

const V3: &[u8] = include_bytes!("../configs/deepseek_v3.json");

fn v3_config() -> MlaConfig {
    MlaConfig::from_json("deepseek_v3.json", V3).unwrap()
}

/// What DeepSeek-V3 keeps of a token in one layer.
fn v3(form: Form) -> KvSize {
    v3_config().kv(form)
}

fn bytes(size: KvSize, tokens: usize) -> f64 {
    let KvSize { heads: kv_heads, key_dim, value_dim } = size;
    let shape = KvShape { layers: 61, kv_heads, key_dim, value_dim, element: Element::Bf16 };
    ContiguousStore::new(shape, tokens, 1).unwrap().allocated_bytes() as f64
}

#[test]
fn a_latent_cache_in_bytes() {
    let all = KvSize { heads: 128, key_dim: 128, value_dim: 128 };
    let (heads, latent) = (bytes(all, 4), bytes(v3(Form::Absorbed), 4));
    assert_eq!(latent, 4.0 * 70_272.0);
    assert_eq!((10.0 * heads / latent).round() / 10.0, 56.9);
    assert_eq!((10.0 * bytes(v3(Form::Explicit), 4) / latent).round() / 10.0, 71.1);
    // As many numbers as 2.25 grouped heads of 128 would keep.
    assert_eq!(v3(Form::Absorbed).numbers() as f64 / (2.0 * 128.0), 2.25);
}

/// Attention's work for one cached token.
struct Work {
    flops: f64,
    bytes: f64,
}

#[test]
fn absorbed_attention_does_more_with_fewer_bytes() {
    let work = |queries: usize, size: KvSize, value_dim: usize| Work {
        flops: (2 * queries * (size.key_dim + value_dim)) as f64,
        bytes: 2.0 * size.numbers() as f64,
    };
    let explicit = work(128, v3(Form::Explicit), 128);
    let absorbed = work(128, v3(Form::Absorbed), 512);
    assert_eq!(absorbed.flops / explicit.flops, 3.4);
    assert_eq!((explicit.flops, explicit.bytes), (81_920.0, 81_920.0));
    assert_eq!((absorbed.flops, absorbed.bytes), (278_528.0, 1_152.0));
    assert_eq!((absorbed.flops / absorbed.bytes).round(), 242.0);
}

#[test]
fn what_going_up_for_every_token_would_cost() {
    let config = v3_config();
    let (heads, latent) = (config.model.heads, config.kv_lora_rank);
    // A latent to the content of all heads' keys and to their values, in FLOP.
    let up = (2 * latent * heads * (config.qk_nope_head_dim + config.v_head_dim)) as f64;
    assert_eq!((up / 1e5).round() / 10.0, 33.6);
    let of_a_text = up * 4_096.0 * config.model.layers as f64;
    assert_eq!((of_a_text / 1e11).round() / 10.0, 8.4);
    // Two factors, or their product.
    let queries = config.q_lora_rank.unwrap();
    assert_eq!(heads * config.qk_nope_head_dim * (queries + latent), 33_554_432);
    assert_eq!(heads * queries * latent, 100_663_296);
}

/// `matrix [outputs][inputs]` times a vector.
fn times<const I: usize>(matrix: &[[f32; I]], x: [f32; I]) -> Vec<f32> {
    matrix.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

/// Its transpose times a vector.
fn transposed_times<const I: usize>(matrix: &[[f32; I]], x: &[f32]) -> [f32; I] {
    std::array::from_fn(|i| matrix.iter().zip(x).map(|(row, x)| row[i] * x).sum())
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn absorbed_by_hand() {
    let up = [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]];
    let q = [1.0, 2.0, -1.0];
    let taken_down = transposed_times(&up, &q);
    assert_eq!(taken_down, [0.0, 3.0]);
    for (latent, key, score) in
        [([3.0, 1.0], [3.0, 2.0, 4.0], 3.0), ([1.0, -2.0], [1.0, -4.0, -1.0], -6.0)]
    {
        assert_eq!(times(&up, latent), key);
        assert_eq!(dot(&q, &key), score);
        assert_eq!(dot(&taken_down, &latent), score);
    }
}

#[test]
fn a_turn_in_between_cannot_be_absorbed() {
    let up = [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [-1.0, 1.0]];
    let (q, latent) = ([1.0, 2.0, -1.0, 0.5], [3.0, 1.0]);
    let rope = Rope::new(10_000.0, 4, 16);
    let turned = |x: &[f32], position| {
        let mut x = x.to_vec();
        rope.rotate(&mut x, position).unwrap();
        x
    };
    // Keys turned after they were made: for a key at distance d, `(R_d q) · W c`.
    let taken_down = |distance| transposed_times(&up, &turned(&q, distance));
    assert!(taken_down(3) != taken_down(4));
    // It is the right score, for that one distance.
    let key = turned(&times(&up, latent), 5);
    assert!((dot(&taken_down(3), &latent) - dot(&turned(&q, 8), &key)).abs() < 1e-5);
    assert!((dot(&taken_down(4), &latent) - dot(&turned(&q, 8), &key)).abs() > 1e-2);
}

#[test]
fn a_value_is_the_beginning_of_its_key() {
    let KvSize { heads: kv_heads, key_dim, value_dim } = v3(Form::Absorbed);
    assert_eq!((kv_heads, key_dim, value_dim), (1, 576, 0));
    let shape = KvShape { layers: 1, kv_heads, key_dim, value_dim, element: Element::F32 };
    let mut store = ContiguousStore::new(shape, 2, 1).unwrap();
    let place = Place { sequence: 0, layer: 0, kv_head: 0, slot: 1 };
    let key: Vec<f32> = (0..576).map(|i| i as f32).collect();
    store.write(place, &key, &[]);
    let mut value = vec![0.0; 512];
    store.value(place, &mut value);
    assert_eq!(value, key[..512]);
    assert_eq!(store.allocated_bytes(), 2 * 576 * 4);
}
