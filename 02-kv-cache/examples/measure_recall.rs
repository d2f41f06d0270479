//! Recall by distance, past the trained length: as trained, and under three stretchings.
//!
//!     cargo run --release -p kv-cache --example measure_recall

use anyhow::{Result, ensure};
use clap::Parser;
use embedded_models::recall::{FIRST_HELD_OUT_SEED, World};
use embedded_models::tales;
use indicatif::{ProgressBar, ProgressStyle};
use kv_cache::{Cached, CachedDecoder, ContiguousStore, KvShape, RopeScaling};
use model_files::ModelArgs;
use naive_decode::measurement::{Measurement, Series};
use naive_decode::{Decoder, LoadOptions, Model, Tokenizer, argmax};
use std::path::PathBuf;
use std::sync::Arc;

/// Tokens of other text between the facts and the question.
const DISTANCES: [usize; 8] = [0, 100, 200, 400, 700, 1000, 1400, 1900];
/// Longest text: the longest distance, the facts before it and the question after it.
const LENGTH: usize = 2048;
/// Facts of a world, and so questions at each distance.
const FACTS: usize = 6;
/// Each sample is the share of right answers in so many worlds.
const WORLDS: u64 = 8;
/// Samples at each point.
const SAMPLES: u64 = 3;

/// Measures how many facts a model still finds, by how far back they are.
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
    let style = ProgressStyle::with_template("asking {bar:40} {pos}/{len}  {eta} left")?;
    let bar = ProgressBar::new(cases.len() as u64 * SAMPLES * WORLDS).with_style(style);
    let mut series = Vec::new();
    for (name, scaling) in cases {
        let mut model = files.load(options)?;
        if let Some(scaling) = scaling {
            scaling.stretch(&mut model);
        }
        let model = Arc::new(model);
        let mut points: Vec<(f64, Vec<f64>)> =
            DISTANCES.iter().map(|&distance| (distance as f64, Vec::new())).collect();
        for sample in 0..SAMPLES {
            let mut right = [0; DISTANCES.len()];
            for number in sample * WORLDS..(sample + 1) * WORLDS {
                for (sum, found) in right.iter_mut().zip(ask(&model, &files.tokenizer, number)?) {
                    *sum += found;
                }
                bar.inc(1);
            }
            let asked = (WORLDS as usize * FACTS) as f64;
            for ((_, samples), right) in points.iter_mut().zip(right) {
                samples.push(100.0 * right as f64 / asked);
            }
        }
        series.push(Series { name: name.into(), unit: "%".into(), points });
    }
    bar.finish_and_clear();
    print_table(&series, trained);
    Measurement::by("kv-cache", "measure_recall", series).keep(arguments.json.as_deref())?;
    Ok(())
}

/// Right answers at each distance. The text is read once, to the longest distance; for each
/// shorter one it is rolled back.
fn ask(model: &Arc<Model>, tokenizer: &Tokenizer, number: u64) -> Result<[usize; 8]> {
    let world = World::held_out(number, FACTS, 0);
    let facts = tokenizer.encode(world.prompt())?;
    let shape = KvShape::of(model);
    let cache = Cached::new(ContiguousStore::new(shape, LENGTH, 1)?, model.isa);
    let mut decoder = CachedDecoder::new(model.clone(), cache, Some(256))?;
    decoder.feed(&facts)?;
    decoder.feed(&other_text(tokenizer, number)?)?;
    let mut right = [0; DISTANCES.len()];
    for (right, distance) in right.iter_mut().zip(DISTANCES).rev() {
        let length = facts.len() + distance;
        decoder.truncate(length)?;
        for fact in 0..FACTS {
            let logits = decoder.feed(&tokenizer.encode(&world.question(fact))?)?;
            let answer = tokenizer.encode(world.answer(fact))?;
            // The embedded tokenizer has a token for each answer; of another's, the first will do.
            *right += usize::from(Some(&argmax(&logits)?) == answer.first());
            decoder.truncate(length)?;
        }
    }
    Ok(right)
}

/// Tales that no training text had, one after another, as long as the longest distance.
fn other_text(tokenizer: &Tokenizer, number: u64) -> Result<Vec<u32>> {
    let mut text = String::new();
    let mut seed = FIRST_HELD_OUT_SEED + (number + 1) * 1000;
    loop {
        text += " ";
        text += &tales::tale(seed).text;
        seed += 1;
        let tokens = tokenizer.encode(&text)?;
        if tokens.len() >= DISTANCES[7] {
            return Ok(tokens[..DISTANCES[7]].to_vec());
        }
    }
}

fn print_table(series: &[Series], trained: usize) {
    println!("right answers by distance, percent; the model was trained on {trained} tokens");
    println!("guessing among the facts gets one in {FACTS}\n");
    print!("{:>10}", "distance");
    series.iter().for_each(|series| print!(" {:>11}", series.name));
    println!();
    for (i, distance) in DISTANCES.iter().enumerate() {
        print!("{distance:>10}");
        for series in series {
            let samples = &series.points[i].1;
            print!(" {:>11.0}", samples.iter().sum::<f64>() / samples.len() as f64);
        }
        println!();
    }
}
