//! Writes every generated text that the recipe trains and judges with.
//!
//! `cargo run --release -p embedded-models --example write_corpus -- DIR [MEGABYTES]`
//!
//! One JSON object on a line: `{"text", "answers": [[first byte, end byte], …]}` for training text,
//! `{"prompt", "answer", "pairs", "filler"}` for recall questions.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use embedded_models::recall::{self, World};
use embedded_models::{Document, notes, tales, words};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// Writes every generated text that the recipe trains and judges with.
#[derive(Parser)]
struct Arguments {
    /// Folder to write to; it is made where it is not there.
    directory: PathBuf,
    /// Size of the training text.
    #[arg(default_value_t = 24)]
    megabytes: u32,
}

/// Makes the document of a seed.
type Generator = fn(u64) -> Document;

/// What a file holds, which seeds it begins at, and its part of the size of all. Training files
/// begin 2^28 seeds apart and stay below `FIRST_HELD_OUT_SEED`, so no two share a document.
const FILES: [(&str, Generator, u64, usize); 6] = [
    ("tales", tales::tale, 0, 25),
    ("chat", tales::chat, 1 << 28, 15),
    ("recall_list", recall::list_document, 2 << 28, 15),
    ("recall_near", recall::near_document, 3 << 28, 20),
    ("recall_far", recall::far_document, 4 << 28, 25),
    ("recall_notes", notes::document, notes::FIRST_SEED, 10),
];

/// Held-out text to measure losses on, bytes a file.
const HELD_OUT_BYTES: usize = 300_000;

fn main() -> Result<()> {
    let Arguments { directory, megabytes } = Arguments::parse();
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;

    let size = megabytes as usize * 1_000_000;
    let held_out_sizes = (FILES.len() * HELD_OUT_BYTES) as u64;
    let bar = ProgressBar::new(size as u64 + held_out_sizes).with_style(
        ProgressStyle::with_template("{msg:22} {wide_bar} {bytes}/{total_bytes} {eta}")?,
    );
    let parts: usize = FILES.iter().map(|(.., part)| part).sum();
    for (name, document, first_seed, part) in FILES {
        write_documents(&directory, name, document, first_seed, size / parts * part, &bar)?;
        let held_out = format!("{name}_held_out");
        let seed = recall::FIRST_HELD_OUT_SEED + first_seed;
        write_documents(&directory, &held_out, document, seed, HELD_OUT_BYTES, &bar)?;
    }
    bar.finish_and_clear();
    write_questions(&directory)?;
    let words: Vec<_> = words::NAMES.iter().chain(&words::VALUES).copied().collect();
    std::fs::write(directory.join("words.txt"), words.join("\n") + "\n")?;
    println!("wrote {megabytes} MB of training text to {}", directory.display());
    Ok(())
}

fn create(directory: &Path, name: &str) -> Result<BufWriter<File>> {
    let path = directory.join(format!("{name}.jsonl"));
    Ok(BufWriter::new(
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?,
    ))
}

fn write_documents(
    directory: &Path,
    name: &str,
    document: Generator,
    first_seed: u64,
    bytes: usize,
    bar: &ProgressBar,
) -> Result<()> {
    bar.set_message(name.to_owned());
    let mut file = create(directory, name)?;
    let mut written = 0;
    let mut seed = first_seed;
    while written < bytes {
        let Document { text, answers } = document(seed);
        let answers: Vec<_> = answers.iter().map(|range| [range.start, range.end]).collect();
        writeln!(file, "{}", json!({ "text": text, "answers": answers }))?;
        written += text.len();
        seed += 1;
        bar.inc(text.len() as u64);
    }
    Ok(file.flush()?)
}

/// One question on each of 700 held-out worlds: 2 to 8 pairs, and as much filler as the context holds.
fn write_questions(directory: &Path) -> Result<()> {
    let mut file = create(directory, "recall_questions")?;
    for number in 0..700 {
        let pairs = 2 + number as usize % 7;
        let most_filler = (380 - 9 * pairs) / (11 * pairs);
        let filler = number as usize / 7 % (most_filler + 1);
        let world = World::held_out(number, pairs, filler);
        let asked = number as usize / 49 % pairs;
        let prompt = world.prompt().to_owned() + &world.question(asked);
        let line = json!({
            "prompt": prompt, "answer": world.answer(asked), "pairs": pairs, "filler": filler,
        });
        writeln!(file, "{line}")?;
    }
    Ok(file.flush()?)
}
