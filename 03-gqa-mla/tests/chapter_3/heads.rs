//! The price of a cache, and heads.

use super::{bits, naive, target_config, text};
use gqa_mla::faults::Tiled;
use gqa_mla::fit::{Budget, PUBLISHED, PublishedModel};
use gqa_mla::heads;
use naive_decode::{
    Attention, Isa, KvSize, LayerSpec, LoadOptions, Model, NaiveAttention, Pass, Span, Want, dense,
    random_tensors,
};
use ndarray::Array3;

fn published(name: &str) -> PublishedModel {
    *PUBLISHED.iter().find(|model| model.name == name).unwrap()
}

/// Multi-head attention's keys and values.
fn all_heads(heads: usize, dim: usize) -> KvSize {
    KvSize { heads, key_dim: dim, value_dim: dim }
}

#[test]
fn as_many_kv_heads_as_queries() {
    let with_kv_heads = |heads| {
        let model = PublishedModel { kv: all_heads(heads, 128), ..published("Llama-2-70B") };
        model.kv_bytes_per_token(16.0)
    };
    assert_eq!(with_kv_heads(64), 2_621_440.0);
    assert_eq!(with_kv_heads(8), 327_680.0);
}

#[test]
fn repeated_heads_cost_bytes_and_change_no_bit() {
    let model = |kv_heads| -> Model {
        let options = LoadOptions::default();
        let (tensors, pack) = (random_tensors(1), dense(options.isa));
        heads::assemble(target_config(), kv_heads, options, &tensors, &pack).unwrap()
    };
    let (one, two, eight) = (model(1), model(2), model(8));
    let [logits, repeated_logits, pooled] = [&two, &eight, &one].map(|m| naive(m, &text(12)));
    assert_eq!(bits(&repeated_logits), bits(&logits));
    assert_ne!(bits(&pooled), bits(&logits));
    assert_eq!([&one, &two, &eight].map(|m| m.kv_bytes_per_token()), [1_536, 3_072, 12_288]);
}

#[test]
fn grouping_by_stride_is_wrong_for_half_of_the_heads() {
    let wrong = |heads: usize, kv_heads: usize| {
        // Of one token each query head reads its key-value head's value, which is that head's number.
        let (q, k) = (Array3::ones((1, heads, 2)), Array3::ones((1, kv_heads, 2)));
        let v = Array3::from_shape_fn((1, kv_heads, 1), |(_, kv_head, _)| kv_head as f32);
        let pass = Pass::one(Span::new(0, 0, &[0], Want::Nothing));
        let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale: 1.0, score_cap: None };
        let read = |attention: &mut dyn Attention| {
            attention.begin(&pass).unwrap();
            attention.attend(layer, &pass, q.view(), k.view(), v.view()).unwrap()
        };
        let by_group = read(&mut NaiveAttention::new(Isa::best()));
        let by_stride = read(&mut Tiled { attention: NaiveAttention::new(Isa::best()) });
        by_group.iter().zip(&by_stride).filter(|(a, b)| a != b).count()
    };
    assert_eq!(wrong(8, 2), 4);
    assert_eq!([1, 4, 8].map(|kv_heads| wrong(8, kv_heads)), [0, 6, 0]);
}

/// Two accelerators of 80 GB.
fn two_cards(weight_bits: f64, kv_bits: f64) -> Budget {
    Budget { bytes: 160e9, weight_bits, kv_bits }
}

#[test]
fn what_two_cards_hold_of_a_70b_model() {
    let model = published("Llama-3-70B");
    let batch = |weights, kv| model.largest_batch(two_cards(weights, kv), 8_192);
    assert_eq!(batch(16.0, 16.0), 7);
    assert_eq!(batch(16.0, 8.0), 14);
    assert_eq!(batch(4.5, 16.0), 44);
    assert_eq!(batch(4.5, 8.0), 89);
    let room = |weights| model.room(two_cards(weights, 16.0)) / 1e9;
    assert_eq!([16.0, 4.5].map(|weights| (10.0 * room(weights)).round()), [189.0, 1_203.0]);
    // Bits that a number of the cache may have if a hundred requests are to fit.
    let bits = |weights| 16.0 * room(weights) * 1e9 / (100.0 * model.kv_bytes(8_192, 16.0));
    assert_eq!([16.0, 4.5].map(|weights| (10.0 * bits(weights)).round()), [11.0, 72.0]);
}

#[test]
fn what_fits_two_cards() {
    let expected = [
        ("Llama-2-70B", 138.0, 327_680.0, Some(4_096), 16),
        ("Llama-3-8B", 16.1, 131_072.0, Some(8_192), 134),
        ("Llama-3-70B", 141.1, 327_680.0, Some(8_192), 7),
        ("Mistral-7B-v0.1", 14.5, 131_072.0, Some(32_768), 271),
        ("Qwen2.5-7B", 15.2, 57_344.0, Some(131_072), 308),
        ("Qwen2.5-72B", 145.4, 327_680.0, Some(44_517), 5),
        ("DeepSeek-V2", 471.5, 69_120.0, None, 0),
        ("DeepSeek-V3", 1_342.1, 70_272.0, None, 0),
    ];
    let budget = two_cards(16.0, 16.0);
    for (name, weights, per_token, longest, batch) in expected {
        let model = published(name);
        assert_eq!((model.weight_bytes(16.0) / 1e8).round() / 10.0, weights, "{name}");
        assert_eq!(model.kv_bytes_per_token(16.0), per_token, "{name}");
        assert_eq!(model.longest_context(budget, 1), longest, "{name}");
        let context = model.trained_context.min(8_192);
        assert_eq!(model.largest_batch(budget, context), batch, "{name}");
    }
}

#[test]
fn a_latent_serves_198_requests_where_heads_would_serve_three() {
    let latent = published("DeepSeek-V3");
    let heads = PublishedModel { kv: all_heads(128, 128), ..latent };
    let eight_cards = Budget { bytes: 8.0 * 141e9, weight_bits: 8.0, kv_bits: 16.0 };
    assert_eq!(latent.largest_batch(eight_cards, 32_768), 198);
    assert_eq!(heads.largest_batch(eight_cards, 32_768), 3);
    assert_eq!(heads.kv_bytes_per_token(16.0), 3_997_696.0);
    assert_eq!((heads.kv_bytes(32_768, 16.0) / 1e9).round(), 131.0);
}

#[test]
fn layers_latents_and_six_bits_are_93_percent_less() {
    // 95 layers of 8 heads of 128 are DeepSeek 67B's.
    let before = PublishedModel { layers: 95, kv: all_heads(8, 128), ..published("DeepSeek-V2") };
    let v2 = published("DeepSeek-V2");
    assert_eq!(before.kv_bytes_per_token(16.0), 389_120.0);
    assert_eq!(v2.kv_bytes_per_token(16.0), 69_120.0);
    let less = 1.0 - v2.kv_bytes_per_token(6.0) / before.kv_bytes_per_token(16.0);
    assert_eq!((1000.0 * less).round() / 10.0, 93.3);
    let factors = [95.0 / 60.0, 2_048.0 / 576.0, 16.0 / 6.0f64];
    assert_eq!(factors.map(|factor| (10.0 * factor).round()), [16.0, 36.0, 27.0]);
    assert_eq!(factors.iter().product::<f64>().round(), 15.0);
}
