//! Bytes and time for one more token, at growing length: a cache of everything, rings, and rings
//! whose layers share.
//!
//!     cargo run --release -p gqa-mla --example measure_window

use anyhow::{Result, ensure};
use clap::Parser;
use gqa_mla::hybrid::{self, HybridConfig};
use gqa_mla::{HybridCache, Room};
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{Cached, CachedDecoder, ContiguousStore, KvCache, KvShape};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{Config, Decoder, Element, LoadOptions, Model};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const LENGTHS: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
const ROUNDS: usize = 9;
/// Prompt tokens in one pass.
const CHUNK: usize = 256;
const WINDOW: Option<usize> = Some(64);
const NAMES: [&str; 3] = ["full cache with masks", "ring", "ring, layers share"];

/// Measures what a window and shared layers save, in bytes and in time.
#[derive(Parser)]
struct Arguments {
    /// Whose shape the layers have; a small one if not given
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let base = shape(&arguments.model)?;
    let apart = model(&base, false)?;
    let shared = model(&base, true)?;
    let bytes = bytes(&apart, &shared)?;
    let times = times(&apart, &shared)?;
    for (what, series) in [("kilobytes of cache", &bytes), ("milliseconds a token", &times)] {
        println!("{what}, by context length\n");
        println!("{:>7} {:>22} {:>22} {:>22}", "length", NAMES[0], NAMES[1], NAMES[2]);
        for (i, length) in LENGTHS.iter().enumerate() {
            let [full, ring, sharing] = [0, 1, 2].map(|s: usize| median(&series[s].points[i].1));
            println!("{length:>7} {full:>22.3} {ring:>22.3} {sharing:>22.3}");
        }
        println!();
    }
    let series = bytes.into_iter().chain(times).collect();
    Measurement::by("gqa-mla", "measure_window", series).keep(arguments.json.as_deref())?;
    Ok(())
}

/// The shape of the model given, or of one as small as the embedded hybrid.
fn shape(model: &ModelArgs) -> Result<Config> {
    let own = model.files()?.config;
    Ok(match model.is_embedded() {
        true => Config { hidden_size: 192, heads: 6, intermediate_size: 512, ..own },
        false => Config { rope_scaling: None, ..own },
    })
}

/// Two layers of three with a window, of which the second has the first one's keys and values if layers
/// share; random weights, as time and bytes do not hang on what they say.
fn model(base: &Config, share: bool) -> Result<Arc<Model>> {
    let layers = 0..base.layers;
    let windows = layers.clone().map(|layer| WINDOW.filter(|_| layer % 3 != 2)).collect();
    let shares = layers.map(|layer| (share && layer % 3 == 1).then(|| layer - 1)).collect();
    let config = HybridConfig { base: base.clone(), windows, shares, qk_norm: true };
    let context = Some(LENGTHS[6] + 1);
    let options = LoadOptions { context, kv_element: Element::Bf16, ..LoadOptions::default() };
    Ok(Arc::new(hybrid::random(config, 1, options)?))
}

fn everything(model: &Model, capacity: usize) -> Result<Cached<ContiguousStore>> {
    Ok(Cached::new(ContiguousStore::new(KvShape::of(model), capacity, 1)?, model.isa))
}

fn rings(model: &Model, capacity: usize, spare: usize) -> Result<HybridCache> {
    Ok(HybridCache::new(model, Room { capacity, sequences: 1, spare })?)
}

fn empty_series(unit: &str) -> [Series; 3] {
    NAMES.map(|name| Series {
        name: format!("{name} ({unit})"),
        unit: unit.into(),
        points: Vec::new(),
    })
}

/// What each cache sets aside for a text of each length.
fn bytes(apart: &Model, shared: &Model) -> Result<[Series; 3]> {
    let mut series = empty_series("KB");
    for length in LENGTHS {
        let bytes = [
            everything(apart, length)?.allocated_bytes(),
            rings(apart, length, 0)?.allocated_bytes(),
            rings(shared, length, 0)?.allocated_bytes(),
        ];
        for (series, bytes) in series.iter_mut().zip(bytes) {
            series.points.push((length as f64, vec![bytes as f64 / 1e3]));
        }
    }
    Ok(series)
}

/// Each decoder reads one text; at each length it takes one more token, again and again.
fn times(apart: &Arc<Model>, shared: &Arc<Model>) -> Result<[Series; 3]> {
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left")?;
    let bar = ProgressBar::new((LENGTHS.len() * ROUNDS) as u64).with_style(style);
    let capacity = LENGTHS[6] + 1;
    let tokens: Vec<u32> = (0..capacity as u32).map(|i| 5 + i * 37 % 2000).collect();
    let mut masked = decoder(apart, everything(apart, capacity)?)?;
    let mut ring = decoder(apart, rings(apart, capacity, 1)?)?;
    let mut sharing = decoder(shared, rings(shared, capacity, 1)?)?;
    // Not timed: what the layers that share must come to.
    let mut judge = decoder(shared, everything(shared, capacity)?)?;
    let mut series = empty_series("ms");
    for length in LENGTHS {
        let past = &tokens[masked.len()..length];
        for decoder in [&mut masked as &mut dyn Decoder, &mut ring, &mut sharing, &mut judge] {
            decoder.feed(past)?;
        }
        let next = &tokens[length..=length];
        let (_, expected) = one_more(&mut judge, next)?;
        let mut samples = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            // In turns, so that no side has the quieter minutes.
            let (masked_ms, from_masked) = one_more(&mut masked, next)?;
            let (ring_ms, from_ring) = one_more(&mut ring, next)?;
            let (sharing_ms, from_sharing) = one_more(&mut sharing, next)?;
            ensure!(from_masked == from_ring, "the ring is not masked full attention");
            ensure!(from_sharing == expected, "layers that share are not masked full attention");
            for (samples, ms) in samples.iter_mut().zip([masked_ms, ring_ms, sharing_ms]) {
                samples.push(ms);
            }
            bar.inc(1);
        }
        for (series, samples) in series.iter_mut().zip(samples) {
            series.points.push((length as f64, samples));
        }
    }
    bar.finish_and_clear();
    Ok(series)
}

fn decoder<A: KvCache>(model: &Arc<Model>, cache: A) -> Result<CachedDecoder<A>> {
    Ok(CachedDecoder::new(model.clone(), cache, Some(CHUNK))?)
}

/// Milliseconds that one more token takes, and its logits; then the token is taken back.
fn one_more<A: KvCache>(decoder: &mut CachedDecoder<A>, next: &[u32]) -> Result<(f64, Vec<f32>)> {
    let length = decoder.len();
    let started = Instant::now();
    let logits = decoder.feed(next)?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    decoder.truncate(length)?;
    Ok((ms, logits))
}
