//! `ladder break`: every break-it of every rung.

use crate::say::say;
use anyhow::{Result, bail};
use comfy_table::{ContentArrangement, Table, presets};
use model_files::ModelArgs;
use naive_decode::LoadOptions;
use naive_decode::break_it::{Bench, BreakIt, shown};
use serde_json::json;
use std::sync::Arc;

/// Columns of the table where there is no terminal to ask.
const WIDTH_ELSEWHERE: u16 = 100;

/// What `ladder break` is told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which to run; without a name, all are listed
    pub name: Option<String>,
    /// List all break-its
    #[arg(long, conflicts_with_all = ["name", "model"])]
    pub list: bool,
    /// Which model to break.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Every break-it there is, in climbing order.
pub fn all() -> Vec<BreakIt> {
    [
        naive_decode::faults::all(),
        kv_cache::faults::all(),
        gqa_mla::faults::all(),
        flash_attention::faults::all(),
        paged_cache::faults::all(),
        prefix_radix::faults::all(),
        speculative::faults::all(),
        crate::faults::all(),
    ]
    .concat()
}

/// Lists the break-its, or runs one.
///
/// # Errors
/// A name that no break-it has, or whatever the break-it cannot do.
pub fn run(args: &Args) -> Result<()> {
    if let (None, Some(model)) = (&args.name, &args.model.model) {
        bail!(
            "--model {model} says what a break-it runs on, and none is named: expected `ladder break NAME --model {model}`"
        );
    }
    match &args.name {
        None if args.json => say!("{}", list_as_json())?,
        None => say!("{}\n\nRun one: cargo ladder break NAME", list_as_table())?,
        Some(name) => {
            let report = (find(name)?.run)(&bench(&args.model)?)?;
            match args.json {
                true => say!("{}", report.to_json())?,
                false => say!("{}", shown(&report))?,
            }
        }
    }
    Ok(())
}

/// Room for the prompt and what break-its write after it; a model's own may be far more, and caches here
/// are as long as the model can take.
const CONTEXT: usize = 1_024;

fn bench(model: &ModelArgs) -> Result<Bench> {
    if model.is_embedded() {
        return Ok(Bench::embedded()?);
    }
    let files = model.files()?;
    let context = Some(CONTEXT.min(files.config.trained_context));
    let loaded = files.load(LoadOptions { context, ..LoadOptions::default() })?;
    Ok(Bench::of(Arc::new(loaded), files.tokenizer)?)
}

fn find(name: &str) -> Result<BreakIt> {
    let all = all();
    if let Some(found) = all.iter().find(|break_it| break_it.name == name) {
        return Ok(*found);
    }
    let words: Vec<&str> = name.split('-').filter(|word| word.len() > 2).collect();
    let near: Vec<&str> = (all.iter().map(|break_it| break_it.name))
        .filter(|candidate| words.iter().any(|word| candidate.contains(word)))
        .collect();
    match near.is_empty() {
        true => bail!("no break-it is called `{name}`; `ladder break` lists them all"),
        false => bail!("no break-it is called `{name}`; near it: {}", near.join(", ")),
    }
}

fn list_as_json() -> String {
    let entry = |break_it: &BreakIt| {
        json!({
            "name": break_it.name,
            "crate": break_it.package,
            "cites": break_it.cites,
            "symptom": break_it.symptom,
            "guard": break_it.guard,
        })
    };
    format!("{:#}", json!(all().iter().map(entry).collect::<Vec<_>>()))
}

fn list_as_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH_ELSEWHERE);
    }
    table.set_header(["break-it", "crate", "what to watch for", "seen in"]);
    for break_it in all() {
        let cites = break_it.cites.join("\n");
        table.add_row([break_it.name, break_it.package, break_it.symptom, &cites]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_there_gets_those_near_it() {
        let said = find("rope-of-by-one").err().unwrap().to_string();
        assert!(said.contains("rope-off-by-one") && said.contains("rope-restarts"), "{said}");
        let said = find("zzz").err().unwrap().to_string();
        assert!(said.contains("lists them all"), "{said}");
        assert_eq!(find("stale-length").unwrap().name, "stale-length");
    }

    #[test]
    fn the_list_is_what_the_book_reads() {
        let list: serde_json::Value = serde_json::from_str(&list_as_json()).unwrap();
        for entry in list.as_array().unwrap() {
            for key in ["name", "crate", "symptom", "guard"] {
                assert!(entry[key].as_str().is_some_and(|text| !text.is_empty()), "{entry}");
            }
            assert!(!entry["cites"].as_array().unwrap().is_empty(), "{entry}");
        }
    }
}
