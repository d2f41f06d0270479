//! One rung, run and timed.

use crate::say;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use naive_decode::{
    Model, NaiveAttention, Pass, Request, Rung, Sampler, Sampling, Settings, Span, TokenStream,
    Want, argmax, generate,
};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

/// What a rung has to say, to the bit.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) tokens: Vec<u32>,
    /// Of every logit of every step.
    pub(super) logits_hash: u64,
}

/// What one rung did.
pub(super) struct Run {
    pub(super) output: Output,
    pub(super) rows: usize,
    pub(super) kv_bytes_per_token: usize,
    pub(super) first: Duration,
    pub(super) total: Duration,
}

/// Runs one rung; with a text stream, aloud.
pub(super) fn run(
    rung: &Rung,
    model: &Arc<Model>,
    prompt: &[u32],
    tokens: usize,
    mut text: Option<TokenStream>,
) -> Result<Run> {
    let capacity = prompt.len().saturating_add(tokens);
    let settings = Settings { capacity, prefill_chunk: None, threads: None };
    let mut decoder = (rung.start)(model.clone(), settings)?;
    let sampler = Sampler::new(Sampling::default())?;
    // No end tokens: every rung is to generate the same number.
    let request = Request { prompt: prompt.to_vec(), tokens, end_tokens: Vec::new() };
    let bar = bar(rung, tokens, text.is_some());
    let mut run = Run {
        output: Output { tokens: Vec::new(), logits_hash: FNV_OFFSET },
        rows: 0,
        kv_bytes_per_token: decoder.kv_bytes_per_token(),
        first: Duration::ZERO,
        total: Duration::ZERO,
    };
    for step in generate(&mut *decoder, sampler, request)? {
        let step = step?;
        if run.output.tokens.is_empty() {
            run.first = step.elapsed;
        }
        run.total += step.elapsed;
        run.output.push(step.token, &step.logits);
        if let Some(text) = &mut text {
            say::text(format_args!("{}", text.push(step.token)?))?;
        }
        bar.inc(1);
    }
    if let Some(text) = text {
        say::text(format_args!("{}", text.finish()))?;
    }
    bar.finish_and_clear();
    run.rows = decoder.rows();
    Ok(run)
}

/// What a rung has to say about a prompt and these tokens after it, from one pass over all of them without a
/// cache: the naive loop's logits, as the suite proves, in the time of one prefill.
pub(super) fn expected(model: &Model, prompt: &[u32], tokens: &[u32]) -> Result<Output> {
    let fed = [prompt, &tokens[..tokens.len() - 1]].concat();
    let pass = Pass::one(Span::new(0, 0, &fed, Want::All));
    let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa))?;
    let mut expected = Output { tokens: Vec::new(), logits_hash: FNV_OFFSET };
    for row in logits.rows().into_iter().skip(prompt.len() - 1) {
        let row = row.as_slice().expect("logits are contiguous");
        expected.push(argmax(row)?, row);
    }
    Ok(expected)
}

impl Output {
    fn push(&mut self, token: u32, logits: &[f32]) {
        self.tokens.push(token);
        self.logits_hash = hash(self.logits_hash, logits);
    }
}

/// A progress bar on standard error, where somebody is looking and the text is not.
fn bar(rung: &Rung, tokens: usize, aloud: bool) -> ProgressBar {
    if aloud || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} tokens, {per_sec}")
        .expect("the template is well formed");
    let bar = ProgressBar::new(tokens as u64).with_style(style);
    bar.set_message(format!("{}: {}", rung.package, rung.change));
    bar
}

/// FNV-1a over the bits of every logit of every step: one number that any changed bit changes.
fn hash(start: u64, logits: &[f32]) -> u64 {
    logits
        .iter()
        .flat_map(|logit| logit.to_bits().to_le_bytes())
        .fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
