//! What becomes of a memory that requests of real lengths share: in one piece each, and in blocks.
//!
//!     cargo run --release -p paged-cache --example measure_waste

use anyhow::{Result, ensure};
use clap::Parser;
use comfy_table::{Table, presets};
use naive_decode::measurement::{Measurement, Series};
use paged_cache::waste::{
    ALPACA, Allocator, Buddy, Contiguous, FirstFit, Paged, Report, SHAREGPT, SetAside, Workload,
    simulate,
};
use std::path::PathBuf;

/// Slots for tokens: OPT-13B has 12 GiB left for them on an A100, 800 KiB each (Kwon et al., table 1).
const MEMORY: usize = 12 * 1024 * 1024 / 800;
/// The longest text that OPT takes.
const LONGEST: usize = 2048;
const REQUESTS: usize = 3_000;
/// Prompt tokens and answers that arrive in a step, on average: more than a step can serve.
const TOKENS_PER_STEP: f64 = 300.0;
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
const BLOCK_SIZES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const FIGURES: [&str; 6] = ["tokens", "reserved", "internal", "external", "free", "running"];

/// Measures how much of a memory holds tokens, and how many requests run at once.
#[derive(Parser)]
struct Arguments {
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut series = Vec::new();
    for workload in [ALPACA, SHAREGPT] {
        println!("{}: shares of the memory while somebody waits, in %\n", workload.name);
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header([&["allocator"], &FIGURES[..]].concat());
        for (name, make) in contiguous() {
            let reports = served(&workload, || Ok(make()))?;
            show(&mut table, &name, &reports);
            keep(&mut series, &workload, &name, &reports);
        }
        let mut wasted = Vec::new();
        for block_size in BLOCK_SIZES {
            let reports = served(&workload, || Ok(Box::new(Paged::new(MEMORY, block_size)?)))?;
            let name = format!("blocks of {block_size}");
            show(&mut table, &name, &reports);
            keep(&mut series, &workload, &name, &reports);
            let samples = reports.iter().map(|report| 100.0 * report.wasted()).collect();
            wasted.push((block_size as f64, samples));
        }
        println!("{table}\n");
        let name = format!("{}, wasted by block size", workload.name);
        series.push(Series { name, unit: "%".into(), points: wasted });
    }
    Measurement::by("paged-cache", "measure_waste", series).keep(arguments.json.as_deref())?;
    Ok(())
}

type Make = Box<dyn Fn() -> Box<dyn Allocator>>;

/// Every way to give a request one piece.
fn contiguous() -> Vec<(String, Make)> {
    let policies = [
        (SetAside::Longest, "maximum"),
        (SetAside::PowerOfTwo, "power of two"),
        (SetAside::Exact, "true length"),
    ];
    let mut all: Vec<(String, Make)> = Vec::new();
    for (policy, name) in policies {
        let first_fit = move || Contiguous::new(FirstFit::new(MEMORY), policy, LONGEST);
        let buddy = move || Contiguous::new(Buddy::new(MEMORY), policy, LONGEST);
        all.push((format!("{name}, first fit"), Box::new(move || Box::new(first_fit()))));
        all.push((format!("{name}, buddy"), Box::new(move || Box::new(buddy()))));
    }
    all
}

/// One report for each seed; all allocators see the same requests.
fn served(
    workload: &Workload,
    make: impl Fn() -> Result<Box<dyn Allocator>>,
) -> Result<Vec<Report>> {
    let per_step = TOKENS_PER_STEP / (workload.prompt.mean + workload.output.mean);
    SEEDS
        .map(|seed| {
            let requests = workload.trace(REQUESTS, per_step, LONGEST, seed)?;
            let report = simulate(&mut *make()?, &requests)?;
            ensure!(report.crowded_steps > 0, "nobody waited: the memory was never short");
            Ok(report)
        })
        .into_iter()
        .collect()
}

/// The figures in the order of their names; shares in %.
fn figures(report: &Report) -> [f64; 6] {
    let Report { tokens, reserved, internal, external, free, running, .. } = *report;
    let [tokens, reserved, internal, external, free] =
        [tokens, reserved, internal, external, free].map(|share| 100.0 * share);
    [tokens, reserved, internal, external, free, running]
}

fn show(table: &mut Table, name: &str, reports: &[Report]) {
    let mean = |figure: usize| {
        let sum: f64 = reports.iter().map(|report| figures(report)[figure]).sum();
        format!("{:.1}", sum / reports.len() as f64)
    };
    table.add_row(std::iter::once(name.to_string()).chain((0..FIGURES.len()).map(mean)));
}

/// One series for each figure, `x` being the mean length of a request.
fn keep(series: &mut Vec<Series>, workload: &Workload, name: &str, reports: &[Report]) {
    let x = (workload.prompt.mean + workload.output.mean).round();
    for (place, figure) in FIGURES.iter().enumerate() {
        let name = format!("{name}: {figure}");
        let unit = if *figure == "running" { "requests" } else { "%" };
        let point = (x, reports.iter().map(|report| figures(report)[place]).collect());
        match series.iter_mut().find(|series: &&mut Series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, unit: unit.into(), points: vec![point] }),
        }
    }
}
