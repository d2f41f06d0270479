//! What the simulator says of this engine on this machine, beside what the engine does.
//!
//!     cargo run --release -p serving --example measure_simulator
//!     cargo run --release -p serving --example measure_simulator -- --model FILE.gguf
//!
//! In each round the simulator is calibrated, on a few dozen passes of other loads than those that follow. Then it
//! predicts, and the engine runs: 1, 8 and 32 clients that ask again as soon as they have their answer.

use anyhow::{Result, ensure};
use clap::Parser;
use flash_attention::packed::Weights;
use flash_attention::threads::Pool;
use indicatif::ProgressBar;
use model_files::ModelArgs;
use naive_decode::LoadOptions;
use naive_decode::measurement::{Measurement, Series, median};
use paged_cache::Room;
use serving::engine::policy::Budget;
use serving::engine::{Engine, EngineOptions};
use serving::load::Load;
use serving::load::sizes::Spread;
use serving::packed::{Keep, load_packed};
use serving::simulate::{Task, calibrate, drive, of_files, storage_of, this_machine};
use serving::simulator::{
    Deployment, Fitted, PassTime, Quantiles, RequestOutcome, Speculation, Workload, simulate,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Clients that ask at the same time.
const CLIENTS: [usize; 3] = [1, 8, 32];

/// Answers of each client, and of a client alone.
const EACH: usize = 3;
const ALONE: usize = 8;

/// Rows of a pass.
const ROWS: usize = 256;

/// Longest text of the loads.
const CONTEXT: usize = 512;

/// Longest prompt that the simulator is calibrated with.
const DEPTH: usize = 256;

/// Measures how well the simulator predicts the engine.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// What the weights are stored as
    #[arg(long, default_value = "stored")]
    weights: Weights,
    /// Tokens of a prompt, on average
    #[arg(long, default_value_t = 96)]
    prompt_tokens: usize,
    /// Tokens of an answer, on average
    #[arg(long, default_value_t = 64)]
    answer_tokens: usize,
    /// Rounds: a calibration, a prediction and a run of each load
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Also write the raw samples to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// By name and unit; and then by the number of clients.
type Samples = BTreeMap<(String, &'static str), BTreeMap<usize, Vec<f64>>>;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.samples > 0, "samples is 0, expected at least 1");
    let files = arguments.model.files()?;
    let pool = Pool::shared();
    let load = LoadOptions::default();
    let loaded = load_packed(&files, arguments.weights, load, &pool, Keep::Slow)?;
    let model = Arc::new(loaded.model);
    let most = CLIENTS[CLIENTS.len() - 1];
    let context = model.context().min(CONTEXT);
    let pool_tokens = (most + 1) * context;
    let options = EngineOptions {
        pool_bytes: Room::for_tokens(&model, pool_tokens)?.bytes,
        rows: ROWS,
        running: most,
        draft: 0,
        prefixes: false,
        ..EngineOptions::for_model(&model)?
    };
    let counted = of_files(&files, model.context(), storage_of(&files, &model)?)?;
    let hardware = this_machine(pool.threads(), None)?;
    let mut engine = Engine::new(model.clone(), options.clone())?;
    let bar = ProgressBar::new((arguments.samples * CLIENTS.len()) as u64);
    let mut samples = Samples::new();
    for round in 0..arguments.samples {
        let passes = calibrate(&model, &counted, &options, DEPTH, &bar)?;
        let fitted = Fitted::to(&passes, counted.head_share())?;
        let mut keep = |name: String, unit, clients, value: f64| {
            samples.entry((name, unit)).or_default().entry(clients).or_default().push(value);
        };
        for clients in CLIENTS {
            let load = Load {
                requests: (clients * EACH).max(ALONE),
                per_second: None,
                prompt_tokens: arguments.prompt_tokens,
                answer_tokens: arguments.answer_tokens,
                seed: (1 + round * 100 + clients) as u64,
            };
            let deployment = Deployment {
                model: counted.clone(),
                hardware: hardware.clone(),
                pass_time: PassTime::Measured(fitted.clone()),
                policy: options.policy.clone(),
                budget: Budget { rows: ROWS, running: most },
                block: options.block,
                pool_tokens: Some(pool_tokens),
                speculation: Speculation::NONE,
            };
            let sizes = load.sizes(Spread::Exponential).draw(context)?;
            let predicted = simulate(
                &deployment,
                &Workload { sizes, clients: Some(clients), seed: load.seed },
            )?;
            let texts = load.arrivals(&files.tokenizer, context)?.into_iter();
            let tasks: Vec<Task> =
                texts.map(|text| Task { prompt: text.prompt, answer: text.tokens }).collect();
            // Not at once: pages and caches are to be as a server's that has been up for a while.
            drive(&mut engine, &tasks[..tasks.len().min(clients)], clients)?;
            let driven = drive(&mut engine, &tasks, clients)?;
            ensure!(
                driven.steps.len() == predicted.passes,
                "the engine took {} passes, the simulator {}: they do not decide alike",
                driven.steps.len(),
                predicted.passes
            );
            for (who, requests) in
                [("predicted", &predicted.requests), ("measured", &driven.requests)]
            {
                for (what, unit, value) in figures(requests) {
                    keep(format!("{who}: {what}"), unit, clients, value);
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for what in ["throughput", "TTFT", "TPOT"] {
        let of = |who: &str, clients: usize| {
            let name = format!("{who}: {what}");
            let found = samples.iter().find(|((found, _), _)| *found == name);
            found.map_or(0.0, |(_, points)| median(&points[&clients]))
        };
        for clients in CLIENTS {
            let (predicted, measured) = (of("predicted", clients), of("measured", clients));
            println!(
                "{what:<10} {clients:>2} clients: predicted {predicted:>8.2}, measured {measured:>8.2}, {:+.0} %",
                100.0 * (predicted / measured - 1.0)
            );
        }
    }
    let series = samples.into_iter().map(|((name, unit), points)| Series {
        name,
        unit: unit.into(),
        points: points.into_iter().map(|(clients, values)| (clients as f64, values)).collect(),
    });
    let series = series.collect();
    Ok(Measurement::by("serving", "measure_simulator", series).keep(arguments.json.as_deref())?)
}

/// Tokens a second, and the middle ones of both times.
fn figures(requests: &[RequestOutcome]) -> [(&'static str, &'static str, f64); 3] {
    let tokens: usize = requests.iter().map(|request| request.answer).sum();
    let first = requests.iter().map(|request| request.came).fold(f64::INFINITY, f64::min);
    let last = requests.iter().map(|request| request.finished).fold(0.0, f64::max);
    let ttft = Quantiles::of(requests.iter().map(RequestOutcome::ttft));
    let tpot = Quantiles::of(requests.iter().filter_map(RequestOutcome::tpot));
    [
        ("throughput", "tokens/s", tokens as f64 / (last - first)),
        ("TTFT", "ms", ttft.p50 * 1e3),
        ("TPOT", "ms", tpot.p50 * 1e3),
    ]
}
