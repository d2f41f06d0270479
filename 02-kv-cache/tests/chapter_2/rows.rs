//! Rows, and the arithmetic and bytes behind them.

use super::{decoder, slab, smallest, target_config};
use naive_decode::roofline::{ElementBytes, Rows, Shape};
use naive_decode::{
    Decoder, Executor, Logits, NaiveDecoder, Pass, Request, Result, Sampler, Sampling, generate,
};
use ndarray::Array2;

/// Rows that go through `decoder` while `tokens` tokens are generated after a prompt of `prompt`.
fn rows_to_generate(decoder: &mut dyn Decoder, prompt: usize, tokens: usize) -> usize {
    let prompt = (0..prompt as u32).map(|i| i % 32).collect();
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let request = Request { prompt, tokens, end_tokens: vec![] };
    let steps = generate(decoder, sampler, request).unwrap();
    assert_eq!(steps.map(Result::unwrap).count(), tokens);
    decoder.rows()
}

/// Says yes to every pass, at once.
struct Instant;

impl Executor for Instant {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        Ok(Array2::zeros((pass.wanted().len(), 32)))
    }
}

#[test]
fn a_thousand_tokens_after_a_prompt_of_five_hundred() {
    let mut naive = NaiveDecoder::over(Instant, 1_500);
    assert_eq!(rows_to_generate(&mut naive, 500, 1_000), 999_500);
    let model = smallest(1_500);
    let mut cached = decoder(&model, slab(&model, 1_500));
    assert_eq!(rows_to_generate(&mut cached, 500, 1_000), 1_499);
    assert_eq!((999_500.0_f64 / 1_499.0).round(), 667.0);
}

#[test]
fn what_a_cache_saves_depends_on_prompt_and_answer() {
    let times_fewer = |prompt: usize, tokens: usize| {
        let mut naive = NaiveDecoder::over(Instant, 2_000);
        let cached = prompt + tokens - 1;
        rows_to_generate(&mut naive, prompt, tokens) as f64 / cached as f64
    };
    assert_eq!(times_fewer(1_000, 1), 1.0);
    assert_eq!(times_fewer(1_000, 10).round(), 10.0);
    assert_eq!(times_fewer(1_000, 100).round(), 95.0);
    assert_eq!(times_fewer(10, 1_000).round(), 505.0);
}

#[test]
fn rows_are_not_flops() {
    let shape = Shape::from(&target_config());
    let flops = |rows: Rows| shape.forward(rows, ElementBytes::F32).flops;
    let naive: u64 = (500..1_500).map(|length| flops(Rows::naive(length))).sum();
    let cached =
        flops(Rows::naive(500)) + (500..1_499).map(|held| flops(Rows::decode(held))).sum::<u64>();
    let times_fewer = naive as f64 / cached as f64;
    assert_eq!(times_fewer.round(), 571.0);

    let attention = |rows: Rows| shape.attention(rows, ElementBytes::F32).flops;
    let naive: u64 = (500..1_500).map(|length| attention(Rows::naive(length))).sum();
    let cached = attention(Rows::naive(500))
        + (500..1_499).map(|held| attention(Rows::decode(held))).sum::<u64>();
    assert_eq!((naive as f64 / cached as f64).round(), 482.0);

    // Llama-2-70B's matrices, whose head is small beside its layers.
    let shape = Shape {
        hidden_size: 8192,
        layers: 80,
        heads: 64,
        kv_heads: 8,
        head_dim: 128,
        intermediate_size: 28_672,
        vocab_size: 32_000,
        tied_head: false,
    };
    let matrices = |rows: Rows| {
        let (whole, attention) =
            (shape.forward(rows, ElementBytes::BF16), shape.attention(rows, ElementBytes::BF16));
        whole.flops - 80 * attention.flops
    };
    let naive: u64 = (500..1_500).map(|length| matrices(Rows::naive(length))).sum();
    let cached = matrices(Rows::naive(500))
        + (500..1_499).map(|held| matrices(Rows::decode(held))).sum::<u64>();
    assert_eq!((naive as f64 / cached as f64).round(), 665.0);
}

#[test]
fn a_cache_saves_arithmetic_and_no_bytes() {
    let shape = Shape::from(&target_config());
    let bytes = ElementBytes { activation: 0, ..ElementBytes::F32 };
    let naive = shape.forward(Rows::naive(1_025), bytes);
    let cached = shape.forward(Rows::decode(1_024), bytes);
    let tenths = |value: f64| (10.0 * value).round() / 10.0;
    assert_eq!(naive.weight_bytes, cached.weight_bytes);
    assert_eq!(tenths(cached.weight_bytes as f64 / 1e6), 19.0);
    assert_eq!(tenths(cached.kv_bytes as f64 / 1e6), 3.1);
    assert_eq!(tenths(naive.flops as f64 / 1e9), 11.9);
    assert_eq!(tenths(cached.flops as f64 / 1e6), 15.8);
    assert_eq!(tenths(cached.arithmetic_intensity()), 0.7);
    assert_eq!((naive.flops as f64 / naive.weight_bytes as f64 / 100.0).round(), 6.0);
}
