//! `ladder climb`: every rung on one prompt, and what each step bought.

mod report;
mod run;

use crate::rungs;
use crate::say::{self, say};
use crate::shapes::{self, Shape};
use crate::source::Loaded;
use anyhow::Result;
use clap::Args;
use embedded_models::recall::World;
use model_files::ModelArgs;
use naive_decode::measurement::MachineName;
use naive_decode::{LoadOptions, Rung};
use report::{Report, RungReport, shapes_table, table};
use run::Run;
use std::sync::Arc;

/// What to climb with.
#[derive(Debug, Clone, Args)]
pub struct ClimbArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Text to continue; a few facts and a question about them if not given
    #[arg(long)]
    prompt: Option<String>,
    /// Tokens to generate on every rung
    #[arg(long, default_value_t = 512)]
    tokens: usize,
    /// Print one JSON object instead of text and table
    #[arg(long)]
    json: bool,
}

/// Climbs every rung and prints what it found.
///
/// # Errors
/// Whatever is wrong with the model or the prompt; or a rung whose output differs from the naive
/// one's, after the report that shows it.
pub fn climb(args: &ClimbArgs) -> Result<()> {
    anyhow::ensure!(args.tokens > 0, "tokens to generate is 0, expected at least 1");
    let prompt = args.prompt.clone().unwrap_or_else(default_prompt);
    let loaded = Loaded::open_for(&args.model, &prompt, args.tokens)?;
    let prompt_tokens = loaded.encode(&prompt)?;
    let machine = MachineName::this();
    if !args.json {
        print_header(&loaded, &machine, prompt_tokens.len(), args.tokens)?;
    }
    let mut runs: Vec<(Rung, Run)> = Vec::new();
    for rung in rungs() {
        let model = &loaded.model;
        // The text is the same on every rung; it is shown where there is time to read it.
        let aloud = !args.json && runs.is_empty();
        if aloud {
            say::text(format_args!("{prompt}"))?;
        }
        let text = aloud.then(|| loaded.tokenizer.stream_after(&prompt_tokens));
        runs.push((rung, run::run(&rung, model, &prompt_tokens, args.tokens, text)?));
        if aloud {
            say!("\n")?;
        }
    }
    let (name, naive) = (&loaded.name, &runs[0].1.output);
    let report = |(rung, run): &(Rung, Run)| RungReport::new(rung, name, run, naive);
    let climbed: Vec<RungReport> = runs.iter().map(report).collect();
    if !args.json {
        say!("{}\n", table(&climbed))?;
    }
    let others = match args.model.is_embedded() {
        true => climb_shapes(&prompt_tokens, args.tokens)?,
        false => Vec::new(),
    };
    if !args.json {
        if !others.is_empty() {
            say!("{}\n", shapes_table(&others))?;
        }
        print_ending()?;
    }
    let rungs: Vec<RungReport> = climbed.into_iter().chain(others).collect();
    let same = rungs.iter().all(RungReport::is_identical);
    if args.json {
        let report = Report { prompt, model: loaded.name, machine, rungs };
        say!("{}", serde_json::to_string_pretty(&report)?)?;
    }
    anyhow::ensure!(same, "a rung's output differs from the naive rung's: see the report above");
    Ok(())
}

/// The same cache on models of other shapes.
fn climb_shapes(prompt: &[u32], tokens: usize) -> Result<Vec<RungReport>> {
    let context = Some(prompt.len() + tokens);
    let climb = |Shape { model: name, load, rung }: Shape| {
        let model = Arc::new(load(LoadOptions { context, ..LoadOptions::default() })?);
        let run = run::run(&rung, &model, prompt, tokens, None)?;
        let expected = run::expected(&model, prompt, &run.output.tokens)?;
        Ok(RungReport::new(&rung, name, &run, &expected))
    };
    shapes::all().into_iter().map(climb).collect()
}

/// A world of facts that no training text had, and a question about one of them.
fn default_prompt() -> String {
    let world = World::held_out(0, 4, 1);
    format!("{}{}", world.prompt(), world.question(2))
}

fn print_header(
    loaded: &Loaded,
    machine: &MachineName,
    prompt: usize,
    tokens: usize,
) -> Result<()> {
    let config = &loaded.model.config;
    say!(
        "model    {}: {} layers, {} wide, {} heads, {} KV heads, {:.1} MB of weights",
        loaded.name,
        config.layers,
        config.hidden_size,
        config.heads,
        config.kv_heads,
        loaded.model.weight_bytes() as f64 / 1e6
    )?;
    say!("machine  {}, {} threads, {}", machine.cpu, machine.cores, machine.simd)?;
    say!("task     {prompt} tokens of prompt, {tokens} to generate, greedy")?;
    if let Some(scaling) = loaded.scaling {
        say!(
            "context  {} tokens, {}x what the model was trained for, stretched with YaRN",
            loaded.model.context(),
            scaling.factor()
        )?;
    }
    say!("")
}

fn print_ending() -> Result<()> {
    say!("Rows are positions that went through the model. The last column is a hash of every")?;
    say!("logit of every step: equal means that not one bit differs.\n")?;
    say!("Next:")?;
    say!(
        "  cargo ladder break          what happens when a cache goes wrong, one fault at a time"
    )?;
    say!(
        "  cargo ladder generate --prompt \"Ada was at the mill with a red lantern.\" --temperature 0.8"
    )?;
    say!("  cargo book                  the book: how each rung works, and why")
}
