//! What each format of weights, and of keys and values, costs in quality, and what it buys.
//!
//!     cargo run --release -p flash-attention --example measure_weights

use anyhow::Result;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use flash_attention::FlashCache;
use flash_attention::packed::{
    Calibration, Format, Packer, Rows, THRESHOLD, Weights, awq_packer, outlier_packer,
};
use flash_attention::threads::Pool;
use flash_attention::tile_attention::KvType;
use gqa_mla::quality::{self, Judge, Material, Quality};
use kv_cache::KvCache;
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{Element, LoadOptions, Model, NaiveAttention, Pack, Pass, Span, Want};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// Tokens of one sample of speed, and samples.
const TOKENS: usize = 128;
const SAMPLES: usize = 5;

/// Longest text that the judge reads: the embedded model's.
const CONTEXT: usize = 512;

/// Judges every format of weights, and of keys and values.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
    /// Also write the raw samples to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// A [`quality::Make`] of its own.
type MakeOwned = Box<dyn Fn(&Model, usize, usize) -> naive_decode::Result<Box<dyn KvCache>>>;

/// What came out for one format of weights, or of keys and values.
struct Row {
    name: String,
    model: Rc<Model>,
    make: MakeOwned,
    quality: Quality,
    tokens_per_second: Vec<f64>,
}

impl Row {
    fn of_model(name: &str, model: Model, judge: &Judge) -> Result<Self> {
        let quality = judge.judge_model(&model)?;
        Ok(Row::new(name.into(), Rc::new(model), quality, Box::new(quality::full)))
    }

    fn new(name: String, model: Rc<Model>, quality: Quality, make: MakeOwned) -> Self {
        Row { name, model, make, quality, tokens_per_second: Vec::with_capacity(SAMPLES) }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let files = arguments.model.files()?;
    let material = Material::embedded(&files.tokenizer)?;
    let context = files.config.trained_context.min(CONTEXT);
    let options = LoadOptions { context: Some(context), ..LoadOptions::default() };
    let assemble = |pack: Pack| files.assemble(options, pack);
    let full = files.load(options)?;
    let pool = Pool::shared();
    let calibration = Calibration::new(options.isa);
    let watched = assemble(&calibration)?;
    for text in &material.texts {
        let pass = Pass::one(Span::new(0, 0, text, Want::Last));
        watched.forward(&pass, &mut NaiveAttention::new(options.isa))?;
    }
    let judge = Judge::new(&full, material)?;

    let mut rows = Vec::new();
    for format in Format::ALL {
        let stored = |_: &str| Ok(None::<Rows>);
        let packer = Packer::new(Weights::As(format), options.isa, &pool, &stored);
        rows.push(Row::of_model(format.name(), assemble(&packer)?, &judge)?);
    }
    let seen = calibration.seen();
    for (name, threshold) in [("int8, one scale a row", f32::INFINITY), ("llm.int8()", THRESHOLD)] {
        let packer = outlier_packer(&seen, threshold, options.isa, &pool);
        rows.push(Row::of_model(name, assemble(&packer)?, &judge)?);
    }
    for (name, format) in [("q4_1, awq", Format::Q4_1), ("q4_0, awq", Format::Q4_0)] {
        let packer = awq_packer(format, &seen, options.isa, &pool);
        rows.push(Row::of_model(name, assemble(&packer)?, &judge)?);
    }
    let stored = |_: &str| Ok(None::<Rows>);
    let packer = Packer::new(Weights::As(Format::F32), options.isa, &pool, &stored);
    let packed = Rc::new(assemble(&packer)?);
    for kept in [Element::Bf16.into(), KvType::Bf16Fast, KvType::Int8] {
        let pool = pool.clone();
        let make: MakeOwned = Box::new(move |model, capacity, sequences| {
            let cache = FlashCache::with_kept(model, kept, capacity, sequences)?;
            Ok(Box::new(cache.on_threads(pool.clone())))
        });
        let quality = judge.judge(&*make)?;
        rows.push(Row::new(format!("f32, {kept} K/V"), packed.clone(), quality, make));
    }
    // In turns, so that none has the quieter minutes.
    for _ in 0..SAMPLES {
        rows.iter_mut().try_for_each(time)?;
    }
    print_table(&rows);
    let series = rows.iter().flat_map(samples).collect();
    Measurement::by("flash-attention", "measure_weights", series)
        .keep(arguments.json.as_deref())?;
    Ok(())
}

/// One more sample of decoding.
fn time(row: &mut Row) -> Result<()> {
    let Row { model, make, tokens_per_second, .. } = row;
    let mut cache = make(model, TOKENS + 1, 1)?;
    let mut feed = |slot: usize, token: u32| {
        let pass = Pass::one(Span::new(0, slot, &[token], Want::Last));
        model.forward(&pass, &mut *cache)
    };
    feed(0, 1)?;
    let began = Instant::now();
    for token in 0..TOKENS {
        feed(token + 1, token as u32 + 5)?;
    }
    tokens_per_second.push(TOKENS as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

fn print_table(rows: &[Row]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "weights",
        "MB",
        "of f32",
        "perplexity",
        "KL, nats",
        "same token",
        "recall",
        "tokens/s",
    ]);
    let bytes = |row: &Row| row.model.weight_bytes() as f64;
    for row in rows {
        let Row { name, quality, tokens_per_second, .. } = row;
        table.add_row([
            name.clone(),
            format!("{:.2}", bytes(row) / 1e6),
            format!("{:.1}x", bytes(&rows[0]) / bytes(row)),
            format!("{:.3}", quality.perplexity()),
            format!("{:.5}", quality.divergence()),
            format!("{:.1} %", 100.0 * quality.agreement()),
            format!("{:.0} %", 100.0 * quality.recall()),
            format!("{:.0}", median(tokens_per_second)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}

/// One series for each figure of a format, at its bytes: a sample for each text, quiz or run.
fn samples(row: &Row) -> Vec<Series> {
    let texts = &row.quality.texts;
    let figures: [(&str, &str, Vec<f64>); 5] = [
        ("nats", "nats a token", texts.iter().map(|text| text.nats).collect()),
        ("KL", "nats a token", texts.iter().map(|text| text.divergence).collect()),
        ("same token", "%", texts.iter().map(|text| 100.0 * text.agreement).collect()),
        ("recall", "%", row.quality.recall.iter().map(|share| 100.0 * share).collect()),
        ("speed", "tokens/s", row.tokens_per_second.clone()),
    ];
    figures
        .into_iter()
        .map(|(figure, unit, samples)| Series {
            name: format!("{}: {figure}", row.name),
            unit: unit.into(),
            points: vec![(row.model.weight_bytes() as f64, samples)],
        })
        .collect()
}
