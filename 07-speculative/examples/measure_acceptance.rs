//! How many tokens a pass of the target brings, and how many guesses are kept: by who guesses, what is written, and the
//! temperature.
//!
//!     cargo run --release -p speculative --example measure_acceptance
//!     cargo run --release -p speculative --example measure_acceptance -- --model WHAT   # prompt lookup and lookahead only

mod family;

use anyhow::{Result, ensure};
use clap::Parser;
use family::Family;
use indicatif::{ProgressBar, ProgressStyle};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{Request, Sampler, Sampling};
use speculative::tasks::Task;
use speculative::{Depth, Guesser, Speculation, with_room_for_trees};
use std::path::PathBuf;

const TEMPERATURES: [f32; 4] = [0.0, 0.5, 1.0, 1.5];
/// Texts of each kind, and tokens of each.
const TEXTS: u64 = 4;
const TOKENS: usize = 96;
const DEPTH: usize = 4;
const CONTEXT: usize = 512;

/// Measures how many guesses are kept.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let family = Family::new(&arguments.model, CONTEXT)?;
    let guessers = family.guessers();
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left")?;
    let texts = guessers.len() * Task::ALL.len() * TEMPERATURES.len() * TEXTS as usize;
    let bar = ProgressBar::new(texts as u64).with_style(style);
    let mut series = Vec::new();
    for &guesser in &guessers {
        for task in Task::ALL {
            let named = |figure: String, unit: &str| Series {
                name: format!("{}: {figure}", guesser.name()),
                unit: unit.into(),
                points: Vec::new(),
            };
            let mut tokens = named(task.name().into(), "tokens a pass");
            let mut kept = named(format!("{}, kept", task.name()), "%");
            for temperature in TEMPERATURES {
                let (mut of_tokens, mut of_kept) = (Vec::new(), Vec::new());
                for number in 0..TEXTS {
                    let prompt = family.tokenizer.encode(&task.prompt(number))?;
                    let found = write(&family, guesser, prompt, temperature, number)?;
                    of_tokens.push(found.0);
                    of_kept.push(found.1);
                    bar.inc(1);
                }
                tokens.points.push((f64::from(temperature), of_tokens));
                kept.points.push((f64::from(temperature), of_kept));
            }
            series.extend([tokens, kept]);
        }
    }
    bar.finish_and_clear();
    println!("tokens a pass with drafts of {DEPTH}, and guesses kept; median of {TEXTS} texts\n");
    for (i, temperature) in TEMPERATURES.into_iter().enumerate() {
        println!("temperature {temperature}");
        for (guesser, measured) in guessers.iter().zip(series.chunks(2 * Task::ALL.len())) {
            print!("{:>20}", guesser.name());
            for (task, pair) in Task::ALL.into_iter().zip(measured.chunks(2)) {
                let [tokens, kept] = [0, 1].map(|s: usize| median(&pair[s].points[i].1));
                print!("  {:>7} {tokens:>4.2} {kept:>3.0} %", task.name());
            }
            println!();
        }
    }
    Measurement::by("speculative", "measure_acceptance", series).keep(arguments.json.as_deref())?;
    Ok(())
}

/// Writes a text; tokens a pass, and the share of guesses kept of those that were tried, in per cent: a guess behind
/// one that was refused was not.
fn write(
    family: &Family,
    guesser: Guesser,
    prompt: Vec<u32>,
    temperature: f32,
    seed: u64,
) -> Result<(f64, f64)> {
    let cache = with_room_for_trees(&family.model, family.model.context())?;
    let sampler = Sampler::new(Sampling { temperature, seed, ..Sampling::default() })?;
    let request = Request { prompt, tokens: TOKENS, end_tokens: Vec::new() };
    let (model, proposer) = (family.model.clone(), family.proposer(guesser)?);
    let depth = Depth::Fixed(DEPTH);
    let text = Speculation::new(model, cache, proposer, sampler, depth, request)?;
    let (mut tokens, mut passes, mut tried, mut kept) = (0, 0, 0, 0);
    for cycle in text {
        let cycle = cycle?;
        tokens += cycle.tokens.len();
        passes += 1;
        tried += (cycle.kept + 1).min(cycle.proposed);
        kept += cycle.kept;
    }
    ensure!(tokens == TOKENS, "{tokens} tokens of {TOKENS}");
    let share = if tried == 0 { 0.0 } else { 100.0 * kept as f64 / tried as f64 };
    Ok((tokens as f64 / f64::from(passes), share))
}
