//! What batching brings: tokens a second and time per token by size of the batch, and static against continuous
//! batches under one load.
//!
//!     cargo run --release -p serving --example measure_batching
//!     cargo run --release -p serving --example measure_batching -- --model FILE.gguf

use anyhow::{Result, ensure};
use clap::Parser;
use flash_attention::packed::Weights;
use flash_attention::threads::Pool;
use indicatif::ProgressBar;
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{LoadOptions, Model, Tokenizer};
use paged_cache::Room;
use serving::engine::{Engine, EngineOptions, Kind};
use serving::load::{Arrival, Load};
use serving::packed::{Keep, load_packed};
use serving::trace::{Batching, Timeline, run};
use std::path::PathBuf;
use std::sync::Arc;

/// Sizes of the batch.
const BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Tokens of each prompt and each answer of the batching curve.
const PROMPT: usize = 32;
const ANSWER: usize = 64;

/// Requests that may be inside at once where the two ways are compared.
const RUNNING: [usize; 3] = [4, 8, 16];

/// What static and continuous batches are compared under: all there at once, of very different lengths.
const LOAD: Load =
    Load { requests: 64, per_second: None, prompt_tokens: 32, answer_tokens: 64, seed: 1 };

/// Rows of a pass.
const ROWS: usize = 256;

/// Measures what batching brings.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// What the weights are stored as
    #[arg(long, default_value = "stored")]
    weights: Weights,
    /// Samples of each figure
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Also write the raw samples to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// What all runs have in common.
struct Bench {
    model: Arc<Model>,
    tokenizer: Tokenizer,
    samples: usize,
    bar: ProgressBar,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let files = arguments.model.files()?;
    let pool = Pool::shared();
    let options = LoadOptions::default();
    let loaded = load_packed(&files, arguments.weights, options, &pool, Keep::Slow)?;
    let runs = arguments.samples * (BATCHES.len() + 2 * RUNNING.len());
    let bench = Bench {
        model: Arc::new(loaded.model),
        tokenizer: files.tokenizer,
        samples: arguments.samples,
        bar: ProgressBar::new(runs as u64),
    };
    let mut series = bench.curve()?;
    series.extend(bench.compare()?);
    bench.bar.finish_and_clear();
    for Series { name, unit, points } in &series {
        let shown: Vec<String> =
            points.iter().map(|(x, samples)| format!("{x}: {:.2}", median(samples))).collect();
        println!("{name}, {unit}, by requests at once: {}", shown.join(", "));
    }
    Ok(Measurement::by("serving", "measure_batching", series).keep(arguments.json.as_deref())?)
}

impl Bench {
    /// An engine without guesses and without a memory of prompts: only batching is to show.
    fn engine(&self, running: usize, batching: Batching) -> Result<Engine> {
        let tokens = (running + 1) * self.model.context();
        let options = EngineOptions {
            pool_bytes: Room::for_tokens(&self.model, tokens.min(1 << 15))?.bytes,
            rows: ROWS,
            running,
            draft: 0,
            prefixes: false,
            policy: batching.policy(),
            ..EngineOptions::for_model(&self.model)?
        };
        Ok(Engine::new(self.model.clone(), options)?)
    }

    fn run(
        &self,
        running: usize,
        batching: Batching,
        load: &[Arrival],
    ) -> Result<(Timeline, Vec<Vec<u32>>)> {
        let done = run(self.engine(running, batching)?, load)?;
        self.bar.inc(1);
        Ok(done)
    }

    /// Tokens a second and time per token while so many texts are written side by side.
    fn curve(&self) -> Result<Vec<Series>> {
        let most = BATCHES[BATCHES.len() - 1];
        let lengths = Load { requests: most, prompt_tokens: 8 * PROMPT, ..LOAD };
        let mut all = lengths.arrivals(&self.tokenizer, self.model.context())?;
        for arrival in &mut all {
            let text = arrival.prompt.iter().copied().cycle().take(PROMPT);
            (arrival.prompt, arrival.tokens) = (text.collect(), ANSWER);
        }
        let mut rates = BATCHES.map(|batch| (batch as f64, Vec::new()));
        let mut times = BATCHES.map(|batch| (batch as f64, Vec::new()));
        let mut alone: Option<Vec<u32>> = None;
        for _ in 0..self.samples {
            for (i, &batch) in BATCHES.iter().enumerate() {
                let (timeline, tokens) = self.run(batch, Batching::Continuous, &all[..batch])?;
                let first = alone.get_or_insert_with(|| tokens[0].clone());
                ensure!(*first == tokens[0], "a batch of {batch} has other tokens");
                // Passes in which everybody writes and nobody's prompt is read.
                let full = timeline.passes.iter().filter(|pass| {
                    pass.spans.len() == batch
                        && pass.spans.iter().all(|span| span.kind == Kind::Decode)
                });
                let seconds: Vec<f64> = full.map(|pass| pass.duration.as_secs_f64()).collect();
                ensure!(!seconds.is_empty(), "nobody wrote in a batch of {batch}");
                let each = seconds.iter().sum::<f64>() / seconds.len() as f64;
                rates[i].1.push(batch as f64 / each);
                times[i].1.push(each * 1e3);
            }
        }
        let series = |name: &str, unit: &str, points: [(f64, Vec<f64>); 6]| Series {
            name: name.into(),
            unit: unit.into(),
            points: points.into(),
        };
        Ok(vec![series("decode", "tokens/s", rates), series("time per token", "ms", times)])
    }

    /// The same load in static and in continuous batches, in turns.
    fn compare(&self) -> Result<Vec<Series>> {
        let load = LOAD.arrivals(&self.tokenizer, self.model.context())?;
        let ways = [("static", Batching::Static), ("continuous", Batching::Continuous)];
        let mut series = Vec::new();
        for (name, _) in ways {
            for (what, unit) in
                [("", "tokens/s"), (", time to first token", "ms"), (", passes", "passes")]
            {
                let points = RUNNING.map(|running| (running as f64, Vec::new())).into();
                series.push(Series { name: format!("{name}{what}"), unit: unit.into(), points });
            }
        }
        let mut expected: Option<Vec<Vec<u32>>> = None;
        for (i, &running) in RUNNING.iter().enumerate() {
            for _ in 0..self.samples {
                for (way, (name, batching)) in ways.iter().enumerate() {
                    let (timeline, tokens) = self.run(running, *batching, &load)?;
                    let expected = expected.get_or_insert_with(|| tokens.clone());
                    ensure!(*expected == tokens, "{name} batches of {running} have other tokens");
                    let generated = tokens.iter().map(Vec::len).sum::<usize>() as f64;
                    let ends = timeline.requests.iter().map(|request| request.finished);
                    let firsts = timeline.requests.iter().filter_map(|request| {
                        request.first_token.map(|first| first - request.submitted)
                    });
                    let waited = firsts.sum::<f64>() / timeline.requests.len() as f64;
                    let figures = [
                        generated / ends.fold(0.0, f64::max),
                        waited * 1e3,
                        timeline.passes.len() as f64,
                    ];
                    for (figure, sample) in figures.into_iter().enumerate() {
                        series[way * 3 + figure].points[i].1.push(sample);
                    }
                }
            }
        }
        Ok(series)
    }
}
