//! How long it takes to load a model, and how much memory beside the model itself.
//!
//!     cargo run --release -p model-files --example measure_loading -- --model FILE.gguf

use anyhow::Result;
use clap::Parser;
use embedded_models::TARGET;
use model_files::{ModelFiles, open};
use naive_decode::measurement::{Measurement, Series, median};
use naive_decode::{Config, LoadOptions, Model};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Loads in a row; the first finds the file on disk, the others in the system's cache.
const SAMPLES: usize = 5;

/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(1);

/// Measures how long a model takes to load, and how much memory.
#[derive(Parser)]
struct Arguments {
    /// A directory, a .gguf or .safetensors file, or owner/name on the hub; the embedded target if
    /// not given.
    #[arg(long, value_name = "WHAT")]
    model: Option<String>,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let files = || match &arguments.model {
        None => ModelFiles::embedded(&TARGET),
        Some(what) => open(what),
    };
    let (mut opening, mut loading, mut own, mut mapped) = (vec![], vec![], vec![], vec![]);
    let (mut packed, mut name) = (0, String::new());
    for _ in 0..SAMPLES {
        let start = Instant::now();
        let files = files()?;
        opening.push(start.elapsed().as_secs_f64() * 1e3);
        name.clone_from(&files.name);
        let options = LoadOptions { context: Some(1), ..LoadOptions::default() };
        let start = Instant::now();
        let (model, peak) = watched(|| files.load(options));
        loading.push(start.elapsed().as_secs_f64() * 1e3);
        packed = packed_bytes(&model?);
        if let Some(Peak { own: most, mapped: pages }) = peak {
            own.push(most as f64 / packed as f64);
            mapped.push(pages as f64 / 1e6);
        }
    }
    println!("{name}: {:.1} MB once loaded, as f32", packed as f64 / 1e6);
    println!("opened in {:.1} ms, loaded in {:.1} ms", median(&opening), median(&loading));
    if own.is_empty() {
        println!("memory: this system does not say");
    } else {
        println!(
            "at most {:.2} times the model held meanwhile, and {:.1} MB of the file's pages",
            median(&own),
            median(&mapped)
        );
    }
    let at = packed as f64 / 1e6;
    let series = |name: &str, unit: &str, samples: Vec<f64>| Series {
        name: name.into(),
        unit: unit.into(),
        points: vec![(at, samples)],
    };
    let all = vec![
        series("opening", "ms", opening),
        series("loading", "ms", loading),
        series("own memory over the model's size", "x", own),
        series("mapped pages", "MB", mapped),
    ];
    Measurement::by("model-files", "measure_loading", all).keep(arguments.json.as_deref())?;
    Ok(())
}

/// Bytes of the model as it stands: matrices, norms, and the embedding table if it is not the head too.
fn packed_bytes(model: &Model) -> usize {
    let Config { vocab_size, hidden_size, tied_head, .. } = model.config;
    let table = if tied_head { 0 } else { vocab_size * hidden_size * size_of::<f32>() };
    model.weight_bytes() + table
}

/// The most memory at a time, in bytes.
struct Peak {
    /// Of the program's own, more than before.
    own: u64,
    /// Pages of mapped files, which the system takes back when it needs them.
    mapped: u64,
}

/// Runs `work` while a second thread looks at the memory it takes. None where the system does not
/// tell a program's own memory from mapped files.
fn watched<T>(work: impl FnOnce() -> T) -> (T, Option<Peak>) {
    let done = AtomicBool::new(false);
    let (own, mapped) = (AtomicU64::new(0), AtomicU64::new(0));
    let before = resident("RssAnon");
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                own.fetch_max(resident("RssAnon").unwrap_or(0), Relaxed);
                mapped.fetch_max(resident("RssFile").unwrap_or(0), Relaxed);
                std::thread::sleep(INTERVAL);
            }
        });
        let result = work();
        own.fetch_max(resident("RssAnon").unwrap_or(0), Relaxed);
        done.store(true, Relaxed);
        result
    });
    let peak = before.map(|before| Peak {
        own: own.into_inner().saturating_sub(before),
        mapped: mapped.into_inner(),
    });
    (result, peak)
}

/// A line of Linux's `/proc/self/status`, in bytes.
fn resident(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
