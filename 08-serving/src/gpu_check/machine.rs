//! What a time was taken on, and with which program.

use anyhow::Result;
use cuda_executor::Driver;
use serde::Serialize;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// What `nvidia-smi` is asked for: times differ with any of these.
const ASKED: &str = "name,driver_version,clocks.max.sm,clocks.max.memory,power.limit";

/// Which GPU, driver and program.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    pub(super) gpu: String,
    pub(super) capability: (i32, i32),
    pub(super) memory_bytes: usize,
    /// Each GPU's answer to [`ASKED`], in `nvidia-smi`'s order; none where there is no `nvidia-smi`.
    pub(super) nvidia_smi: Option<Vec<String>>,
    /// Seconds since 1970.
    pub(super) began: u64,
    /// This program's version.
    pub(super) version: &'static str,
    /// The commit that it was built from, if `LADDER_COMMIT` said so to the compiler.
    pub(super) commit: Option<&'static str>,
}

impl Machine {
    /// This machine, now.
    ///
    /// # Errors
    /// If the driver does not say.
    pub(super) fn of(gpu: &Driver) -> Result<Self> {
        Ok(Machine {
            gpu: gpu.name()?,
            capability: gpu.capability(),
            memory_bytes: gpu.memory()?.1,
            nvidia_smi: nvidia_smi(),
            began: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("LADDER_COMMIT"),
        })
    }
}

fn nvidia_smi() -> Option<Vec<String>> {
    let query = [format!("--query-gpu={ASKED}"), "--format=csv,noheader".into()];
    let output = Command::new("nvidia-smi").args(query).stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| said.lines().map(str::to_owned).collect())
}
