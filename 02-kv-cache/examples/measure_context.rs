//! Perplexity by position, past the trained length: as trained, and under three stretchings.
//!
//!     cargo run --release -p kv-cache --example measure_context

use anyhow::{Result, ensure};
use clap::Parser;
use embedded_models::{recall, tales};
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape, RopeScaling};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series};
use naive_decode::{LoadOptions, Model, Pass, Span, Tokenizer, Want};
use std::path::PathBuf;

/// Tokens of each text.
const LENGTH: usize = 2048;
/// Positions that are averaged into one sample.
const BIN: usize = 128;
/// Texts, each one sample at every point.
const TEXTS: u64 = 6;

/// Measures perplexity by position on texts four times as long as the embedded model was trained on.
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
    let mut files = arguments.model.files()?;
    // It is stretched here, and otherwise than it may have been.
    files.config.rope_scaling = None;
    let texts: Vec<Vec<u32>> =
        (0..TEXTS).map(|number| long_text(&files.tokenizer, number)).collect::<Result<_>>()?;
    let options = LoadOptions { context: Some(LENGTH), ..LoadOptions::default() };
    let trained = files.config.trained_context;
    ensure!(
        trained < LENGTH,
        "the model's trained context is {trained} tokens, expected fewer than the {LENGTH} that are read"
    );
    let factor = LENGTH as f64 / trained as f64;
    let cases = [
        ("as trained", None),
        ("linear", Some(RopeScaling::Linear { factor, trained })),
        ("NTK-aware", Some(RopeScaling::Ntk { factor })),
        ("YaRN", Some(RopeScaling::yarn(factor, trained))),
    ];
    let style = ProgressStyle::with_template("reading {bar:40} {pos}/{len}  {eta} left")?;
    let bar = ProgressBar::new(cases.len() as u64 * TEXTS).with_style(style);
    let mut series = Vec::new();
    for (name, scaling) in cases {
        let mut model = files.load(options)?;
        if let Some(scaling) = scaling {
            scaling.stretch(&mut model);
        }
        let bins = (0..LENGTH / BIN).map(|bin| ((bin * BIN + BIN / 2) as f64, Vec::new()));
        let mut points: Vec<(f64, Vec<f64>)> = bins.collect();
        for text in &texts {
            let nats = surprises(&model, text)?;
            for (bin, (_, samples)) in nats.chunks(BIN).zip(&mut points) {
                samples.push(bin.iter().sum::<f64>() / bin.len() as f64);
            }
            bar.inc(1);
        }
        series.push(Series { name: name.into(), unit: "nats".into(), points });
    }
    bar.finish_and_clear();
    print_table(&series, trained);
    Measurement::by("kv-cache", "measure_context", series).keep(arguments.json.as_deref())?;
    Ok(())
}

/// Tales that no training text had, one after another, until there are enough tokens.
fn long_text(tokenizer: &Tokenizer, number: u64) -> Result<Vec<u32>> {
    let mut text = String::new();
    let mut seed = recall::FIRST_HELD_OUT_SEED + number * 1000;
    loop {
        text += &tales::tale(seed).text;
        text += "\n\n";
        seed += 1;
        let tokens = tokenizer.encode(&text)?;
        if tokens.len() > LENGTH {
            return Ok(tokens[..=LENGTH].to_vec());
        }
    }
}

/// `-ln p` of each token after the first, given all before it.
fn surprises(model: &Model, text: &[u32]) -> Result<Vec<f64>> {
    let shape = KvShape::of(model);
    let mut cache = Cached::new(ContiguousStore::new(shape, LENGTH, 1)?, model.isa);
    let mut nats = Vec::with_capacity(LENGTH);
    for chunk in text[..LENGTH].chunks(256) {
        let pass = Pass::one(Span::new(0, cache.len(0), chunk, Want::All));
        let logits = model.forward(&pass, &mut cache)?;
        for row in logits.rows() {
            let next = text[nats.len() + 1] as usize;
            let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
            let total: f64 = row.iter().map(|&l| libm::exp(l as f64 - highest)).sum();
            nats.push(highest + libm::log(total) - row[next] as f64);
        }
    }
    Ok(nats)
}

fn print_table(series: &[Series], trained: usize) {
    println!("perplexity by position; the model was trained on {trained} tokens\n");
    print!("{:>10}", "positions");
    series.iter().for_each(|series| print!(" {:>11}", series.name));
    println!();
    for (i, (middle, _)) in series[0].points.iter().enumerate() {
        let first = *middle as usize - BIN / 2;
        print!("{:>10}", format!("{first}-{}", first + BIN));
        for series in series {
            let samples = &series.points[i].1;
            print!(" {:>11.2}", libm::exp(samples.iter().sum::<f64>() / samples.len() as f64));
        }
        println!();
    }
}
