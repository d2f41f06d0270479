//! The engine while clients come and go.

use super::client::Run;
use super::process::Process;
use serde::Serialize;
use serving::engine::EngineHandle;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the engine may run requests without a pass.
const STILL: Duration = Duration::from_secs(10);

/// How much memory may be added after the first third of a run.
const MOST_GROWTH_MIB: u64 = 16;

/// What was seen of the engine.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Watched {
    most_running: usize,
    pub(crate) most_waiting: usize,
    most_stalled: usize,
    fewest_free_blocks: usize,
    passes: u64,
    generated_tokens: u64,
    prefix_hits: u64,
    pub(crate) preemptions: u64,
    parked: u64,
    cancelled: u64,
    failed: u64,
    /// Memory of the server and its clients, MiB, ten times in equal steps.
    resident_mib: Vec<u64>,
}

/// Watches until the last client has gone.
pub(super) fn watch(
    engine: &EngineHandle,
    run: &Run,
    clients: usize,
    lasting: Duration,
) -> Watched {
    let began = Instant::now();
    let mut seen = Watched { fewest_free_blocks: usize::MAX, ..Watched::default() };
    let (mut passes, mut since) = (0, Instant::now());
    loop {
        let is_over = run.gone.load(Ordering::Relaxed) == clients;
        let state = engine.state();
        let counters = state.counters;
        seen.most_running = seen.most_running.max(state.running);
        seen.most_waiting = seen.most_waiting.max(state.waiting);
        seen.most_stalled = seen.most_stalled.max(state.stalled);
        seen.fewest_free_blocks = seen.fewest_free_blocks.min(state.blocks.free);
        if state.running == 0 || counters.passes != passes {
            (passes, since) = (counters.passes, Instant::now());
        }
        if since.elapsed() > STILL {
            run.problem(format!("{} requests run, and no pass in 10 s", state.running));
            since = Instant::now();
        }
        if began.elapsed() >= lasting.mul_f64((seen.resident_mib.len() + 1) as f64 / 10.0) {
            seen.resident_mib.push(Process::now().resident_mib);
        }
        if is_over {
            // What allocators and caches keep is there early; what goes on growing is lost.
            if let [_, _, third, .., last] = seen.resident_mib[..]
                && last > third + MOST_GROWTH_MIB
            {
                run.problem(format!("memory grew from {third} to {last} MiB"));
            }
            return Watched {
                passes: counters.passes,
                generated_tokens: counters.generated_tokens,
                prefix_hits: counters.prefix_hits,
                preemptions: counters.preemptions,
                parked: counters.parked,
                cancelled: counters.cancelled,
                failed: counters.failed,
                ..seen
            };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
