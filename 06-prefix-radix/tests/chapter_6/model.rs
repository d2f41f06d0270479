//! A model over blocks, as small as one can be.

use naive_decode::{Config, CpuExecutor, Executor, LoadOptions, Model, Pass, Span, Want};
use paged_cache::{PagedCache, Room};
use std::sync::Arc;

/// With room for three long texts.
pub(crate) fn executor() -> CpuExecutor<PagedCache> {
    let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "intermediate_size": 24, "vocab_size": 61, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128, "tie_word_embeddings": true}"#;
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    let model = Arc::new(Model::random(config, 7, LoadOptions::default()).unwrap());
    let attention = PagedCache::new(&model, Room::for_tokens(&model, 3 * 128).unwrap()).unwrap();
    CpuExecutor { model, attention }
}

/// Runs tokens of a sequence that holds `start` already, and gives the last one's logits.
pub(crate) fn run(
    executor: &mut CpuExecutor<PagedCache>,
    sequence: usize,
    start: usize,
    tokens: &[u32],
) -> Vec<f32> {
    let pass = Pass::one(Span::new(sequence, start, tokens, Want::Last));
    executor.execute(&pass).unwrap().into_iter().collect()
}

/// The logits of a text that nothing is known of.
pub(crate) fn alone(tokens: &[u32]) -> Vec<f32> {
    let mut executor = executor();
    let sequence = executor.attention.open();
    run(&mut executor, sequence, 0, tokens)
}
