//! `ladder generate`: a prompt in, text out, as it comes.

use crate::device::{DeviceArgs, text_room};
use crate::say::{self, say, tell};
use crate::source::{Loaded, encode};
use anyhow::Result;
use clap::Args;
use model_files::{ModelArgs, ModelFiles, PlainLlama};
use naive_decode::{Decoder, Request, Sampler, Sampling, Settings, Tokenizer, generate as start};
use std::time::Duration;

/// What to generate, and how.
#[derive(Debug, Clone, Args)]
pub struct GenerateArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Text to continue
    #[arg(long)]
    prompt: String,
    /// Most tokens to generate; 200, or as many as there is room for, if not given
    #[arg(long)]
    tokens: Option<usize>,
    /// 0 always takes the likeliest token; higher is more varied
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Choose among the K likeliest tokens only
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Choose among the likeliest tokens that together reach probability P
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,
    /// Choose among tokens at least M times as likely as the likeliest
    #[arg(long, value_name = "M", default_value_t = 0.0)]
    min_p: f32,
    /// Divide the scores of tokens already in the text by this, from 0.01 to 100
    #[arg(long, default_value_t = 1.0)]
    repetition_penalty: f32,
    /// Seed of the random draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Most tokens to generate, if nothing is said.
const TOKENS: usize = 200;

/// Generates with a cached decoder and prints the text as it comes; speed goes to standard
/// error.
///
/// # Errors
/// Whatever is wrong with the model, the prompt or the sampling parameters.
pub fn generate(args: &GenerateArgs) -> Result<()> {
    let sampler = Sampler::new(Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repetition_penalty,
        seed: args.seed,
        ..Sampling::default()
    })?;
    let Ready { mut decoder, prompt, tokens, tokenizer, end_tokens } = args.ready()?;
    let mut text = tokenizer.stream_after(&prompt);
    let request = Request { prompt: prompt.clone(), tokens, end_tokens };
    let mut times: Vec<Duration> = Vec::new();
    let steps = start(&mut *decoder, sampler, request)?;
    say::text(format_args!("{}", args.prompt))?;
    for step in steps {
        let step = step?;
        times.push(step.elapsed);
        say::text(format_args!("{}", text.push(step.token)?))?;
    }
    say!("{}", text.finish())?;
    tell!("\n{}", speed(prompt.len(), &times));
    Ok(())
}

/// A decoder, and what there is to say to it.
struct Ready {
    decoder: Box<dyn Decoder>,
    prompt: Vec<u32>,
    tokens: usize,
    tokenizer: Tokenizer,
    end_tokens: Vec<u32>,
}

impl GenerateArgs {
    fn ready(&self) -> Result<Ready> {
        let files = self.model.files()?;
        let prompt = encode(&files.tokenizer, &self.prompt)?;
        let capacity = prompt.len().saturating_add(self.tokens.unwrap_or(TOKENS));
        let room = |llama: &PlainLlama| Ok(text_room(llama, capacity));
        if let Some(on_gpu) = self.device.gpu(&files, None, None, room)? {
            let tokens = self.tokens_within(on_gpu.llama.rope.positions(), prompt.len());
            let decoder = Box::new(on_gpu.decoder(&files)?);
            let ModelFiles { tokenizer, config, .. } = files;
            let end_tokens = config.end_tokens;
            return Ok(Ready { decoder, prompt, tokens, tokenizer, end_tokens });
        }
        // The last token is never fed back.
        let loaded = Loaded::load(files, capacity - 1)?;
        let tokens = self.tokens_within(loaded.model.context(), prompt.len());
        let settings = Settings { capacity, prefill_chunk: None, threads: None };
        let decoder = (kv_cache::CONTIGUOUS.start)(loaded.model.clone(), settings)?;
        let end_tokens = loaded.model.config.end_tokens.clone();
        Ok(Ready { decoder, prompt, tokens, tokenizer: loaded.tokenizer, end_tokens })
    }

    /// How many to generate after a prompt, by the context of the model as it was loaded. At least one, so that a prompt that
    /// does not fit is refused.
    fn tokens_within(&self, context: usize, prompt: usize) -> usize {
        let room = context.saturating_add(1).saturating_sub(prompt);
        self.tokens.unwrap_or(TOKENS.min(room).max(1))
    }
}

/// TTFT and TPOT of a run, in words. `times` has one entry per token, the first with the prefill.
fn speed(prompt: usize, times: &[Duration]) -> String {
    let first = times.first().map_or(0.0, |t| t.as_secs_f64());
    let rest: f64 = times.iter().skip(1).map(Duration::as_secs_f64).sum();
    let mut said = format!("{prompt} tokens in, {} out; TTFT {:.1} ms", times.len(), first * 1e3);
    if times.len() > 1 {
        let per_token = rest / (times.len() - 1) as f64;
        said += &format!(", TPOT {:.2} ms ({:.0} tokens/s)", per_token * 1e3, 1.0 / per_token);
    }
    said
}
