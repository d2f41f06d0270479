//! Threads, files and memory of this process, where the system tells (Linux).

use anyhow::{Result, ensure};
use serde::Serialize;
use std::time::{Duration, Instant};

/// What the process has.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Process {
    pub(super) threads: usize,
    /// Open files, connections included.
    pub(super) files: usize,
    /// Memory of its own, MiB.
    pub(super) resident_mib: u64,
}

impl Process {
    pub(super) fn now() -> Self {
        let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
        let (threads, files) = (count("/proc/self/task"), count("/proc/self/fd"));
        Process { threads, files, resident_mib: resident_mib().unwrap_or(0) }
    }

    /// How many threads have this name.
    pub(super) fn threads_called(name: &str) -> usize {
        let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
        let names = threads.flatten().filter_map(|thread| {
            // One that has ended since has no name any more.
            std::fs::read_to_string(thread.path().join("comm")).ok()
        });
        names.filter(|of| of.trim() == name).count()
    }
}

fn resident_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes / 1024)
}

/// Waits until something is so.
///
/// # Errors
/// If it is not so in time.
pub(super) fn waits_for(is_so: impl Fn() -> bool, most: Duration) -> Result<()> {
    let began = Instant::now();
    while !is_so() {
        ensure!(began.elapsed() < most, "it did not come about in {} s", most.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
