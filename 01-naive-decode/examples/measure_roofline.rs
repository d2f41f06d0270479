//! Measures what this machine can do at most: bytes and multiply-adds per second, and from them
//! its ridge point; then says what that leaves for a few pieces of work.
//!
//!     cargo run --release -p naive-decode --example measure_roofline

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use naive_decode::Error;
use naive_decode::measurement::{MachineName, Measurement, Series};
use naive_decode::roofline::{ElementBytes, Machine, Rows, probe, published};
use std::path::PathBuf;

const ROUNDS: u64 = 9;

/// Measures this machine's memory bandwidth, arithmetic and ridge point.
#[derive(Parser)]
struct Arguments {
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    let machine = MachineName::this();
    println!("\n{}, {} cores, {}\n", machine.cpu, machine.cores, machine.simd);
    let threads = thread_counts(machine.cores);
    let [bandwidth, compute] = measure(&threads);

    println!("threads  memory read     multiply-adds      ridge point");
    let mut limits = Machine { peak_flops: 0.0, bandwidth: 0.0 };
    for ((threads, read), (_, fma)) in bandwidth.points.iter().zip(&compute.points) {
        // Whatever else the machine does can only slow a sample down: the best is the limit.
        let best = |samples: &[f64]| 1e9 * samples.iter().copied().fold(0.0, f64::max);
        limits = Machine { peak_flops: best(fma), bandwidth: best(read) };
        println!(
            "{threads:>7}  {:>6.1} GB/s  {:>9.1} GFLOP/s  {:>6.1} FLOP/byte",
            limits.bandwidth / 1e9,
            limits.peak_flops / 1e9,
            limits.ridge()
        );
    }
    print_work(&limits);

    Measurement::by("naive-decode", "measure_roofline", vec![bandwidth, compute])
        .keep(arguments.json.as_deref())
}

/// 1, 2, 4, … and all.
fn thread_counts(cores: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n < cores).collect();
    counts.push(cores);
    counts
}

/// Both limits at every number of threads, in turns, so that no side has the quieter minutes.
fn measure(threads: &[usize]) -> [Series; 2] {
    let series = |name: &str, unit: &str| Series {
        name: name.into(),
        unit: unit.into(),
        points: threads.iter().map(|n| (*n as f64, Vec::new())).collect(),
    };
    let (mut bandwidth, mut compute) =
        (series("memory bandwidth", "GB/s"), series("compute", "GFLOP/s"));
    let style = ProgressStyle::with_template("measuring {bar:40} {pos}/{len}  {eta} left");
    let bar = ProgressBar::new(ROUNDS * threads.len() as u64)
        .with_style(style.expect("the template is well formed"));
    let memory = probe::Memory::new();
    for _ in 0..ROUNDS {
        for (i, &n) in threads.iter().enumerate() {
            bandwidth.points[i].1.push(memory.read_rate(n) / 1e9);
            compute.points[i].1.push(probe::fma_rate(n) / 1e9);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    [bandwidth, compute]
}

fn print_work(limits: &Machine) {
    println!(
        "\n{:<40} {:>7} {:>7}  {:>9}  {:<10} {:>12}",
        "work", "FLOP", "bytes", "FLOP/byte", "bound by", "at best"
    );
    // Models whose weights come from memory. The embedded ones fit in many a machine's cache, where
    // this limit does not hold.
    for name in ["smollm2-135m", "llama-2-7b"] {
        let shape = published(name).expect("it is published").shape;
        for (what, rows) in
            [("token 513, naive", Rows::naive(512)), ("token 513, cached", Rows::decode(511))]
        {
            let work = shape.forward(rows, ElementBytes::F32);
            let intensity = work.arithmetic_intensity();
            println!(
                "{:<40} {:>7} {:>7}  {intensity:>9.1}  {:<10} {:>9.2} ms",
                format!("{name}, f32: {what}"),
                short(work.flops),
                short(work.bytes()),
                if intensity < limits.ridge() { "memory" } else { "arithmetic" },
                1e3 * limits.least_seconds(&work)
            );
        }
    }
}

/// Three digits and a prefix: 5.62 G.
fn short(n: u64) -> String {
    let (divisor, prefix) = match n {
        0..1_000_000 => (1e3, "k"),
        1_000_000..1_000_000_000 => (1e6, "M"),
        1_000_000_000..1_000_000_000_000 => (1e9, "G"),
        _ => (1e12, "T"),
    };
    format!("{:.1} {prefix}", n as f64 / divisor)
}
