//! What climbing found out, as JSON and as tables.

use super::run::{Output, Run};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use naive_decode::Rung;
use naive_decode::measurement::MachineName;
use serde::Serialize;

/// What climbing found out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) prompt: String,
    pub(super) model: String,
    pub(super) machine: MachineName,
    pub(super) rungs: Vec<RungReport>,
}

/// One line of a table.
#[derive(Debug, Serialize)]
pub(super) struct RungReport {
    /// The model it ran on: rung 03 brings models of other shapes.
    model: String,
    #[serde(rename = "crate")]
    package: &'static str,
    change: &'static str,
    rows: usize,
    kv_bytes_per_token: usize,
    ttft_ms: f64,
    /// All generated tokens over all time, the prompt's included.
    tokens_per_second: f64,
    tokens_identical: bool,
    logits_identical: bool,
    #[serde(skip)]
    logits_hash: u64,
}

impl RungReport {
    /// A rung that ran on a model, beside what it had to say.
    pub(super) fn new(rung: &Rung, model: &str, run: &Run, expected: &Output) -> Self {
        RungReport {
            model: model.to_string(),
            package: rung.package,
            change: rung.change,
            rows: run.rows,
            kv_bytes_per_token: run.kv_bytes_per_token,
            ttft_ms: run.first.as_secs_f64() * 1e3,
            tokens_per_second: run.output.tokens.len() as f64 / run.total.as_secs_f64(),
            tokens_identical: run.output.tokens == expected.tokens,
            logits_identical: run.output.logits_hash == expected.logits_hash,
            logits_hash: run.output.logits_hash,
        }
    }

    /// Whether it said what it had to say.
    pub(super) fn is_identical(&self) -> bool {
        self.tokens_identical && self.logits_identical
    }
}

/// Every rung beside the naive one, which is the first.
pub(super) fn table(rungs: &[RungReport]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "rung",
            "what changed",
            "rows",
            "KV B/token",
            "TTFT ms",
            "tok/s",
            "speed-up",
            "tokens",
            "logits",
        ]);
    let naive = rungs[0].tokens_per_second;
    for rung in rungs {
        table.add_row([
            rung.package.to_string(),
            rung.change.to_string(),
            rung.rows.to_string(),
            rung.kv_bytes_per_token.to_string(),
            format!("{:.1}", rung.ttft_ms),
            format!("{:.1}", rung.tokens_per_second),
            format!("{:.1}x", rung.tokens_per_second / naive),
            same(rung.tokens_identical).to_string(),
            format!("{} {:08x}", same(rung.logits_identical), rung.logits_hash >> 32),
        ]);
    }
    for column in 2..7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// What a token costs on models of other shapes, and that the cache changed nothing.
pub(super) fn shapes_table(shapes: &[RungReport]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["rung 03 on", "model", "KV B/token", "tok/s", "tokens", "logits"]);
    for shape in shapes {
        table.add_row([
            shape.change.to_string(),
            shape.model.clone(),
            shape.kv_bytes_per_token.to_string(),
            format!("{:.1}", shape.tokens_per_second),
            same(shape.tokens_identical).to_string(),
            same(shape.logits_identical).to_string(),
        ]);
    }
    for column in 2..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn same(same: bool) -> &'static str {
    if same { "same" } else { "DIFFERENT" }
}
