//! A published model of 135 million parameters, if one is at hand: it says here what it says under
//! candle, an implementation that shares no code with this one.
//!
//!     LADDER_REAL_MODEL=SmolLM2-135M-Instruct.Q4_1.gguf cargo test --release -p ladder-tests --test real
//!
//! Any GGUF file of the llama architecture will do. Without the variable the tests pass and say that they were skipped;
//! with it and without `--release` they fail (the other implementation then takes many times as long). They take three
//! gigabytes of memory.

mod candle;

use anyhow::{Result, bail, ensure};
use candle::Candle;
use kv_cache::CONTIGUOUS;
use ladder_tests::real_model;
use model_files::ModelFiles;
use naive_decode::{
    LoadOptions, Model, NaiveAttention, Pass, Request, Sampler, Sampling, Settings, Span, Want,
    generate,
};
use std::path::PathBuf;
use std::sync::Arc;

/// Tokens to generate.
const STEPS: usize = 256;

const PROMPT: &str = "<|im_start|>user\nWhy is the sky blue, and why is it red in the evening?\
    <|im_end|>\n<|im_start|>assistant\n";

/// What the perplexity is of.
const TEXT: &str = "The ferry left the island every morning at seven, whatever the weather. On \
    calm days the crossing took twenty minutes, and the children who went to school on the other \
    side did their homework on the upper deck. In winter the captain kept a stove burning in the \
    cabin, and people who had no business on the mainland came aboard for the warmth and the talk. \
    He had been a fisherman once. When the cod went away he sold his boat, bought the ferry with \
    the money, and never said a word about it again, except that a ferry always knows where it is \
    going.";

/// Both implementations of one file; none without a file.
fn both() -> Result<Option<(ModelFiles, Arc<Model>, Candle)>> {
    let Some(path) = real_model().map(PathBuf::from) else { return Ok(None) };
    // Not skipped: what was asked for and not done must not look as if it had passed.
    if cfg!(debug_assertions) {
        bail!(
            "LADDER_REAL_MODEL names a file in a build without --release, expected one with: this takes very long"
        );
    }
    let files = ModelFiles::open_gguf(&path)?;
    let options = LoadOptions { context: Some(1_024), ..LoadOptions::default() };
    let model = Arc::new(files.load(options)?);
    Ok(Some((files, model, Candle::open(&path)?)))
}

fn likeliest(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.expect("a vocabulary is not empty").0 as u32
}

/// How surprising `token` is, in nats.
fn surprise(logits: &[f32], token: u32) -> f64 {
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum();
    sum.ln() - f64::from(logits[token as usize] - most)
}

#[test]
fn the_same_tokens_for_256_steps() -> Result<()> {
    let Some((files, model, mut candle)) = both()? else { return Ok(()) };
    let prompt = files.tokenizer.encode(PROMPT)?;
    let settings = Settings { capacity: prompt.len() + STEPS, prefill_chunk: None, threads: None };
    let mut decoder = (CONTIGUOUS.start)(model, settings)?;
    // No end tokens: where one would stop, the other is asked for the next as well.
    let request = Request { prompt: prompt.clone(), tokens: STEPS, end_tokens: Vec::new() };
    let steps = generate(&mut *decoder, Sampler::new(Sampling::default())?, request)?;
    let mut theirs = candle.feed(&prompt)?;
    let mut tokens = Vec::new();
    let mut furthest = 0.0_f32;
    for (number, step) in steps.enumerate() {
        let step = step?;
        let far = step.logits.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        furthest = furthest.max(far);
        let (ours, expected) = (step.token, likeliest(&theirs));
        ensure!(ours == expected, "step {number}: {ours}, but candle says {expected}");
        tokens.push(ours);
        theirs = candle.feed(&[ours])?;
    }
    println!("{}\n\nlogits at most {furthest:e} apart", files.tokenizer.decode(&tokens)?);
    ensure!(tokens.len() == STEPS && furthest < 1e-3, "logits {furthest} apart");
    Ok(())
}

#[test]
fn the_same_perplexity_to_four_digits() -> Result<()> {
    let Some((files, model, mut candle)) = both()? else { return Ok(()) };
    let tokens = files.tokenizer.encode(TEXT)?;
    let pass = Pass::one(Span::new(0, 0, &tokens, Want::All));
    let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa))?;
    let (mut ours, mut theirs) = (0.0, 0.0);
    for (row, pair) in logits.rows().into_iter().zip(tokens.windows(2)) {
        ours += surprise(row.as_slice().expect("logits are contiguous"), pair[1]);
        theirs += surprise(&candle.feed(&pair[..1])?, pair[1]);
    }
    let predicted = (tokens.len() - 1) as f64;
    let [ours, theirs] = [ours, theirs].map(|sum: f64| (sum / predicted).exp());
    println!("perplexity of {predicted} tokens: {ours}, by candle {theirs}");
    // A model that reads: gibberish would be as surprised by both.
    ensure!(ours < 60.0, "perplexity {ours}");
    ensure!((ours / theirs - 1.0).abs() < 5e-5, "perplexity {ours}, by candle {theirs}");
    Ok(())
}
