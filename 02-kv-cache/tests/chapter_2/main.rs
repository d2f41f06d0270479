//! What chapter 2 of the book says, made to come true: the answers of its quiz, the figures that it
//! counts with, the solutions of its exercises.

mod breaking;
mod building;
mod exercises;
mod past_the_trained_length;
mod rows;

use embedded_models::TARGET;
use kv_cache::{Cached, CachedDecoder, ContiguousStore, KvCache, KvShape, Place, Store};
use naive_decode::{Config, LoadOptions, Model};
use std::sync::Arc;

/// As small as a Llama can be.
fn smallest(context: usize) -> Arc<Model> {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16,
            "vocab_size": 32, "rms_norm_eps": 1e-5, "max_position_embeddings": {context}}}"#
    );
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    Arc::new(Model::random(config, 1, LoadOptions::default()).unwrap())
}

/// The embedded target's shape with random weights: what holds of it holds whatever was learnt.
fn target() -> Arc<Model> {
    Arc::new(Model::random(target_config(), 1, LoadOptions::default()).unwrap())
}

fn target_config() -> Config {
    Config::from_json("config.json", TARGET.config).unwrap()
}

fn text(length: u32) -> Vec<u32> {
    (0..length).map(|i| 5 + i * 37 % 2000).collect()
}

fn slab(model: &Model, capacity: usize) -> Cached<ContiguousStore> {
    let shape = KvShape::of(model);
    Cached::new(ContiguousStore::new(shape, capacity, 1).unwrap(), model.isa)
}

fn decoder<A: KvCache>(model: &Arc<Model>, cache: A) -> CachedDecoder<A> {
    CachedDecoder::new(model.clone(), cache, None).unwrap()
}

fn key(store: &impl Store, layer: usize, kv_head: usize, slot: usize) -> Vec<f32> {
    let mut key = vec![0.0; store.shape().key_dim];
    store.key(Place { sequence: 0, layer, kv_head, slot }, &mut key);
    key
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}
