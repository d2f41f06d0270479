//! How long it is from starting a program to its first token, with weights packed at the start and with
//! weights that were packed before, and how much memory it takes.
//!
//!     cargo run --release -p serving --example measure_start -- --model FILE.gguf
//!
//! Each sample is a process of its own. The system has the files in its cache after the first.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use flash_attention::packed::Weights;
use flash_attention::threads::Pool;
use kv_cache::{Cached, ContiguousStore, KvShape};
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{LoadOptions, Model, Pass, Span, Want, argmax};
use serde::{Deserialize, Serialize};
use serving::packed::{Came, Keep, load_packed};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Starts of each kind.
const SAMPLES: usize = 7;

const PROMPT: &str = "Why is the sky blue, and why is it red in the evening?";

/// Measures the time to the first token of a fresh process.
#[derive(Parser)]
struct Arguments {
    /// A directory, a .gguf or .safetensors file, or an embedded model (target, draft, mla, hybrid), which
    /// is written to files first.
    #[arg(long, value_name = "WHAT", default_value = "target")]
    model: String,
    /// What the weights are stored as.
    #[arg(long, default_value = "stored")]
    weights: Weights,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Be one of the processes that are measured.
    #[arg(long, hide = true, value_enum)]
    start: Option<Keep>,
}

/// What one start came to.
#[derive(Serialize, Deserialize)]
struct Start {
    mapped: bool,
    token: u32,
    /// From the beginning of `main` until the model could be asked.
    load_ms: f64,
    prefill_ms: f64,
    /// Bytes of packed weights.
    weights: usize,
    /// Most memory that the process had at a time, mapped files included.
    peak: Option<u64>,
}

fn main() -> Result<()> {
    let began = Instant::now();
    let arguments = Arguments::parse();
    if let Some(keep) = arguments.start {
        let start = start(&arguments.model, arguments.weights, keep, began)?;
        println!("{}", serde_json::to_string(&start)?);
        return Ok(());
    }
    // What is packed is kept beside a model's files, so an embedded model needs some.
    let folder = tempfile::tempdir()?;
    let embedded = embedded_models::all().into_iter().find(|model| model.name == arguments.model);
    let model = match embedded {
        None => arguments.model.clone(),
        Some(embedded) => {
            for (name, bytes) in [
                ("config.json", embedded.config),
                ("model.safetensors", embedded.weights),
                ("tokenizer.json", embedded.tokenizer),
            ] {
                std::fs::write(folder.path().join(name), bytes)?;
            }
            folder.path().display().to_string()
        }
    };
    let sample = |keep: &str| -> Result<(f64, Start)> {
        let mut command = Command::new(std::env::current_exe()?);
        let weights = arguments.weights.name();
        command.args(["--model", &model, "--weights", weights, "--start", keep]);
        let began = Instant::now();
        let output = command.output()?;
        let time = began.elapsed().as_secs_f64() * 1e3;
        let problem = || String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}", problem());
        let start = serde_json::from_slice(&output.stdout).with_context(problem)?;
        Ok((time, start))
    };
    // Writes the file, if there is none.
    let (_, first) = sample("always")?;
    let mut kinds = [("packing", "never", vec![]), ("mapped", "always", vec![])];
    for _ in 0..SAMPLES {
        for (_, keep, starts) in &mut kinds {
            starts.push(sample(keep)?);
        }
    }
    println!("{}: {:.1} MB packed", arguments.model, first.weights as f64 / 1e6);
    let mut all = Vec::new();
    for (name, keep, starts) in &kinds {
        for (_, start) in starts {
            ensure!(start.token == first.token, "{name}: another token");
            ensure!(start.mapped == (*keep == "always"), "{name}: came otherwise");
        }
        let mut series = |what: &str, unit: &str, of: &dyn Fn(&(f64, Start)) -> f64| {
            let samples: Vec<f64> = starts.iter().map(of).collect();
            let middle = median(&samples);
            let points = vec![(first.weights as f64 / 1e6, samples)];
            all.push(Series { name: format!("{name}: {what}"), unit: unit.into(), points });
            middle
        };
        let whole = series("process to first token and exit", "ms", &|(time, _)| *time);
        let load = series("loading", "ms", &|(_, start)| start.load_ms);
        let prefill = series("prefill", "ms", &|(_, start)| start.prefill_ms);
        println!("{name}: {whole:.0} ms for the process, {load:.0} to load, {prefill:.0} prefill");
        if starts.iter().all(|(_, start)| start.peak.is_some()) {
            let peak = series("peak memory over packed weights", "x", &|(_, start)| {
                start.peak.unwrap_or_default() as f64 / start.weights as f64
            });
            println!("  at most {peak:.2} times the packed weights in memory");
        }
    }
    Measurement::by("serving", "measure_start", all).keep(arguments.json.as_deref())?;
    Ok(())
}

/// Loads a model and asks it for one token.
fn start(model: &str, weights: Weights, keep: Keep, began: Instant) -> Result<Start> {
    let files = model_files::open(model)?;
    let tokens = files.tokenizer.encode_with_special(PROMPT)?;
    let options = LoadOptions { context: Some(tokens.len()), ..LoadOptions::default() };
    let loaded = load_packed(&files, weights, options, &Pool::shared(), keep)?;
    let load_ms = began.elapsed().as_secs_f64() * 1e3;
    let model: &Model = &loaded.model;
    let mut cache =
        Cached::new(ContiguousStore::new(KvShape::of(model), tokens.len(), 1)?, model.isa);
    let began = Instant::now();
    let logits = model.forward(&Pass::one(Span::new(0, 0, &tokens, Want::Last)), &mut cache)?;
    let prefill_ms = began.elapsed().as_secs_f64() * 1e3;
    Ok(Start {
        mapped: loaded.came == Came::Mapped,
        token: argmax(logits.row(0).as_slice().context("logits are contiguous")?)?,
        load_ms,
        prefill_ms,
        weights: loaded.packed.iter().map(|packed| packed.bytes).sum(),
        peak: peak_bytes(),
    })
}

/// Most memory that this process has had at a time, where the system says so.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
