//! What chapter 5 of the book says, made to come true: the answers of its quiz, the figures that it counts
//! with, the trace that its stepper replays.

mod blocks;
mod breaking;
mod sharing;
#[path = "../../examples/trace_blocks.rs"]
mod trace_blocks;
mod waiting;

use naive_decode::{Config, CpuExecutor, Executor, LoadOptions, Model, Pass, Result, Span, Want};
use paged_cache::{Behind, Layout, PagedCache, Room};
use std::sync::Arc;

/// As small as a model with two layers can be.
fn small() -> Arc<Model> {
    let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
        "vocab_size": 61, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
        "tie_word_embeddings": true}"#;
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    Arc::new(Model::random(config, 7, LoadOptions::default()).unwrap())
}

/// A pool of so many blocks of so many tokens.
fn pool(model: &Model, blocks: usize, block: usize) -> PagedCache {
    let (kept, behind) = (model.kv_element.into(), Behind::Kept);
    let bytes = blocks * Layout::new(model, block, kept, behind).unwrap().block_bytes();
    let room = Room { bytes, block, capacity: 512, kept, behind, rollback: 0 };
    PagedCache::new(model, room).unwrap()
}

fn executor(blocks: usize, block: usize) -> CpuExecutor<PagedCache> {
    let model = small();
    let attention = pool(&model, blocks, block);
    CpuExecutor { model, attention }
}

/// Runs so many tokens more of some sequences, in one pass, and gives the logits of the last one's last.
fn run(executor: &mut CpuExecutor<PagedCache>, rows: &[(usize, usize)]) -> Result<Vec<f32>> {
    let span = |&(sequence, count): &(usize, usize)| {
        let start = kv_cache::KvCache::len(&executor.attention, sequence);
        let tokens: Vec<u32> = (start..start + count).map(token).collect();
        Span::new(sequence, start, &tokens, Want::Last)
    };
    let spans = rows.iter().map(span).collect();
    let logits = executor.execute(&Pass { spans })?;
    let last = logits.nrows() - 1;
    Ok(logits.row(last).to_vec())
}

/// Some text.
fn token(place: usize) -> u32 {
    (place * place + 5 * place) as u32 % 61
}

/// `cargo run --release -p paged-cache --example trace_blocks > 05-paged-cache/traces/blocks.json`
#[test]
fn the_stepper_replays_what_the_cache_does() {
    assert_eq!(include_str!("../../traces/blocks.json"), trace_blocks::trace().unwrap());
}
