//! How much of the prompts need not be read, by the way in which requests share, the cache and the pool.
//!
//!     cargo run --release -p prefix-radix --example measure_sharing

use anyhow::{Result, ensure};
use clap::Parser;
use naive_decode::measurement::{Measurement, Series, median};
use paged_cache::Blocks;
use prefix_radix::workload::{Pattern, Request, replay, shared_system};
use prefix_radix::{Chain, HashedBlocks, Nothing, Policy, PrefixCache, RadixTree};
use std::path::PathBuf;

/// Tokens in a block.
const SIZE: usize = 16;
/// Blocks in the pool. The smallest holds the longest request, and little more.
const POOLS: [usize; 7] = [512, 768, 1_024, 1_280, 1_536, 2_048, 4_096];
const AT_ONCE: usize = 2;
const SEEDS: u64 = 5;
const USERS: [usize; 6] = [1, 2, 5, 10, 100, 1_000];
const NAMES: [&str; 4] =
    ["no cache", "hashed blocks, LRU", "hashed blocks, leaf first", "radix tree"];

/// Measures what prefix caches save of prefill.
#[derive(Parser)]
struct Arguments {
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut series = Vec::new();
    println!("prompt tokens that need not be read (%), by blocks in the pool");
    for pattern in Pattern::ALL {
        println!("\n{}", pattern.name());
        let measured = saved(&POOLS, |pool, seed| (pattern.requests(seed), pool))?;
        print(&POOLS, &measured);
        series.extend(measured.map(|one| named(one, pattern.name())));
    }
    println!("\n2,000 tokens that all share and 200 of one's own, by requests");
    let measured = saved(&USERS, |users, seed| (shared_system(seed, users, 2_000, 200), POOLS[6]))?;
    print(&USERS, &measured);
    series.extend(measured.map(|one| named(one, "2,000 of 2,200")));
    let measurement = Measurement::by("prefix-radix", "measure_sharing", series);
    measurement.keep(arguments.json.as_deref())?;
    Ok(())
}

fn named(series: Series, pattern: &str) -> Series {
    Series { name: format!("{}: {pattern}", series.name), ..series }
}

fn caches() -> Result<[Box<dyn PrefixCache>; 4]> {
    let chain = Chain::new(b"no model");
    Ok([
        Box::new(Nothing::new(SIZE)),
        Box::new(HashedBlocks::new(SIZE, chain, Policy::Lru)?),
        Box::new(HashedBlocks::new(SIZE, chain, Policy::LeafFirst)?),
        Box::new(RadixTree::new(SIZE, chain)?),
    ])
}

/// A sample for each seed, a series for each cache. The replay checks that every hit belongs to its prompt.
fn saved(
    points: &[usize],
    workload: impl Fn(usize, u64) -> (Vec<Request>, usize),
) -> Result<[Series; 4]> {
    let mut series = NAMES.map(|name| Series {
        name: name.into(),
        unit: "%".into(),
        points: points.iter().map(|&point| (point as f64, Vec::new())).collect(),
    });
    for (i, &point) in points.iter().enumerate() {
        for seed in 0..SEEDS {
            let (requests, pool) = workload(point, seed);
            for (series, mut cache) in series.iter_mut().zip(caches()?) {
                let mut blocks = Blocks::new(pool);
                let report = replay(&requests, &mut cache, &mut blocks, AT_ONCE)?;
                cache.check_integrity(&blocks)?;
                ensure!(blocks.used() == cache.held().len(), "blocks that nobody gives back");
                series.points[i].1.push(100.0 * report.saved());
            }
        }
    }
    Ok(series)
}

fn print(points: &[usize], series: &[Series; 4]) {
    println!("{:>8} {:>20} {:>20} {:>26} {:>12}", "", NAMES[0], NAMES[1], NAMES[2], NAMES[3]);
    for (i, point) in points.iter().enumerate() {
        let [none, lru, leaf_first, radix] =
            [0, 1, 2, 3].map(|s: usize| median(&series[s].points[i].1));
        println!("{point:>8} {none:>20.1} {lru:>20.1} {leaf_first:>26.1} {radix:>12.1}");
    }
}
