//! The texts that every format and cache is judged by, as tokens of a model: a JSON list of lists. For whoever judges
//! another program by them.
//!
//!     cargo run --release -p gqa-mla --example judge_texts

use anyhow::Result;
use clap::Parser;
use gqa_mla::quality::Material;
use model_files::ModelArgs;

/// Prints the judge's texts as tokens of a model.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: ModelArgs,
}

fn main() -> Result<()> {
    let files = Arguments::parse().model.files()?;
    let material = Material::embedded(&files.tokenizer)?;
    println!("{}", serde_json::to_string(&material.texts)?);
    Ok(())
}
