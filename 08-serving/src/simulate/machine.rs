//! This machine, measured.

use crate::simulator::Hardware;
use anyhow::{Context, Result};
use naive_decode::measurement::{MachineName, median};
use naive_decode::roofline::probe::{Memory, fma_rate};

/// Samples of each limit.
const SAMPLES: usize = 5;

/// What this machine gives so many threads. Medians: the limits that it usually has.
///
/// # Errors
/// If the system does not say how much memory there is, and nobody else does.
pub fn this_machine(threads: usize, memory_bytes: Option<f64>) -> Result<Hardware> {
    let memory = Memory::new();
    let sample = |rate: &dyn Fn() -> f64| median(&(0..SAMPLES).map(|_| rate()).collect::<Vec<_>>());
    let memory_bytes = memory_bytes.or_else(total_memory);
    let memory_bytes = memory_bytes
        .context("this system does not say how much memory there is: say it with --memory")?;
    Ok(Hardware {
        name: format!("{}, {threads} threads", MachineName::this().cpu),
        flops_per_second: sample(&|| fma_rate(threads)),
        bytes_per_second: sample(&|| memory.read_rate(threads)),
        memory_bytes,
        price_per_hour: None,
    })
}

/// Bytes of this machine's memory, where the system says so.
fn total_memory() -> Option<f64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024.0)
}
