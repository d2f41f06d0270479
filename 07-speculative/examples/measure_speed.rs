//! Time for a token, plain and by speculation: by who guesses and what is written, greedy.
//!
//!     cargo run --release -p speculative --example measure_speed
//!     cargo run --release -p speculative --example measure_speed -- --model WHAT   # prompt lookup and lookahead only

mod family;

use anyhow::{Result, ensure};
use clap::Parser;
use family::Family;
use indicatif::{ProgressBar, ProgressStyle};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{Request, Sampler, Sampling};
use speculative::tasks::Task;
use speculative::{Adaptive, Depth, Guesser, Nothing, Proposer, Speculation, with_room_for_trees};
use std::path::PathBuf;
use std::time::Instant;

/// Texts of each kind, rounds, and tokens of a text.
const SIZES: (u64, usize, usize) = (3, 5, 192);
const CONTEXT: usize = 768;
/// Most tokens that are guessed one after the other.
const DEPTH: usize = 11;

/// Measures what speculation saves.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// A family that writes.
struct Side {
    family: Family,
}

impl Side {
    fn new(arguments: &ModelArgs) -> Result<Self> {
        Ok(Side { family: Family::new(arguments, CONTEXT)? })
    }

    fn names(&self) -> Vec<&'static str> {
        let guessers = self.family.guessers().into_iter().map(Guesser::name);
        std::iter::once("plain").chain(guessers).collect()
    }

    fn proposer(&self, name: &str) -> Result<Box<dyn Proposer>> {
        match Guesser::ALL.into_iter().find(|guesser| guesser.name() == name) {
            Some(guesser) => self.family.proposer(guesser),
            None => Ok(Box::new(Nothing)),
        }
    }

    /// Milliseconds a token, without the prompt, and the text.
    fn write(&self, name: &str, prompt: &[u32]) -> Result<(f64, Vec<u32>)> {
        let (_, _, tokens) = SIZES;
        let cache = with_room_for_trees(&self.family.model, self.family.model.context())?;
        let sampler = Sampler::new(Sampling::default())?;
        let depth = match name {
            "plain" => Depth::Fixed(0),
            _ => Depth::Adaptive(Adaptive::new(DEPTH)),
        };
        let request = Request { prompt: prompt.to_vec(), tokens, end_tokens: Vec::new() };
        let (model, proposer) = (self.family.model.clone(), self.proposer(name)?);
        let mut text = Speculation::new(model, cache, proposer, sampler, depth, request)?;
        let began = Instant::now();
        while text.advance()?.is_some() {}
        let ms = began.elapsed().as_secs_f64() * 1e3 / tokens as f64;
        Ok((ms, text.context()[prompt.len()..].to_vec()))
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // One entry into rayon's pool, and not one for each pass.
    rayon::scope(|_| measure(&arguments))
}

fn measure(arguments: &Arguments) -> Result<()> {
    let side = Side::new(&arguments.model)?;
    let (names, (texts, rounds, _)) = (side.names(), SIZES);
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left")?;
    let runs = Task::ALL.len() * texts as usize * rounds * names.len();
    let bar = ProgressBar::new(runs as u64).with_style(style);
    let mut series: Vec<Series> = Vec::new();
    for task in Task::ALL {
        let mut samples = vec![Vec::new(); names.len()];
        for number in 0..texts {
            let prompt = side.family.tokenizer.encode(&task.prompt(number))?;
            for _ in 0..rounds {
                // In turns, so that no side has the quieter minutes.
                let mut plain = Vec::new();
                for (name, samples) in names.iter().zip(&mut samples) {
                    let (ms, text) = side.write(name, &prompt)?;
                    if *name == "plain" {
                        plain = text;
                    } else {
                        ensure!(text == plain, "{name} wrote another text");
                    }
                    samples.push(ms);
                    bar.inc(1);
                }
            }
        }
        series.extend(names.iter().zip(samples).map(|(name, samples)| Series {
            name: format!("{name}: {}", task.name()),
            unit: "ms".into(),
            points: vec![(1.0, samples)],
        }));
    }
    bar.finish_and_clear();
    println!(
        "milliseconds a token, median of {texts} texts in {rounds} rounds; times as fast as plain\n"
    );
    for (row, name) in names.iter().enumerate() {
        print!("{name:>20}");
        for (task, measured) in Task::ALL.into_iter().zip(series.chunks(names.len())) {
            let [plain, own] = [0, row].map(|s: usize| &measured[s].points[0].1);
            // Each against the plain text of its own round: the machine is not always as fast.
            let times: Vec<f64> = plain.iter().zip(own).map(|(plain, own)| plain / own).collect();
            print!("  {:>7} {:>7.2} {:>4.2}x", task.name(), median(own), median(&times));
        }
        println!();
    }
    Measurement::by("speculative", "measure_speed", series).keep(arguments.json.as_deref())?;
    Ok(())
}
