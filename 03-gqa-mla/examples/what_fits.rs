//! Context and batch that fit a memory, for published models.
//!
//!     cargo run --release -p gqa-mla --example what_fits -- --memory 160 --kv-bits 8

use anyhow::{Result, ensure};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use gqa_mla::fit::{Budget, PUBLISHED, PublishedModel};

/// Tabulates how long a context and how large a batch fit beside the weights.
#[derive(Parser)]
struct Arguments {
    /// Memory for weights and cache, in GB (10^9 bytes): two accelerators of 80 GB
    #[arg(long, default_value_t = 160.0)]
    memory: f64,
    /// Bits of one weight
    #[arg(long, default_value_t = 16.0)]
    weight_bits: f64,
    /// Bits of one number of a key or value
    #[arg(long, default_value_t = 16.0)]
    kv_bits: f64,
    /// Context to fill the batch with, in tokens
    #[arg(long, default_value_t = 8_192)]
    context: usize,
}

fn main() -> Result<()> {
    let Arguments { memory, weight_bits, kv_bits, context } = Arguments::parse();
    for (what, number) in
        [("--memory", memory), ("--weight-bits", weight_bits), ("--kv-bits", kv_bits)]
    {
        ensure!(number.is_finite() && number > 0.0, "{what} is {number}, expected more than 0");
    }
    ensure!(context > 0, "--context is 0, expected at least one token");
    let budget = Budget { bytes: memory * 1e9, weight_bits, kv_bits };
    println!("{memory} GB, {weight_bits} bits a weight, {kv_bits} bits a number in the cache\n");
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header([
        "model".to_string(),
        "weights GB".into(),
        "KV B/token".into(),
        "longest context".into(),
        format!("batch at {context}"),
    ]);
    for model in PUBLISHED {
        table.add_row(row(&model, budget, context));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    Ok(())
}

fn row(model: &PublishedModel, budget: Budget, context: usize) -> [String; 5] {
    let fits = |number: Option<usize>| number.map_or("does not fit".into(), |n| n.to_string());
    // Llama-2 was not made for 8,192 tokens: its batch is counted at the longest it was made for.
    let context = context.min(model.trained_context);
    let batch = Some(model.largest_batch(budget, context)).filter(|&batch| batch > 0);
    [
        model.name.into(),
        format!("{:.1}", model.weight_bytes(budget.weight_bits) / 1e9),
        format!("{:.0}", model.kv_bytes_per_token(budget.kv_bits)),
        fits(model.longest_context(budget, 1)),
        fits(batch),
    ]
}
