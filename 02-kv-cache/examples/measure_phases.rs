//! Prefill against decode: what one pass costs, by how many rows it brings.
//!
//!     cargo run --release -p kv-cache --example measure_phases

use anyhow::Result;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series};
use naive_decode::{Model, Pass, Span, Want};
use std::path::PathBuf;
use std::time::Instant;

const ROWS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const ROUNDS: usize = 9;

/// Passes of each size before the one that is timed.
const UNTIMED: usize = 4;

/// Measures passes of one to many rows on an empty cache.
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
    let model = arguments.model.load_to_time(ROWS[9])?;
    let series = measure(&model)?;

    println!("one pass on an empty cache, best of {ROUNDS}\n");
    println!("{:>5} {:>9} {:>11}", "rows", "ms", "tokens/s");
    for (rows, samples) in &series.points {
        let best = samples.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{rows:>5} {best:>9.3} {:>11.0}", rows / best * 1e3);
    }
    println!(
        "\nOne row is decode: its time is TPOT. A prompt's rows are prefill: their time is TTFT."
    );
    let series = vec![series];
    Measurement::by("kv-cache", "measure_phases", series).keep(arguments.json.as_deref())?;
    Ok(())
}

fn measure(model: &Model) -> Result<Series> {
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left")?;
    let bar = ProgressBar::new((ROWS.len() * ROUNDS) as u64).with_style(style);
    let mut points: Vec<(f64, Vec<f64>)> =
        ROWS.iter().map(|&rows| (rows as f64, Vec::new())).collect();
    let shape = KvShape::of(model);
    let mut cache = Cached::new(ContiguousStore::new(shape, ROWS[9], 1)?, model.isa);
    for _ in 0..ROUNDS {
        for (rows, (_, samples)) in ROWS.into_iter().zip(&mut points) {
            let tokens: Vec<u32> = (0..rows as u32).map(|i| 5 + i * 37 % 2000).collect();
            let pass = Pass::one(Span::new(0, 0, &tokens, Want::Last));
            // Untimed first, as steps come before it in a text that goes on: they bring the weights into the processor's
            // caches, where a pass of another size may have left other data, and the threads to cores of their own.
            for _ in 0..UNTIMED {
                model.forward(&pass, &mut cache)?;
                cache.reset(0)?;
            }
            let started = Instant::now();
            model.forward(&pass, &mut cache)?;
            samples.push(started.elapsed().as_secs_f64() * 1e3);
            cache.reset(0)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(Series { name: "one pass".into(), unit: "ms".into(), points })
}
