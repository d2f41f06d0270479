//! What the naive loop costs, counted matrix by matrix as it runs, against the formulas.
//!
//! `roofline.rs` counts single passes; here it is the whole loop, whose waste is what the next rung
//! is about.

mod common;

use common::counted;
use naive_decode::roofline::{ElementBytes, Rows, Shape, Work};
use naive_decode::{
    Config, Decoder, LoadOptions, Model, NaiveDecoder, Request, Result, Sampler, Sampling, generate,
};
use std::sync::{Arc, Mutex};

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": 64, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128, "tie_word_embeddings": true}"#;

/// What the formulas say of the matrices alone: a pass without attention's own share.
fn matrices(shape: &Shape, rows: Rows) -> Work {
    let whole = shape.forward(rows, ElementBytes::F32);
    let attention = shape.attention(rows, ElementBytes::F32) * shape.layers;
    Work {
        flops: whole.flops - attention.flops,
        weight_bytes: whole.weight_bytes,
        kv_bytes: 0,
        activation_bytes: whole.activation_bytes - attention.activation_bytes,
    }
}

#[test]
fn the_naive_loop_costs_what_the_formulas_say() -> Result<()> {
    let config = Config::from_json("config.json", CONFIG.as_bytes())?;
    let shape = Shape::from(&config);
    let work = Arc::new(Mutex::new(Work::default()));
    let options = LoadOptions::default();
    let model = Model::assemble(
        config,
        options,
        &|_, shape| Ok((0..shape.iter().product()).map(|i: usize| (i as f32).sin()).collect()),
        &counted(options.isa, work.clone()),
    )?;
    let mut decoder = NaiveDecoder::new(Arc::new(model));
    let (prompt, tokens) = (12, 20);
    let request = Request { prompt: vec![3; prompt], tokens, end_tokens: vec![] };
    let mut expected = Work::default();
    let sampler = Sampler::new(Sampling::default())?;
    for (length, step) in (prompt..).zip(generate(&mut decoder, sampler, request)?) {
        step?;
        expected = expected + matrices(&shape, Rows::naive(length));
        assert_eq!(*work.lock().unwrap(), expected, "after {length} tokens");
    }
    let rows: usize = (prompt..prompt + tokens).sum();
    assert_eq!(decoder.rows(), rows);

    // The same text with a cache would have been each token once: per weight read as often, per
    // operation a nineteenth.
    let prefill = matrices(&shape, Rows { new: prompt, cached: 0, logits: 1 });
    let steps = (prompt..prompt + tokens - 1).map(|held| matrices(&shape, Rows::decode(held)));
    let cached = prefill + steps.sum::<Work>();
    assert_eq!(cached.weight_bytes, expected.weight_bytes);
    let ratio = expected.flops as f64 / cached.flops as f64;
    let rows_ratio = rows as f64 / (prompt + tokens - 1) as f64;
    assert!(ratio > 0.8 * rows_ratio && ratio < rows_ratio, "{ratio} of {rows_ratio}");
    Ok(())
}
