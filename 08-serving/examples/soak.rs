//! Clients that come, go, stall and break, for as long as one likes, on a pool of a quarter of what they ask for.
//!
//!     cargo run --release -p serving --example soak -- --minutes 10
//!
//! Prints what happened as JSON, and fails if an answer was not the one that is served alone, if anything was left
//! behind, or if a request got stuck.

#[path = "../tests/soak/soak.rs"]
mod soak;

use anyhow::{Result, ensure};
use clap::Parser;
use soak::Soak;
use std::time::Duration;

/// Keeps a server busy with clients of all kinds.
#[derive(Parser)]
struct Arguments {
    /// How long to go on
    #[arg(long, default_value_t = 0.25)]
    minutes: f64,
    /// Clients at the same time
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Seed of what is asked, and of how clients behave
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> Result<()> {
    let Arguments { minutes, clients, seed } = Arguments::parse();
    let lasting = Duration::try_from_secs_f64(minutes * 60.0)?;
    let report = Soak { clients, lasting, seed }.run()?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    ensure!(report.problems.is_empty(), "{} things went wrong", report.problems.len());
    Ok(())
}
