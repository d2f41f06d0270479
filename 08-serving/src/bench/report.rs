//! What was measured, as JSON and in words.

use super::run::Run;
use crate::packed::Came;
use crate::say::say;
use anyhow::Result;
use naive_decode::measurement::{MachineName, median};
use serde::Serialize;

/// Everything that one call measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: MachineName,
    /// What memory gives the same number of threads, before each sample of each run.
    pub(super) bandwidth_gb_per_s: Vec<f64>,
    pub(super) runs: Vec<Run>,
}

/// Most memory that this process has had at a time, where the system says so.
pub(super) fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Medians, and what part of the memory's bandwidth decoding came to.
///
/// # Errors
/// If standard output cannot be written.
pub(super) fn print_run(machine: &MachineName, run: &Run, bandwidth: &[f64]) -> Result<()> {
    let gb = median(bandwidth);
    say!(
        "{}, {}: {:.1} MB of weights, {}",
        machine.cpu,
        machine.simd,
        run.weight_bytes as f64 / 1e6,
        run.weights
    )?;
    let came = match run.came {
        Came::Mapped => "mapped, packed before",
        Came::Packed | Came::PackedAndKept => "packed",
    };
    say!("  loaded in {:.0} ms ({came}); memory reads {gb:.1} GB/s", run.load_ms)?;
    if !run.prefill_tokens_per_second.is_empty() {
        say!("  prefill {:.0} tokens/s", median(&run.prefill_tokens_per_second))?;
    }
    if !run.decode_tokens_per_second.is_empty() {
        // Samples in pairs with the probe before them: the machine is not the same from one to the next.
        let pairs = run.decode_tokens_per_second.iter().zip(bandwidth);
        let (passes, bytes) = (|rate: f64| rate / run.batch as f64, run.bytes_per_pass());
        let parts: Vec<f64> = pairs.map(|(&rate, gb)| passes(rate) * bytes / 1e9 / gb).collect();
        let (rate, part) = (median(&run.decode_tokens_per_second), median(&parts));
        let cached =
            if part > 1.0 { ", more than memory gave: a cache may hold a part" } else { "" };
        say!(
            "  decode  {rate:.0} tokens/s, {:.0} % of the bandwidth for weights, keys and values{cached}",
            100.0 * part
        )?;
    }
    Ok(())
}
