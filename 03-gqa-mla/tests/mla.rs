//! Latent attention: both forms are what they say they are, with a cache and without.

use gqa_mla::mla::{FORMS_AGREE, Form, MlaConfig, assemble, forms_agree, random};
use kv_cache::faults::guards::{Checksummed, Poisoned, ReadBack};
use kv_cache::{CONTIGUOUS, ContiguousStore, KvShape, LISTS, ListStore, Store};
use naive_decode::break_it::Bench;
use naive_decode::{
    Element, LoadOptions, Logits, Model, NAIVE, NaiveAttention, Pass, Request, Rung, Sampler,
    Sampling, Settings, Span, Want, dense, generate, random_tensors,
};
use proptest::prelude::*;
use std::sync::Arc;

const FORMS: [Form; 2] = [Form::Explicit, Form::Absorbed];

/// DeepSeek-V2-Lite's layout in small: three layers, experts in the last two, a stretched context.
const SMALL: &str = r#"{"architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 80, "vocab_size": 97, "rms_norm_eps": 1e-6, "rope_theta": 10000,
    "max_position_embeddings": 256, "kv_lora_rank": 24, "q_lora_rank": null,
    "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
    "moe_intermediate_size": 20, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64,
        "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}}"#;

fn small() -> MlaConfig {
    MlaConfig::from_json("config.json", SMALL.as_bytes()).unwrap()
}

fn model(config: &MlaConfig, seed: u64, form: Form, kv_element: Element) -> Model {
    random(config, seed, form, LoadOptions { kv_element, ..LoadOptions::default() }).unwrap()
}

fn tokens(count: u32, vocab: usize) -> Vec<u32> {
    (0..count).map(|i| (i * i + 7 * i + 3) % vocab as u32).collect()
}

/// Logits after every token, from one pass without a memory.
fn naive(model: &Model, tokens: &[u32]) -> Logits {
    let pass = Pass::one(Span::new(0, 0, tokens, Want::All));
    model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap()
}

/// The rung's logits after a prompt and after each token that follows are those of one pass.
fn assert_same_bits(rung: Rung, model: &Arc<Model>, tokens: &[u32], prompt: usize, chunk: usize) {
    let expected = naive(model, tokens);
    let settings = Settings { capacity: tokens.len(), prefill_chunk: Some(chunk), threads: None };
    let mut decoder = (rung.start)(Arc::clone(model), settings).unwrap();
    let (first, rest) = tokens.split_at(prompt);
    for (row, piece) in (prompt - 1..).zip(std::iter::once(first).chain(rest.chunks(1))) {
        let found: Vec<u32> = decoder.feed(piece).unwrap().iter().map(|v| v.to_bits()).collect();
        let expected: Vec<u32> = expected.row(row).iter().map(|v| v.to_bits()).collect();
        assert_eq!(found, expected, "{}, after {} tokens", rung.change, row + 1);
    }
}

#[test]
fn guards_of_a_cache_find_nothing_wrong_where_values_are_narrower_than_keys() {
    for form in FORMS {
        for element in [Element::F32, Element::Bf16] {
            let model = Arc::new(model(&small(), 1, form, element));
            let (tokenizer, prompt) = (Bench::embedded().unwrap().tokenizer, tokens(40, 97));
            let bench = Bench { model: Arc::clone(&model), tokenizer, prompt, is_embedded: false };
            let (shape, context) = (KvShape::of(&model), model.context());
            ReadBack::guard(&bench, |store| store).unwrap();
            Poisoned::guard(&bench, |store| store).unwrap();
            Checksummed::guard(&bench, ContiguousStore::new(shape, context, 1).unwrap()).unwrap();
            Checksummed::guard(&bench, ListStore::new(shape, context, 1)).unwrap();
        }
    }
}

#[test]
fn with_a_cache_both_forms_give_the_bits_they_give_without() {
    for form in FORMS {
        for element in [Element::F32, Element::Bf16] {
            let model = Arc::new(model(&small(), 1, form, element));
            for rung in [NAIVE, LISTS, CONTIGUOUS] {
                assert_same_bits(rung, &model, &tokens(60, 97), 37, 10);
            }
        }
    }
}

/// Largest difference of two logits, as a share of the largest. Those that are no numbers would be left out.
fn apart(found: &Logits, expected: &Logits) -> f32 {
    assert!(found.iter().chain(expected).all(|logit| logit.is_finite()));
    let largest = |logits: &Logits| logits.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    largest(&(found - expected)) / largest(expected)
}

/// The same with queries `sharpness` times as long: random weights give flat attention, trained
/// ones make up their minds.
fn sharpened(config: &MlaConfig, seed: u64, form: Form, sharpness: f32) -> Model {
    let options = LoadOptions::default();
    let random = random_tensors(seed);
    let tensors = |name: &str, shape: &[usize]| {
        let mut values = random(name, shape)?;
        if name.ends_with("q_proj.weight") || name.ends_with("q_b_proj.weight") {
            values.iter_mut().for_each(|v| *v *= sharpness);
        }
        Ok(values)
    };
    assemble(config, form, options, &tensors, &dense(options.isa)).unwrap()
}

#[test]
fn the_forms_agree_but_for_rounding() {
    let text = tokens(200, 97);
    // Attention sharper than any that was trained makes more of a score that is a little off.
    for (sharpness, allowed) in [(1.0, FORMS_AGREE), (5.0, 10.0 * FORMS_AGREE)] {
        let mut furthest: f32 = 0.0;
        for q_lora_rank in [None, Some(16)] {
            for seed in 0..4 {
                let config = MlaConfig { q_lora_rank, ..small() };
                let [explicit, absorbed] =
                    FORMS.map(|form| sharpened(&config, seed, form, sharpness));
                furthest = furthest.max(apart(&naive(&absorbed, &text), &naive(&explicit, &text)));
                if sharpness == 1.0 {
                    forms_agree(&absorbed, &explicit, &text).unwrap();
                }
            }
        }
        println!("queries x {sharpness}: {furthest:e} of the largest logit, allowed {allowed:e}");
        assert!(furthest <= allowed);
        // Equal to the bit they cannot be: if they are, one form is not what it says.
        assert!(furthest > 0.0);
    }
}

#[test]
fn the_forms_write_the_same_text() {
    let config = small();
    for seed in 0..3 {
        let [explicit, absorbed] = FORMS.map(|form| {
            let model = Arc::new(model(&config, seed, form, Element::F32));
            let settings = Settings { capacity: 100, prefill_chunk: None, threads: None };
            let mut decoder = (CONTIGUOUS.start)(model, settings).unwrap();
            let prompt = tokens(30, 97);
            let request = Request { prompt, tokens: 60, end_tokens: Vec::new() };
            let sampler = Sampler::new(Sampling::default()).unwrap();
            let steps = generate(&mut *decoder, sampler, request).unwrap();
            steps.map(|step| step.unwrap().token).collect::<Vec<u32>>()
        });
        assert_eq!(absorbed, explicit, "seed {seed}");
    }
}

#[test]
fn another_text_or_another_latent_is_not_within_rounding() {
    // The check that the forms agree can fail: one token more or less in the past is far outside.
    let config = small();
    let [explicit, absorbed] = FORMS.map(|form| model(&config, 0, form, Element::F32));
    let other = model(&config, 1, Form::Absorbed, Element::F32);
    assert!(forms_agree(&other, &explicit, &tokens(20, 97)).is_err());
    let (mut text, whole) = (tokens(20, 97), naive(&explicit, &tokens(20, 97)));
    text[3] = 90;
    assert!(apart(&naive(&absorbed, &text), &whole) > 100.0 * FORMS_AGREE);
}

#[test]
fn a_latent_is_all_that_is_kept() {
    for element in [Element::F32, Element::Bf16] {
        let [explicit, absorbed] = FORMS.map(|form| model(&small(), 1, form, element));
        let store = ContiguousStore::new(KvShape::of(&absorbed), 50, 2).unwrap();
        assert_eq!(store.allocated_bytes(), 3 * (24 + 8) * element.bytes() * 50 * 2);
        assert_eq!(absorbed.kv_bytes_per_token(), 3 * (24 + 8) * element.bytes());
        assert_eq!(explicit.kv_bytes_per_token(), 3 * 4 * (12 + 8 + 10) * element.bytes());
    }
}

#[test]
fn deepseek_v3_keeps_a_57th_of_what_multi_head_attention_would() {
    let json = include_bytes!("configs/deepseek_v3.json");
    let config = MlaConfig::from_json("config.json", json).unwrap();
    // All 61 layers; a few tokens stand for many, for every one costs the same.
    let allocated = |kv_heads, key_dim, value_dim| {
        let (layers, element) = (config.model.layers, Element::Bf16);
        let shape = KvShape { layers, kv_heads, key_dim, value_dim, element };
        ContiguousStore::new(shape, 4, 1).unwrap().allocated_bytes()
    };
    let form = |form| {
        let size = config.kv(form);
        allocated(size.heads, size.key_dim, size.value_dim)
    };
    // Multi-head attention with as many heads, 128 wide.
    let multi_head = allocated(128, 128, 128);
    let ratio = multi_head as f64 / form(Form::Absorbed) as f64;
    assert_eq!(format!("{ratio:.1}"), "56.9");
    assert_eq!(form(Form::Absorbed) / 4, 61 * 576 * 2);
    // The explicit form costs more than multi-head attention: its keys are wider.
    assert_eq!(form(Form::Explicit) * 4, multi_head * 5);
}

/// Any shape: with and without compressed queries, stretched context and experts of either kind.
fn any_config() -> impl Strategy<Value = MlaConfig> {
    // From eight numbers on, the last norm does not blow a last bit up either.
    let widths = (1usize..6, 1usize..20, 1usize..10, 1usize..5, 1usize..12, 8usize..30);
    let others = (prop::option::of(1usize..12), 0..3, any::<bool>(), 1usize..3);
    (widths, others).prop_map(|(widths, (q_lora_rank, experts, stretched, layers))| {
        let (heads, latent, nope, half_rope, value, hidden) = widths;
        let mut config = small();
        let rules = config.experts.as_mut().unwrap();
        if experts == 2 {
            rules.scoring = gqa_mla::experts::Scoring::Sigmoid;
            (rules.n_group, rules.topk_group, rules.norm_topk_prob) = (4, 2, true);
        }
        let model = naive_decode::Config {
            hidden_size: hidden,
            layers: layers + 1,
            heads,
            ..config.model.clone()
        };
        MlaConfig {
            model,
            q_lora_rank,
            kv_lora_rank: latent,
            qk_nope_head_dim: nope,
            qk_rope_head_dim: 2 * half_rope,
            v_head_dim: value,
            stretch: config.stretch.filter(|_| stretched),
            experts: config.experts.filter(|_| experts > 0),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_is_the_same_with_a_cache_and_in_either_form(
        config in any_config(),
        seed in 0u64..1000,
        prompt in 1usize..20,
        chunk in 1usize..20,
    ) {
        let text = tokens(24, 97);
        let models = FORMS.map(|form| Arc::new(model(&config, seed, form, Element::F32)));
        for (model, form) in models.iter().zip(FORMS) {
            prop_assert_eq!(model.blocks[0].projection.kv(), Some(config.kv(form)));
            assert_same_bits(CONTIGUOUS, model, &text, prompt, chunk);
        }
        // One layer, so that both forms begin with the same bits. Over several, a norm over a latent
        // of one or two numbers makes a sign of a last bit: no bound holds for every shape there.
        let layer = naive_decode::Config { layers: 1, ..config.model.clone() };
        let config = MlaConfig { model: layer, ..config };
        let [explicit, absorbed] = FORMS.map(|form| model(&config, seed, form, Element::F32));
        forms_agree(&absorbed, &explicit, &text).unwrap();
    }
}
