//! Bytes and time for one more token, at growing length: a model with a key-value head for each query head,
//! with its own, and with one for all.
//!
//!     cargo run --release -p gqa-mla --example measure_heads

use anyhow::{Result, ensure};
use clap::Parser;
use gqa_mla::heads;
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{Cached, CachedDecoder, ContiguousStore, KvShape};
use model_files::{ModelArgs, ModelFiles};
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{Config, Decoder, LoadOptions, Model, dense};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const LENGTHS: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
const ROUNDS: usize = 9;
/// Prompt tokens in one pass.
const CHUNK: usize = 256;

/// Measures what fewer key-value heads save, in bytes and in time.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let files = arguments.model.files()?;
    let own = &files.config;
    let cases = [("MHA", own.heads), ("GQA", own.kv_heads), ("MQA", 1)];
    let names = cases.map(|(name, kv_heads)| format!("{name}, {kv_heads} KV heads"));
    let mut decoders = Vec::new();
    for (_, kv_heads) in cases {
        decoders.push(decoder(&model(&files, kv_heads)?)?);
    }
    let bytes = bytes(&decoders, &names);
    let times = times(&mut decoders, &names)?;
    for (what, series) in [("kilobytes of cache", &bytes), ("milliseconds a token", &times)] {
        println!("{what}, by context length\n");
        println!("{:>7} {:>18} {:>18} {:>18}", "length", names[0], names[1], names[2]);
        for (i, length) in LENGTHS.iter().enumerate() {
            let [mha, gqa, mqa] = [0, 1, 2].map(|s: usize| median(&series[s].points[i].1));
            println!("{length:>7} {mha:>18.3} {gqa:>18.3} {mqa:>18.3}");
        }
        println!();
    }
    let series = bytes.into_iter().chain(times).collect();
    Measurement::by("gqa-mla", "measure_heads", series).keep(arguments.json.as_deref())?;
    Ok(())
}

/// The model's matrices, put together as a Llama's, with its heads repeated or pooled. Time does not hang on
/// what the weights say, nor on how far RoPE is stretched.
fn model(files: &ModelFiles, kv_heads: usize) -> Result<Arc<Model>> {
    let config = Config { rope_scaling: None, ..files.config.clone() };
    let options = LoadOptions { context: Some(LENGTHS[6] + 1), ..LoadOptions::default() };
    let tensors = |name: &str, shape: &[usize]| files.tensor(name, shape);
    Ok(Arc::new(heads::assemble(config, kv_heads, options, &tensors, &dense(options.isa))?))
}

type Slab = CachedDecoder<Cached<ContiguousStore>>;

fn decoder(model: &Arc<Model>) -> Result<Slab> {
    let store = ContiguousStore::new(KvShape::of(model), LENGTHS[6] + 1, 1)?;
    Ok(CachedDecoder::new(model.clone(), Cached::new(store, model.isa), Some(CHUNK))?)
}

fn empty(names: &[String; 3], unit: &str) -> [Series; 3] {
    names.each_ref().map(|name| Series {
        name: format!("{name} ({unit})"),
        unit: unit.into(),
        points: Vec::new(),
    })
}

/// What a text of each length keeps.
fn bytes(decoders: &[Slab], names: &[String; 3]) -> [Series; 3] {
    let mut series = empty(names, "KB");
    for (series, decoder) in series.iter_mut().zip(decoders) {
        let kept = |length: usize| (length * decoder.kv_bytes_per_token()) as f64 / 1e3;
        series.points = LENGTHS.map(|length| (length as f64, vec![kept(length)])).to_vec();
    }
    series
}

/// Each decoder reads one text; at each length it takes one more token, again and again.
fn times(decoders: &mut [Slab], names: &[String; 3]) -> Result<[Series; 3]> {
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left")?;
    let bar = ProgressBar::new((LENGTHS.len() * ROUNDS) as u64).with_style(style);
    let tokens: Vec<u32> = (0..=LENGTHS[6] as u32).map(|i| 5 + i * 37 % 2000).collect();
    let mut series = empty(names, "ms");
    for length in LENGTHS {
        for decoder in decoders.iter_mut() {
            decoder.feed(&tokens[decoder.len()..length])?;
        }
        let mut samples = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            // In turns, so that no side has the quieter minutes.
            let mut logits = Vec::new();
            for (samples, decoder) in samples.iter_mut().zip(decoders.iter_mut()) {
                let (ms, found) = one_more(decoder, &tokens[length..=length])?;
                samples.push(ms);
                logits.push(found);
            }
            ensure!(logits[0] == logits[1], "repeated heads are not the heads they repeat");
            bar.inc(1);
        }
        for (series, samples) in series.iter_mut().zip(samples) {
            series.points.push((length as f64, samples));
        }
    }
    bar.finish_and_clear();
    Ok(series)
}

/// Milliseconds that one more token takes, and its logits; then the token is taken back.
fn one_more(decoder: &mut Slab, next: &[u32]) -> Result<(f64, Vec<f32>)> {
    let length = decoder.len();
    let started = Instant::now();
    let logits = decoder.feed(next)?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    decoder.truncate(length)?;
    Ok((ms, logits))
}
