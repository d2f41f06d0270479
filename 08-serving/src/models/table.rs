//! The list as a table.

use super::{Found, Listed, Memory, Place};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// What the table's words mean.
pub(super) const LEGEND: &str = "\
Run one with `cargo ladder --model NAME`. The embedded target is run without it; the draft is its helper.
Memory: weights as f32, which is all that rung 01 needs, and what later rungs keep besides: keys and
values of 2,048 tokens, and of a full context. What is on the hub is downloaded when it is asked for.";

/// One line for each model.
pub(super) fn table(models: &[Listed]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "name",
            "where",
            "licence",
            "parameters",
            "stored",
            "context",
            "weights",
            "KV at 2,048",
            "KV at full",
        ]);
    for model in models {
        let place = match model.place {
            Place::Embedded => "embedded",
            Place::Cached => "cached",
            Place::Named => "here",
            Place::Hub => "hub",
        };
        let cells = match &model.found {
            Found::Refused { .. } => {
                vec![model.name.clone(), place.into(), "cannot be run".into()]
            }
            Found::Model { parameters, licence, stored_bytes, context, memory } => {
                let most = |bytes: fn(&Memory) -> u64| memory.iter().map(bytes).max().unwrap_or(0);
                vec![
                    model.name.clone(),
                    place.into(),
                    licence.clone().unwrap_or_else(|| "not said".into()),
                    count(*parameters, ["", "k", "M", "B"]),
                    stored_bytes.map_or_else(String::new, bytes),
                    context.to_string(),
                    bytes(most(|need| need.weights)),
                    bytes(most(|need| need.kv_at_2048)),
                    bytes(most(|need| need.kv_at_full_context)),
                ]
            }
        };
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What is wrong with the models that cannot be run, a line each.
pub(super) fn problems(models: &[Listed]) -> Vec<&str> {
    let found = models.iter().map(|model| &model.found);
    let problem = found.filter_map(|found| match found {
        Found::Refused { problem } => Some(problem.as_str()),
        Found::Model { .. } => None,
    });
    problem.collect()
}

fn bytes(number: u64) -> String {
    count(number, [" B", " kB", " MB", " GB"])
}

/// A number in thousands, to three digits or so.
fn count(number: u64, units: [&str; 4]) -> String {
    let mut scaled = number as f64;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < units.len() {
        scaled /= 1_000.0;
        unit += 1;
    }
    let digits = if unit > 0 && scaled < 99.95 { 1 } else { 0 };
    format!("{scaled:.digits$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let said = [0, 999, 1_000, 4_757_000, 134_515_008, 999_600, 8_030_261_248, 32_121_044_992];
        let expected =
            ["0 B", "999 B", "1.0 kB", "4.8 MB", "135 MB", "1.0 MB", "8.0 GB", "32.1 GB"];
        assert_eq!(said.map(bytes), expected);
    }
}
