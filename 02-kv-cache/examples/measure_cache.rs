//! Time for one more token, at growing length: naive, list cache, contiguous cache.
//!
//!     cargo run --release -p kv-cache --example measure_cache

use anyhow::{Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{Cached, CachedDecoder, ContiguousStore, KvShape, ListStore, Store};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{Decoder, Model, NaiveDecoder};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const LENGTHS: [usize; 6] = [32, 64, 128, 256, 512, 1024];
const ROUNDS: usize = 9;

/// Measures the time for one more token at growing length.
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
    let model = Arc::new(arguments.model.load_to_time(LENGTHS[5] + 1)?);
    let series = measure(&model)?;

    println!("milliseconds for one more token, median of {ROUNDS}\n");
    println!("{:>7} {:>10} {:>10} {:>10} {:>10}", "length", "naive", "list", "slab", "speed-up");
    for (i, length) in LENGTHS.iter().enumerate() {
        let [naive, list, slab] = [0, 1, 2].map(|s: usize| median(&series[s].points[i].1));
        println!("{length:>7} {naive:>10.3} {list:>10.3} {slab:>10.3} {:>9.1}x", naive / slab);
    }
    Measurement::by("kv-cache", "measure_cache", series).keep(arguments.json.as_deref())?;
    Ok(())
}

fn measure(model: &Arc<Model>) -> Result<Vec<Series>> {
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left")?;
    let bar = ProgressBar::new((LENGTHS.len() * ROUNDS) as u64).with_style(style);
    let mut series = ["naive", "list cache", "contiguous cache"].map(|name| Series {
        name: name.into(),
        unit: "ms".into(),
        points: Vec::new(),
    });
    for length in LENGTHS {
        let tokens: Vec<u32> = (0..=length as u32).map(|i| 5 + i * 37 % 2000).collect();
        let (past, next) = tokens.split_at(length);
        let mut lists = cached(model, past, |s, c, n| Ok(ListStore::new(s, c, n)))?;
        let mut slab = cached(model, past, ContiguousStore::new)?;
        let mut samples = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            // In turns, so that no side has the quieter minutes.
            let (naive_ms, expected) = timed(|| NaiveDecoder::new(model.clone()).feed(&tokens))?;
            let (lists_ms, from_lists) = timed(|| again(&mut lists, length, next))?;
            let (slab_ms, from_slab) = timed(|| again(&mut slab, length, next))?;
            ensure!(from_lists == expected && from_slab == expected, "the caches disagree");
            for (samples, ms) in samples.iter_mut().zip([naive_ms, lists_ms, slab_ms]) {
                samples.push(ms);
            }
            bar.inc(1);
        }
        for (series, samples) in series.iter_mut().zip(samples) {
            series.points.push((length as f64, samples));
        }
    }
    bar.finish_and_clear();
    Ok(series.into())
}

/// A decoder that holds `past` already.
fn cached<S: Store>(
    model: &Arc<Model>,
    past: &[u32],
    store: fn(KvShape, usize, usize) -> naive_decode::Result<S>,
) -> Result<CachedDecoder<Cached<S>>> {
    let shape = KvShape::of(model);
    let cache = Cached::new(store(shape, past.len() + 1, 1)?, model.isa);
    let mut decoder = CachedDecoder::new(model.clone(), cache, None)?;
    decoder.feed(past)?;
    Ok(decoder)
}

/// Feeds `next` after the first `length` tokens, whatever came there before.
fn again<S: Store>(
    decoder: &mut CachedDecoder<Cached<S>>,
    length: usize,
    next: &[u32],
) -> naive_decode::Result<Vec<f32>> {
    decoder.truncate(length)?;
    decoder.feed(next)
}

/// Milliseconds that `run` takes right after it has run once, and what it gives. The first run brings the weights into
/// the processor's caches, as the step before does in a text that goes on. A naive pass may have left other data there.
fn timed<T>(mut run: impl FnMut() -> naive_decode::Result<T>) -> Result<(f64, T)> {
    run()?;
    let started = Instant::now();
    let result = run()?;
    Ok((started.elapsed().as_secs_f64() * 1e3, result))
}
