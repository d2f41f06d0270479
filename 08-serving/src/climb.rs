//! `ladder climb`: every rung on one prompt, and what each step bought.

use crate::rungs;
use crate::source::{Loaded, ModelArgs};
use anyhow::Result;
use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use embedded_models::recall::World;
use indicatif::{ProgressBar, ProgressStyle};
use naive_decode::measurement::MachineName;
use naive_decode::{Request, Rung, Sampler, Sampling, Settings, generate};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

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

/// What climbing found out.
#[derive(Debug, Serialize)]
struct Report {
    prompt: String,
    model: String,
    machine: MachineName,
    rungs: Vec<RungReport>,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct RungReport {
    #[serde(rename = "crate")]
    package: &'static str,
    change: &'static str,
    rows: usize,
    kv_bytes_per_token: usize,
    ttft_ms: f64,
    /// All generated tokens over all time, the prompt's included.
    tokens_per_second: f64,
    tokens_identical: bool,
    logits_identical: bool,
    #[serde(skip)]
    logits_hash: u64,
}

/// What one rung did.
struct Run {
    tokens: Vec<u32>,
    logits_hash: u64,
    rows: usize,
    kv_bytes_per_token: usize,
    first: Duration,
    total: Duration,
}

/// Climbs every rung and prints what it found.
///
/// # Errors
/// Whatever is wrong with the model or the prompt; or a rung whose output differs from the naive
/// one's, after the report that shows it.
pub fn climb(args: &ClimbArgs) -> Result<()> {
    let prompt = args.prompt.clone().unwrap_or_else(default_prompt);
    let loaded = args.model.load_for(&prompt, args.tokens)?;
    let prompt_tokens = loaded.encode(&prompt)?;
    let machine = MachineName::this();
    if !args.json {
        print_header(&loaded, &machine, prompt_tokens.len(), args.tokens);
    }
    let mut runs: Vec<(Rung, Run)> = Vec::new();
    for rung in rungs() {
        // The text is the same on every rung; it is shown where one has time to read it.
        let aloud = !args.json && runs.is_empty();
        if aloud {
            print!("{prompt}");
        }
        runs.push((rung, run(&rung, &loaded, &prompt_tokens, args.tokens, aloud)?));
        if aloud {
            println!("\n");
        }
    }
    let naive = &runs[0].1;
    let rungs: Vec<RungReport> = runs.iter().map(|(rung, run)| report(rung, run, naive)).collect();
    let same = rungs.iter().all(|rung| rung.tokens_identical && rung.logits_identical);
    if args.json {
        let report = Report { prompt, model: loaded.name, machine, rungs };
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}\n", table(&rungs));
        print_ending();
    }
    anyhow::ensure!(same, "a rung's output differs from the naive rung's: see the report above");
    Ok(())
}

/// A world of facts that no training text had, and a question about one of them.
fn default_prompt() -> String {
    let world = World::held_out(0, 4, 1);
    format!("{}{}", world.prompt(), world.question(2))
}

fn run(rung: &Rung, loaded: &Loaded, prompt: &[u32], tokens: usize, aloud: bool) -> Result<Run> {
    let capacity = prompt.len().saturating_add(tokens);
    let settings = Settings { capacity, prefill_chunk: None };
    let mut decoder = (rung.start)(loaded.model.clone(), settings)?;
    let sampler = Sampler::new(Sampling::default())?;
    // No end tokens: every rung is to generate the same number.
    let request = Request { prompt: prompt.to_vec(), tokens, end_tokens: Vec::new() };
    let mut text = loaded.tokenizer.stream_after(prompt);
    let bar = bar(rung, tokens, aloud);
    let mut run = Run {
        tokens: Vec::new(),
        logits_hash: FNV_OFFSET,
        rows: 0,
        kv_bytes_per_token: decoder.kv_bytes_per_token(),
        first: Duration::ZERO,
        total: Duration::ZERO,
    };
    for step in generate(&mut *decoder, sampler, request)? {
        let step = step?;
        if run.tokens.is_empty() {
            run.first = step.elapsed;
        }
        run.total += step.elapsed;
        run.tokens.push(step.token);
        run.logits_hash = hash(run.logits_hash, &step.logits);
        if aloud {
            print!("{}", text.push(step.token)?);
            std::io::stdout().flush()?;
        }
        bar.inc(1);
    }
    if aloud {
        print!("{}", text.finish()?);
    }
    bar.finish_and_clear();
    run.rows = decoder.rows();
    Ok(run)
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

fn report(rung: &Rung, run: &Run, naive: &Run) -> RungReport {
    RungReport {
        package: rung.package,
        change: rung.change,
        rows: run.rows,
        kv_bytes_per_token: run.kv_bytes_per_token,
        ttft_ms: run.first.as_secs_f64() * 1e3,
        tokens_per_second: run.tokens.len() as f64 / run.total.as_secs_f64(),
        tokens_identical: run.tokens == naive.tokens,
        logits_identical: run.logits_hash == naive.logits_hash,
        logits_hash: run.logits_hash,
    }
}

fn print_header(loaded: &Loaded, machine: &MachineName, prompt: usize, tokens: usize) {
    let config = &loaded.model.config;
    println!(
        "model    {}: {} layers, {} wide, {} heads, {} KV heads, {:.1} MB of weights",
        loaded.name,
        config.layers,
        config.hidden_size,
        config.heads,
        config.kv_heads,
        loaded.model.weight_bytes() as f64 / 1e6
    );
    println!("machine  {}, {} threads, {}", machine.cpu, machine.cores, machine.simd);
    println!("task     {prompt} tokens of prompt, {tokens} to generate, greedy");
    if let Some(scaling) = loaded.scaling {
        println!(
            "context  {} tokens, {}x what the model was trained for, stretched with YaRN",
            loaded.model.context(),
            scaling.factor()
        );
    }
    println!();
}

fn table(rungs: &[RungReport]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "rung",
            "what changed",
            "rows",
            "KV B/token",
            "TTFT ms",
            "tok/s",
            "speed-up",
            "tokens",
            "logits",
        ]);
    let naive = rungs[0].tokens_per_second;
    for rung in rungs {
        table.add_row([
            rung.package.to_string(),
            rung.change.to_string(),
            rung.rows.to_string(),
            rung.kv_bytes_per_token.to_string(),
            format!("{:.1}", rung.ttft_ms),
            format!("{:.1}", rung.tokens_per_second),
            format!("{:.1}x", rung.tokens_per_second / naive),
            if rung.tokens_identical { "same".into() } else { "DIFFERENT".to_string() },
            format!(
                "{} {:08x}",
                if rung.logits_identical { "same" } else { "DIFFERENT" },
                rung.logits_hash >> 32
            ),
        ]);
    }
    for column in 2..7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn print_ending() {
    println!("Rows are positions that went through the model. The last column is a hash of every");
    println!("logit of every step: equal means that not one bit differs.\n");
    println!("Next:");
    println!(
        "  cargo ladder break          what happens when a cache goes wrong, one fault at a time"
    );
    println!("  cargo ladder generate --prompt \"Once upon a time\" --temperature 0.8");
    println!("  cargo book                  the book: how each rung works, and why");
}
