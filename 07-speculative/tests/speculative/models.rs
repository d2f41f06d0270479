//! Models to speculate with.

use embedded_models::{DRAFT, HEADS, TARGET};
use naive_decode::{
    Checkpoint, Config, Element, Isa, LoadOptions, Model, Request, Sampler, Sampling, Settings,
    Tokenizer, dense, generate,
};
use speculative::Tap;
use speculative::proposers::{Medusa, Mtp};
use std::sync::Arc;

pub(crate) const CONTEXT: usize = 512;

/// A target, and what its head is given.
pub(crate) type Tapped = (Arc<Model>, Arc<Tap>);

pub(crate) fn target() -> Arc<Model> {
    tapped().0
}

/// The same, and what its head is given.
pub(crate) fn tapped() -> Tapped {
    let options = LoadOptions { context: Some(CONTEXT), ..LoadOptions::default() };
    let model = Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options).unwrap();
    let (model, tap) = Tap::on(model);
    (Arc::new(model), tap)
}

pub(crate) fn medusa((target, tap): &Tapped) -> Medusa {
    let checkpoint = Checkpoint::embedded("heads/medusa.safetensors", HEADS.medusa).unwrap();
    Medusa::new(target, tap.clone(), &checkpoint, &dense(target.isa)).unwrap()
}

pub(crate) fn mtp((target, tap): &Tapped) -> Mtp {
    let checkpoint = Checkpoint::embedded("heads/mtp.safetensors", HEADS.mtp).unwrap();
    Mtp::new(target.clone(), tap.clone(), &checkpoint, &dense(target.isa)).unwrap()
}

pub(crate) fn draft() -> Arc<Model> {
    let options = LoadOptions { context: Some(CONTEXT), ..LoadOptions::default() };
    Arc::new(Model::embedded(DRAFT.name, DRAFT.config, DRAFT.weights, options).unwrap())
}

pub(crate) fn encode(text: &str) -> Vec<u32> {
    Tokenizer::from_bytes(TARGET.name, TARGET.tokenizer).unwrap().encode(text).unwrap()
}

/// A model that has learned nothing: its text falls into loops, and no draft knows which.
pub(crate) fn random(hidden: usize, seed: u64) -> Arc<Model> {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": {hidden}, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
        "vocab_size": 61, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
        "tie_word_embeddings": true}}"#
    );
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    let options = LoadOptions { context: Some(256), kv_element: Element::Bf16, isa: Isa::best() };
    Arc::new(Model::random(config, seed, options).unwrap())
}

/// What plain decoding gives, on rung 02's cache.
pub(crate) fn plain(model: &Arc<Model>, request: &Request, sampling: &Sampling) -> Vec<u32> {
    let settings = Settings { capacity: model.context(), prefill_chunk: None, threads: None };
    let mut decoder = (kv_cache::CONTIGUOUS.start)(model.clone(), settings).unwrap();
    let sampler = Sampler::new(sampling.clone()).unwrap();
    let steps = generate(&mut *decoder, sampler, request.clone()).unwrap();
    steps.map(|step| step.unwrap().token).collect()
}
