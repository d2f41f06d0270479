//! The formulas against published models, against figures worked out by hand, and against a real
//! model whose every matrix and key is counted as it runs.

mod common;

use common::counted;
use naive_decode::roofline::{
    ElementBytes, Machine, MatrixShape, PUBLISHED, Rows, Shape, Work, probe, published,
};
use naive_decode::{
    Attention, Config, Isa, KeyValues, LayerSpec, LoadOptions, Model, Pass, Result, Span, Want,
    attend_span,
};
use ndarray::{Array3, ArrayView3, Axis, concatenate, s};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

fn shape(name: &str) -> Shape {
    published(name).unwrap_or_else(|| panic!("{name} is published")).shape
}

/// NVIDIA H100 SXM5, as its maker says: BF16 without sparsity, HBM3.
const H100: Machine = Machine { peak_flops: 989e12, bandwidth: 3.35e12 };

#[test]
fn parameter_counts_are_those_of_the_published_checkpoints() {
    let published = [
        ("smollm2-135m", 134_515_008),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("mistral-7b", 7_241_732_096),
    ];
    let counted = PUBLISHED.map(|model| (model.name, model.shape.parameters()));
    assert_eq!(counted, published);
}

#[test]
fn one_token_of_llama_2_70b_worked_out_by_hand() {
    let work = shape("llama-2-70b").forward(Rows::decode(4_095), ElementBytes::BF16);
    // A block's matrices: Q and O 8192 x 8192, K and V 8192 x 1024, three of 8192 x 28672.
    let block: u64 = 2 * 67_108_864 + 2 * 8_388_608 + 3 * 234_881_024;
    let weights: u64 = 80 * block + 8_192 * 32_000;
    assert_eq!(weights, 68_713_185_280);
    assert_eq!(work.weight_bytes, 2 * weights);
    // 64 heads of 128: a score and a weighted sum for each of 4,096 tokens, in 80 layers.
    assert_eq!(work.flops, 2 * weights + 80 * 4_096 * 64 * (2 * 128 + 2 * 128));
    // The published size of its cache at 4,096 tokens.
    assert_eq!(work.kv_bytes, 1_342_177_280);
    // Into and out of each block's seven matrices and attention, and the head.
    let activations: u64 = 80
        * (2 * (8_192 + 8_192) + 2 * (8_192 + 1_024) + 3 * (8_192 + 28_672) + (8_192 + 8_192))
        + 8_192
        + 32_000;
    assert_eq!(work.activation_bytes, 2 * activations);
    assert_eq!(work.bytes(), work.weight_bytes + work.kv_bytes + work.activation_bytes);
    // So decoding is far below the ridge point: about one FLOP a byte.
    assert!((work.arithmetic_intensity() - 1.067).abs() < 1e-3, "{}", work.arithmetic_intensity());
    // 137.4 GB of weights, 1.34 GB of keys and values, 60 MB of activations at 3.35 TB/s.
    assert!((1e3 * H100.least_seconds(&work) - 41.44).abs() < 0.01);
}

#[test]
fn arithmetic_intensity_of_one_matrix() {
    let up = MatrixShape { name: "mlp.up_proj", inputs: 4_096, outputs: 11_008 };
    let intensity = |rows| up.apply(rows, ElementBytes::BF16).arithmetic_intensity();
    // 2 n d f / (2 (n d + d f + n f)), by hand.
    assert!((intensity(1) - 0.9997).abs() < 1e-4);
    assert!((intensity(295) - 268.5).abs() < 0.1);
    assert!((intensity(4_096) - 1_726.7).abs() < 0.1);
    assert_eq!(up.apply(0, ElementBytes::BF16), Work::default());
}

#[test]
fn decoding_attention_never_reaches_one_flop_a_byte_without_grouping() {
    for context in [1, 100, 100_000] {
        let rows = Rows::decode(context - 1);
        // S / (S + 1) with as many key-value heads as query heads …
        let multi_head =
            shape("llama-2-7b").attention(rows, ElementBytes::BF16).arithmetic_intensity();
        let s = context as f64;
        assert!((multi_head - s / (s + 1.0)).abs() < 1e-12);
        // … and nearly eight times that where eight query heads share one.
        let grouped =
            shape("llama-2-70b").attention(rows, ElementBytes::BF16).arithmetic_intensity();
        assert!((grouped - 8.0 * s / (s + 8.0)).abs() < 1e-9, "{grouped}");
    }
}

#[test]
fn the_roofline_bends_at_the_ridge_point() {
    assert!((H100.ridge() - 295.2).abs() < 0.05);
    assert_eq!(H100.attainable_flops(1.0), 3.35e12);
    assert_eq!(H100.attainable_flops(1e6), 989e12);
    let at_ridge = H100.attainable_flops(H100.ridge());
    assert!((at_ridge / 989e12 - 1.0).abs() < 1e-12);
    // Whichever takes longer decides.
    let work = |flops, weight_bytes| Work { flops, weight_bytes, ..Work::default() };
    assert_eq!(H100.least_seconds(&work(989_000_000_000_000, 0)), 1.0);
    assert_eq!(H100.least_seconds(&work(1, 6_700_000_000_000)), 2.0);
}

#[test]
fn what_the_naive_loop_wastes() {
    // 500 tokens of prompt, 1,000 generated.
    let rows: usize = (500..1_500).map(|length| Rows::naive(length).new).sum();
    assert_eq!(rows, 999_500);
    let flops = |rows: &mut dyn Iterator<Item = Rows>| -> f64 {
        rows.map(|r| shape("llama-2-7b").forward(r, ElementBytes::BF16).flops as f64).sum()
    };
    let naive = flops(&mut (500..1_500).map(Rows::naive));
    let prefill = Rows { new: 500, cached: 0, logits: 1 };
    let cached = flops(&mut std::iter::once(prefill).chain((500..1_499).map(Rows::decode)));
    // 667 times in tokens processed, about as much in operations.
    let ratio = naive / cached;
    assert!((630.0..667.0).contains(&ratio), "{ratio}");
}

proptest! {
    #[test]
    fn cutting_a_prompt_up_changes_no_flop_but_reads_the_weights_again(
        cached in 0usize..500, first in 1usize..300, second in 1usize..300,
    ) {
        let work = |new, cached| {
            shape("llama-3-8b").forward(Rows { new, cached, logits: 0 }, ElementBytes::BF16)
        };
        let whole = work(first + second, cached);
        let parts = work(first, cached) + work(second, cached + first);
        prop_assert_eq!(parts.flops, whole.flops);
        prop_assert_eq!(parts.activation_bytes, whole.activation_bytes);
        prop_assert_eq!(parts.weight_bytes, 2 * whole.weight_bytes);
        prop_assert!(parts.kv_bytes > whole.kv_bytes);
        prop_assert!(parts.arithmetic_intensity() < whole.arithmetic_intensity());
    }
}

// --- Counted in a model that runs --------------------------------------------------------------

/// Attention that remembers everything and counts every number read.
struct CountedAttention {
    /// Per layer, `[slots, kv_heads, D]`.
    layers: Vec<(Array3<f32>, Array3<f32>)>,
    work: Arc<Mutex<Work>>,
}

struct CountedReads<'a>(&'a (Array3<f32>, Array3<f32>), AtomicU64);

impl KeyValues for CountedReads<'_> {
    fn kv_heads(&self) -> usize {
        self.0.0.dim().1
    }
    fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        self.1.fetch_add(copy.len() as u64, Relaxed);
        copy.copy_from_slice(self.0.0.slice(s![slot, kv_head, ..]).as_slice().unwrap());
    }
    fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        self.1.fetch_add(copy.len() as u64, Relaxed);
        copy.copy_from_slice(self.0.1.slice(s![slot, kv_head, ..]).as_slice().unwrap());
    }
}

impl Attention for CountedAttention {
    fn begin(&mut self, _pass: &Pass) -> Result<()> {
        Ok(())
    }
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let kept = &mut self.layers[layer.index];
        kept.0 = concatenate(Axis(0), &[kept.0.view(), k]).unwrap();
        kept.1 = concatenate(Axis(0), &[kept.1.view(), v]).unwrap();
        let (span, reads) = (&pass.spans[0], CountedReads(kept, AtomicU64::new(0)));
        let mut out = Array3::zeros(q.raw_dim());
        attend_span(Isa::best(), layer, span, q, &reads, out.view_mut());
        let mut work = self.work.lock().unwrap();
        // A dot product with a key and a share of a value, for each head and each slot seen.
        let seen: usize = span.sees.iter().map(|sees| sees.range.len() + sees.also.len()).sum();
        work.flops += (seen * q.dim().1 * 2 * (k.dim().2 + v.dim().2)) as u64;
        work.kv_bytes += 4 * reads.1.into_inner();
        work.activation_bytes += 4 * (q.len() + out.len()) as u64;
        Ok(out)
    }
    fn commit(&mut self, _pass: &Pass) {}
}

fn config(tied: bool) -> Config {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 96, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "intermediate_size": 176, "vocab_size": 304, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 128, "tie_word_embeddings": {tied}}}"#
    );
    Config::from_json("config.json", json.as_bytes()).unwrap()
}

#[test]
fn formulas_equal_what_a_running_model_counts() {
    for (config, passes) in [
        (config(false), vec![(11, Want::All), (5, Want::Nothing), (1, Want::Last)]),
        (config(true), vec![(16, Want::Last), (1, Want::Last), (1, Want::Last)]),
    ] {
        let work = Arc::new(Mutex::new(Work::default()));
        let options = LoadOptions::default();
        let model = Model::assemble(
            config.clone(),
            options,
            &|_, shape| Ok(vec![0.01; shape.iter().product()]),
            &counted(options.isa, work.clone()),
        )
        .unwrap();
        let empty = Array3::zeros((0, config.kv_heads, config.head_dim));
        let layers = vec![(empty.clone(), empty); config.layers];
        let mut attention = CountedAttention { layers, work: work.clone() };
        let shape = Shape::from(&config);
        let mut cached = 0;
        // The formula counts each key once a pass. Attention reads it again, mostly from the
        // processor's cache, for every 16 rows: no pass here has more.
        for (new, want) in passes {
            let span = Span::new(0, cached, &vec![7; new], want);
            let logits = model.forward(&Pass::one(span), &mut attention).unwrap().nrows();
            let formula = shape.forward(Rows { new, cached, logits }, ElementBytes::F32);
            let counted = std::mem::take(&mut *work.lock().unwrap());
            assert_eq!(counted, formula, "{new} rows after {cached}");
            cached += new;
        }
        assert_eq!(shape.parameters(), {
            let norms = (2 * config.layers + 1) * config.hidden_size;
            let table = if config.tied_head { 0 } else { config.vocab_size * config.hidden_size };
            let matrices = model.weight_bytes() / 4 - norms;
            (matrices + norms + table) as u64
        });
    }
}

#[test]
fn the_probes_measure_something() {
    let rate = probe::fma_rate(1);
    assert!((1e7..1e15).contains(&rate), "{rate:e} FLOP/s");
    let rate = probe::Memory::new().read_rate(2);
    assert!((1e8..1e14).contains(&rate), "{rate:e} bytes/s");
}
