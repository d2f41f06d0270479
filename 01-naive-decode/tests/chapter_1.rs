//! What chapter 1 of the book says, made to come true: the answers of its quiz, the figures that it
//! counts with, the solutions of its exercises.

use embedded_models::TARGET;
use naive_decode::kernels::softmax_weights;
use naive_decode::numerics::power_of_two;
use naive_decode::roofline::{ElementBytes, Rows, Shape, Work};
use naive_decode::{
    Config, CpuExecutor, Decoder, DenseLinear, Executor, Generate, Isa, Linear, LoadOptions, Model,
    NaiveAttention, NaiveDecoder, Pass, Request, Result, Rope, Sampler, Sampling, Span, Visible,
    Want, argmax, generate,
};
use ndarray::{Array2, ArrayView2};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

// --- Models and decoders to try things on --------------------------------------------------------

/// As small as a Llama can be, with as many layers as asked for.
fn smallest(layers: usize) -> Config {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": {layers},
            "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16,
            "vocab_size": 32, "rms_norm_eps": 1e-5, "max_position_embeddings": 512}}"#
    );
    Config::from_json("config.json", json.as_bytes()).unwrap()
}

fn target() -> Model {
    Model::embedded("target", TARGET.config, TARGET.weights, LoadOptions::default()).unwrap()
}

fn target_shape() -> Shape {
    Shape::from(&Config::from_json("config.json", TARGET.config).unwrap())
}

/// Logits of a pass in which nothing is remembered.
fn run(model: &Arc<Model>, span: Span) -> Array2<f32> {
    let attention = NaiveAttention::new(model.isa);
    CpuExecutor { model: model.clone(), attention }.execute(&Pass::one(span)).unwrap()
}

fn greedy(decoder: &mut dyn Decoder, prompt: usize, tokens: usize) -> Generate<'_> {
    let prompt = (0..prompt as u32).map(|i| i % 32).collect();
    let sampler = Sampler::new(Sampling::default()).unwrap();
    generate(decoder, sampler, Request { prompt, tokens, end_tokens: vec![] }).unwrap()
}

// --- The loop ------------------------------------------------------------------------------------

/// An output head that counts the rows it is applied to.
struct CountedHead(DenseLinear, Arc<AtomicUsize>);

impl Linear for CountedHead {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.1.fetch_add(x.nrows(), Relaxed);
        self.0.apply(x)
    }
    fn inputs(&self) -> usize {
        self.0.inputs()
    }
    fn outputs(&self) -> usize {
        self.0.outputs()
    }
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

#[test]
fn the_naive_loop_runs_every_row_again() {
    let model = Arc::new(Model::random(smallest(1), 0, LoadOptions::default()).unwrap());
    let rows = |prompt, tokens| {
        let mut decoder = NaiveDecoder::new(model.clone());
        assert_eq!(greedy(&mut decoder, prompt, tokens).count(), tokens);
        assert_eq!(decoder.rows(), prompt * tokens + tokens * (tokens - 1) / 2);
        decoder.rows()
    };
    assert_eq!(rows(5, 6), 45);
    assert_eq!(rows(20, 100), 6_950);
    assert_eq!(rows(100, 400), 119_800);
}

#[test]
fn one_row_of_each_pass_meets_the_head() {
    let (config, options) = (smallest(1), LoadOptions::default());
    let head_rows = Arc::new(AtomicUsize::new(0));
    let vocabulary = config.vocab_size;
    let model = Model::assemble(
        config,
        options,
        &|_, shape| Ok(vec![0.1; shape.iter().product()]),
        &|weights: Vec<f32>, outputs: usize, inputs: usize| -> Result<Box<dyn Linear>> {
            let dense = DenseLinear::new(&weights, outputs, inputs, options.isa)?;
            Ok(match outputs == vocabulary {
                true => Box::new(CountedHead(dense, head_rows.clone())),
                false => Box::new(dense),
            })
        },
    );
    let mut decoder = NaiveDecoder::new(Arc::new(model.unwrap()));
    greedy(&mut decoder, 20, 100).for_each(|step| drop(step.unwrap()));
    assert_eq!(head_rows.load(Relaxed), 100);
}

/// Answers everything with the same logits, and counts what it is fed.
struct Fed {
    tokens: usize,
    calls: usize,
}

impl Decoder for Fed {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.tokens += tokens.len();
        self.calls += 1;
        Ok(vec![0.0; 32])
    }
    fn capacity(&self) -> usize {
        7
    }
    fn rows(&self) -> usize {
        self.tokens
    }
    fn kv_bytes_per_token(&self) -> usize {
        0
    }
}

#[test]
fn the_last_token_is_never_fed() {
    let mut decoder = Fed { tokens: 0, calls: 0 };
    assert_eq!(greedy(&mut decoder, 3, 5).count(), 5);
    assert_eq!(decoder.tokens, 7);
    assert_eq!(decoder.calls, 5);
}

// --- Positions and masks -------------------------------------------------------------------------

#[test]
fn a_text_moved_as_a_whole_means_the_same() {
    let model = Arc::new(target());
    let span = Span::new(0, 0, &(0..64).map(|i| 5 + i * 37 % 2000).collect::<Vec<_>>(), Want::Last);
    let logits = |edit: &dyn Fn(&mut Span)| {
        let mut span = span.clone();
        edit(&mut span);
        run(&model, span).row(0).to_vec()
    };
    let furthest =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let clean = logits(&|_| ());
    // All rows one position further: the angles between them are the same, but for rounding.
    let moved = logits(&|span| span.positions.iter_mut().for_each(|p| *p += 1));
    let apart = furthest(&moved, &clean);
    assert!(apart > 0.0 && apart < 1e-3, "{apart}");
    assert_eq!(argmax(&moved).unwrap(), argmax(&clean).unwrap());
    // Only the second half one further: now there is a gap.
    let torn = logits(&|span| span.positions[32..].iter_mut().for_each(|p| *p += 1));
    assert!(furthest(&torn, &clean) > 1e-2, "{}", furthest(&torn, &clean));
}

#[test]
fn a_missing_mask_reaches_the_last_row_through_a_second_layer() {
    let changes_the_first_token = |layers| {
        let model = Arc::new(Model::random(smallest(layers), 3, LoadOptions::default()).unwrap());
        let masked = Span::new(0, 0, &[3, 1, 4, 1, 5, 9, 2, 6], Want::Last);
        let mut unmasked = masked.clone();
        unmasked.sees.fill(Visible::until(8));
        run(&model, masked) != run(&model, unmasked)
    };
    let layers_needed = (1..).find(|&layers| changes_the_first_token(layers));
    assert_eq!(layers_needed, Some(2));
}

#[test]
fn half_of_the_pairs_make_a_full_turn_in_the_trained_context() {
    let rope = Rope::new(10_000.0, 32, 1);
    let full_turn = 2.0 * std::f64::consts::PI;
    let turned: Vec<f64> = rope.frequencies().iter().map(|f| f * 512.0 / full_turn).collect();
    assert_eq!(turned.iter().filter(|turns| **turns >= 1.0).count(), 8);
    // The slowest: 35,333 positions for a turn, 5 degrees in the whole context.
    let slowest = rope.frequencies().last().unwrap();
    assert_eq!((full_turn / slowest).round(), 35_333.0);
    assert_eq!((512.0 * slowest).to_degrees().round(), 5.0);
}

#[test]
fn turning_moves_the_score_by_the_distance_alone() {
    // One pair that turns by 1 radian a position: (1, 0) against (1, 0), three positions apart.
    let rope = Rope::with_frequencies(vec![1.0], 1.0, 16);
    let at = |position| {
        let mut pair = [1.0, 0.0];
        rope.rotate(&mut pair, position).unwrap();
        pair
    };
    let score = |q, k| at(q)[0] * at(k)[0] + at(q)[1] * at(k)[1];
    for (q, k) in [(5, 2), (8, 5), (15, 12)] {
        assert!((score(q, k) - 3f32.cos()).abs() < 1e-6);
    }
}

// --- The order of sums ---------------------------------------------------------------------------

#[test]
fn the_order_of_a_sum_is_part_of_its_result() {
    let (a, b, c) = (1e8f32, -1e8f32, 1.0f32);
    assert_eq!((a + b) + c, 1.0);
    assert_eq!(a + (b + c), 0.0);
}

#[test]
fn a_fused_multiply_add_rounds_once() {
    assert_eq!(0.1f32 * 10.0 - 1.0, 0.0);
    assert_eq!(0.1f32.mul_add(10.0, -1.0), 2f32.powi(-26));
}

#[test]
fn a_larger_score_later_moves_the_weights_by_a_power_of_two() {
    let low: [f32; 16] = std::array::from_fn(|i| 3.7 - i as f32 * 0.61);
    let mut high = [0.0; 16];
    high[5] = 10.4;
    for isa in Isa::available() {
        let mut alone = [low];
        let (maximum_alone, _) = softmax_weights(isa, &mut alone, &[u16::MAX]);
        let mut together = [low, high];
        let (maximum, _) = softmax_weights(isa, &mut together, &[u16::MAX; 2]);
        let moved = maximum - maximum_alone;
        assert_eq!(moved, 7);
        let scaled = alone[0].map(|weight| weight * power_of_two(-moved));
        assert_eq!(scaled.map(f32::to_bits), together[0].map(f32::to_bits), "{isa:?}");
    }
}

// --- The sampler ---------------------------------------------------------------------------------

/// The five tokens of the chapter's table.
const FIVE: [f32; 5] = [0.50, 0.25, 0.15, 0.06, 0.04];

/// Their probabilities after the sampler's steps, in tenths of a percent.
fn per_mille(sampling: Sampling) -> Vec<u32> {
    let logits: Vec<f32> = FIVE.iter().map(|p| p.ln()).collect();
    let probabilities = Sampler::new(sampling).unwrap().distribution(&logits, &[]).unwrap();
    probabilities.iter().map(|p| (p * 1000.0).round() as u32).collect()
}

#[test]
fn five_tokens_through_the_filters() {
    let as_it_is = Sampling { temperature: 1.0, ..Sampling::default() };
    let s = || as_it_is.clone();
    assert_eq!(per_mille(Sampling::default()), [1000, 0, 0, 0, 0]);
    assert_eq!(per_mille(s()), [500, 250, 150, 60, 40]);
    assert_eq!(per_mille(Sampling { temperature: 0.5, ..s() }), [735, 184, 66, 11, 5]);
    assert_eq!(per_mille(Sampling { temperature: 2.0, ..s() }), [347, 245, 190, 120, 98]);
    assert_eq!(per_mille(Sampling { top_k: Some(3), ..s() }), [556, 278, 167, 0, 0]);
    assert_eq!(per_mille(Sampling { top_p: 0.7, ..s() }), [667, 333, 0, 0, 0]);
    assert_eq!(per_mille(Sampling { min_p: 0.1, ..s() }), [521, 260, 156, 63, 0]);
}

#[test]
fn temperature_comes_before_top_p() {
    let left = |temperature| {
        let sampling = Sampling { temperature, top_p: 0.7, ..Sampling::default() };
        per_mille(sampling).iter().filter(|p| **p > 0).count()
    };
    assert_eq!(left(1.0), 2);
    assert_eq!(left(0.5), 1);
    assert_eq!(left(2.0), 3);
}

#[test]
fn a_penalty_on_a_negative_score_still_makes_the_token_rarer() {
    let sampling = Sampling { temperature: 1.0, repetition_penalty: 1.25, ..Sampling::default() };
    let sampler = Sampler::new(sampling).unwrap();
    let before = sampler.distribution(&[-2.0, -2.0], &[]).unwrap();
    let after = sampler.distribution(&[-2.0, -2.0], &[0]).unwrap();
    assert!(after[0] < before[0]);
}

// --- The count -----------------------------------------------------------------------------------

/// All passes after a prompt of 100, 400 tokens long, in f32: naive, and with no row computed twice.
fn both_ways() -> (Work, Work) {
    let shape = target_shape();
    let work = |rows| shape.forward(rows, ElementBytes::F32);
    let naive = (100..500).map(|length| work(Rows::naive(length))).sum();
    let prompt = Rows { new: 100, cached: 0, logits: 1 };
    let once = std::iter::once(prompt).chain((100..499).map(Rows::decode)).map(work).sum();
    (naive, once)
}

#[test]
fn the_naive_loop_wastes_arithmetic_and_no_weights() {
    let (naive, once) = both_ways();
    assert_eq!(naive.weight_bytes, once.weight_bytes);
    assert_eq!(naive.weight_bytes, 7_602_176_000);
    assert_eq!((naive.flops, once.flops), (1_140_201_472_000, 5_404_512_256));
    assert_eq!((naive.flops as f64 / once.flops as f64).round(), 211.0);
    assert_eq!((naive.kv_bytes, once.kv_bytes), (368_025_600, 368_025_600));
    assert_eq!((naive.activation_bytes, once.activation_bytes), (14_540_697_600, 64_237_056));
}

#[test]
fn the_naive_loop_looks_efficient() {
    let (naive, once) = both_ways();
    let rounded = |work: Work| (100.0 * work.arithmetic_intensity()).round() / 100.0;
    assert_eq!((rounded(naive), rounded(once)), (50.65, 0.67));
    // The last pass, whole and for its new row alone: the two that the roofline shows.
    let shape = target_shape();
    assert_eq!(rounded(shape.forward(Rows::naive(499), ElementBytes::F32)), 61.48);
    assert_eq!(rounded(shape.forward(Rows::decode(498), ElementBytes::F32)), 0.61);
}

#[test]
fn attention_overtakes_the_matrices_beyond_the_trained_context() {
    let shape = target_shape();
    let overtaken = |rows: &dyn Fn(usize) -> Rows| {
        let attention_leads = |n: &usize| {
            let all = shape.forward(rows(*n), ElementBytes::F32).flops;
            let attention = shape.attention(rows(*n), ElementBytes::F32) * shape.layers;
            2 * attention.flops > all
        };
        (1..).find(attention_leads)
    };
    assert_eq!(overtaken(&Rows::naive), Some(2_752));
    assert_eq!(overtaken(&|length| Rows::decode(length - 1)), Some(1_547));
}
