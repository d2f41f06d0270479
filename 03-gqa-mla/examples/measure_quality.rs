//! What each lossy cache costs in quality, and what it saves.
//!
//!     cargo run --release -p gqa-mla --example measure_quality

use anyhow::Result;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use gqa_mla::evict::{self, Budget};
use gqa_mla::quality::{Judge, Material, Quality, full};
use gqa_mla::quantized;
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{KvCache, KvShape};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series};
use naive_decode::{LoadOptions, Model};
use std::path::PathBuf;

/// Longest text that caches are made for: the embedded model's.
const CONTEXT: usize = 512;

/// Judges every lossy cache of this rung.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

type MakeCache = Box<dyn Fn(&Model, usize, usize) -> naive_decode::Result<Box<dyn KvCache>>>;

/// Every cache that is judged: what it is called, and how it is made. The first is the judge. Those that
/// evict keep a quarter of the longest text that fits: as many bytes as eight bits for each number.
fn caches() -> Vec<(String, MakeCache)> {
    let mut caches: Vec<(String, MakeCache)> = vec![("full".into(), Box::new(full))];
    for method in quantized::methods() {
        caches.push((method.name.into(), Box::new(method.make)));
    }
    for method in evict::methods() {
        let quarter = move |model: &Model, capacity, _sequences| -> naive_decode::Result<_> {
            Ok((method.make)(model, capacity, Budget::Fraction(0.25))? as Box<dyn KvCache>)
        };
        caches.push((format!("{}, a quarter", method.name), Box::new(quarter)));
    }
    caches
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let files = arguments.model.files()?;
    let context = files.config.trained_context.min(CONTEXT);
    let model = files.load(LoadOptions { context: Some(context), ..LoadOptions::default() })?;
    let judge = Judge::new(&model, Material::embedded(&files.tokenizer)?)?;
    let style = ProgressStyle::with_template("judging {msg} {bar:40} {pos}/{len}")?;
    let caches = caches();
    let bar = ProgressBar::new(caches.len() as u64).with_style(style);
    let mut rows = Vec::new();
    for (name, make) in caches {
        bar.set_message(name.clone());
        rows.push((name, judge.judge(&*make)?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    print_table(&model, &rows);
    let series = rows.iter().flat_map(|(name, quality)| samples(&model, name, quality)).collect();
    Measurement::by("gqa-mla", "measure_quality", series).keep(arguments.json.as_deref())?;
    Ok(())
}

fn bits_per_number(model: &Model, quality: &Quality) -> f64 {
    let shape = KvShape::of(model);
    let numbers = shape.layers * shape.kv_heads * (shape.key_dim + shape.value_dim);
    8.0 * quality.kept_bytes_per_token / numbers as f64
}

/// What a sequence takes whatever its length.
fn fixed_bytes(model: &Model, quality: &Quality) -> usize {
    quality.allocated_bytes.saturating_sub(quality.bytes_per_token * model.context())
}

fn print_table(model: &Model, rows: &[(String, Quality)]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "cache",
        "bits a number",
        "bytes a token",
        "fixed bytes",
        "of f32",
        "of bf16",
        "perplexity",
        "KL, nats",
        "same token",
        "recall",
    ]);
    for (name, quality) in rows {
        let bits = bits_per_number(model, quality);
        table.add_row([
            name.to_string(),
            format!("{bits:.2}"),
            format!("{:.0}", quality.kept_bytes_per_token),
            fixed_bytes(model, quality).to_string(),
            format!("{:.1}x", 32.0 / bits),
            format!("{:.1}x", 16.0 / bits),
            format!("{:.3}", quality.perplexity()),
            format!("{:.4}", quality.divergence()),
            format!("{:.1} %", 100.0 * quality.agreement()),
            format!("{:.0} %", 100.0 * quality.recall()),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    println!(
        "\nfixed bytes: what a sequence takes besides, however short (recent tokens in full precision)"
    );
}

/// One series for each figure of a cache, at its bytes a token: a sample for each text or quiz.
fn samples(model: &Model, name: &str, quality: &Quality) -> Vec<Series> {
    let texts =
        |of: fn(&gqa_mla::quality::TextQuality) -> f64| quality.texts.iter().map(of).collect();
    let figures: [(&str, &str, Vec<f64>); 6] = [
        ("nats", "nats a token", texts(|text| text.nats)),
        ("KL", "nats a token", texts(|text| text.divergence)),
        ("same token", "%", texts(|text| 100.0 * text.agreement)),
        ("recall", "%", quality.recall.iter().map(|share| 100.0 * share).collect()),
        ("bits a number", "bits", vec![bits_per_number(model, quality)]),
        ("fixed bytes", "bytes", vec![fixed_bytes(model, quality) as f64]),
    ];
    figures
        .into_iter()
        .map(|(figure, unit, samples)| Series {
            name: format!("{name}: {figure}"),
            unit: unit.into(),
            points: vec![(quality.kept_bytes_per_token, samples)],
        })
        .collect()
}
