//! Multi-head, grouped and multi-query attention as one rule over equal models.

use embedded_models::TARGET;
use gqa_mla::heads::{assemble, with_kv_heads};
use kv_cache::{CONTIGUOUS, ContiguousStore, KvShape, Store};
use naive_decode::{
    Checkpoint, Config, LoadOptions, Logits, Model, NaiveAttention, Pass, Settings, Span, Want,
    dense, random_tensors,
};
use std::sync::Arc;

/// The embedded target, which has 8 query heads and 2 key-value heads, with another number of
/// those.
fn target(kv_heads: usize) -> naive_decode::Result<Model> {
    let config = Config::from_json(TARGET.name, TARGET.config)?;
    let checkpoint = Checkpoint::embedded(TARGET.name, TARGET.weights)?;
    with_kv_heads(config, &checkpoint, kv_heads, LoadOptions::default())
}

fn tokens(vocab: usize) -> Vec<u32> {
    (0..70u32).map(|i| (i * i + 11 * i + 300) % vocab as u32).collect()
}

/// Logits after every token, from one pass without a memory.
fn naive(model: &Model) -> Logits {
    let pass = Pass::one(Span::new(0, 0, &tokens(model.config.vocab_size), Want::All));
    model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap()
}

/// Logits after a prompt of 50 tokens and after each token that follows, from a cache.
fn assert_cached_is(model: Model, expected: &Logits) {
    let tokens = tokens(model.config.vocab_size);
    let settings = Settings { capacity: tokens.len(), prefill_chunk: Some(16), threads: None };
    let mut decoder = (CONTIGUOUS.start)(Arc::new(model), settings).unwrap();
    let (prompt, rest) = tokens.split_at(50);
    for (row, piece) in (49..).zip(std::iter::once(prompt).chain(rest.chunks(1))) {
        let found: Vec<u32> = decoder.feed(piece).unwrap().iter().map(|v| v.to_bits()).collect();
        let expected: Vec<u32> = expected.row(row).iter().map(|v| v.to_bits()).collect();
        assert_eq!(found, expected, "after {} tokens", row + 1);
    }
}

fn bytes(model: &Model) -> usize {
    ContiguousStore::new(KvShape::of(model), 10, 1).unwrap().allocated_bytes()
}

#[test]
fn a_head_for_every_query_gives_the_same_bits_for_four_times_the_bytes() {
    let options = LoadOptions::default();
    let grouped = Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options).unwrap();
    let group = grouped.config.group();
    assert_eq!((grouped.config.heads, group), (8, 4));
    let expected = naive(&grouped);
    let multi_head = target(8).unwrap();
    assert_eq!(naive(&multi_head), expected);
    assert_eq!(bytes(&multi_head), group * bytes(&grouped));
    assert_eq!(multi_head.kv_bytes_per_token(), group * grouped.kv_bytes_per_token());
    assert_cached_is(multi_head, &expected);
    assert_cached_is(target(4).unwrap(), &expected);
    assert_cached_is(grouped, &expected);
}

#[test]
fn one_head_for_all_is_half_the_bytes_of_two_and_loses_something() {
    let multi_query = target(1).unwrap();
    let grouped = target(2).unwrap();
    let found = naive(&multi_query);
    assert_ne!(found, naive(&grouped));
    assert_eq!(2 * bytes(&multi_query), bytes(&grouped));
    assert_cached_is(multi_query, &found);
}

#[test]
fn equal_heads_pool_without_loss() {
    // A multi-head model whose heads are copies pools back into the grouped one it came from.
    let json =
        br#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32,
        "vocab_size": 40, "rms_norm_eps": 1e-5, "max_position_embeddings": 80}"#;
    let grouped = Config::from_json("config.json", json).unwrap();
    let options = LoadOptions::default();
    let plain = random_tensors(5);
    // k_proj and v_proj as they would be with 8 heads: each of two copied four times.
    let copies = |name: &str, shape: &[usize]| match shape {
        [64, hidden] if name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight") => {
            let rows = plain(name, &[16, *hidden])?;
            Ok(rows.chunks(8 * hidden).flat_map(|head| head.repeat(4)).collect())
        }
        _ => plain(name, shape),
    };
    let multi_head = Config { kv_heads: 8, ..grouped.clone() };
    let pack = dense(options.isa);
    let pooled = assemble(multi_head, 2, options, &copies, &pack).unwrap();
    assert_eq!(naive(&pooled), naive(&Model::random(grouped, 5, options).unwrap()));
}

#[test]
fn numbers_of_heads_that_do_not_divide_are_refused() {
    let refused = |kv_heads| target(kv_heads).err().expect("refused").to_string();
    let of_queries = "a divisor of the 8 query heads";
    for kv_heads in [0, 3, 16] {
        let expected = format!("number of key-value heads is {kv_heads}, expected {of_queries}");
        assert_eq!(refused(kv_heads), expected);
    }
    // 6 query heads on 2 could be 3, but two heads do not make three.
    let mut config = Config::from_json(TARGET.name, TARGET.config).unwrap();
    (config.heads, config.kv_heads) = (6, 2);
    let options = LoadOptions::default();
    let refused = assemble(config, 3, options, &random_tensors(1), &dense(options.isa));
    let expected = "number of key-value heads is 3, expected a divisor or a multiple of the \
                    checkpoint's 2";
    assert_eq!(refused.err().expect("refused").to_string(), expected);
}
