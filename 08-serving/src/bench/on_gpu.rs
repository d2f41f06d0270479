//! One model under one load on a GPU.

use super::BenchArgs;
use super::run::{Load, pass, prompts};
use crate::device::OnGpu;
use crate::say::say;
use anyhow::Result;
use cuda_executor::{CudaExecutor, Driver, Room};
use kv_cache::{CachedExecutor, KvCache};
use model_files::ModelFiles;
use naive_decode::measurement::{MachineName, median};
use naive_decode::{Executor, Want};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Rows of a pass of a prompt, at most.
const ROWS: usize = 2048;

/// Everything that one call measured: in the same places as on the processor.
#[derive(Debug, Serialize)]
struct Report {
    machine: MachineName,
    runs: [Run; 1],
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Run {
    gpu: String,
    weights: &'static str,
    kv: &'static str,
    prefill: usize,
    decode: usize,
    depth: usize,
    batch: usize,
    prefill_tokens_per_second: Vec<f64>,
    decode_tokens_per_second: Vec<f64>,
    /// Bytes of the model's weights on the GPU.
    weight_bytes: usize,
    load_ms: f64,
}

/// What a load needs.
pub(super) fn room(load: Load) -> Room {
    let capacity = load.tokens();
    Room {
        tokens: capacity.next_multiple_of(16) * load.batch.max(1),
        capacity,
        rows: ROWS.min(capacity * load.batch).max(load.batch),
    }
}

/// Measures prefill and decode, each from the end of a pass to the end of the next: logits come back in between, as they
/// do when texts are written.
pub(super) fn measure(
    on_gpu: OnGpu,
    files: &ModelFiles,
    load: Load,
    args: &BenchArgs,
) -> Result<()> {
    let began = Instant::now();
    let gpu = on_gpu.gpu.name()?;
    let room = on_gpu.room;
    let mut executor = on_gpu.executor(files)?;
    let mut measured = Run {
        gpu,
        weights: "bf16",
        kv: "bf16",
        prefill: load.prefill,
        decode: load.decode,
        depth: load.depth,
        batch: load.batch,
        prefill_tokens_per_second: Vec::new(),
        decode_tokens_per_second: Vec::new(),
        weight_bytes: files.parameters() * 2,
        load_ms: began.elapsed().as_secs_f64() * 1e3,
    };
    (0..load.batch).for_each(|_| {
        executor.cache_mut().open();
    });
    // The first passes record steps; they are of no sample.
    for sample in 0..=args.samples {
        let (prefill, decode) = run(&mut executor, load, room.rows)?;
        if sample == 0 {
            continue;
        }
        if load.prefill > 0 {
            let tokens = (load.prefill * load.batch) as f64;
            measured.prefill_tokens_per_second.push(tokens / prefill.as_secs_f64());
        }
        if load.decode > 0 {
            let tokens = (load.decode * load.batch) as f64;
            measured.decode_tokens_per_second.push(tokens / decode.as_secs_f64());
        }
    }
    if args.json {
        let report = Report { machine: MachineName::this(), runs: [measured] };
        say!("{}", serde_json::to_string_pretty(&report)?)?;
        return Ok(());
    }
    say!("{}: {:.1} MB of weights in bf16", measured.gpu, measured.weight_bytes as f64 / 1e6)?;
    say!("  loaded in {:.0} ms", measured.load_ms)?;
    for (what, rates) in [
        ("prefill", &measured.prefill_tokens_per_second),
        ("decode ", &measured.decode_tokens_per_second),
    ] {
        if !rates.is_empty() {
            say!("  {what} {:.0} tokens/s", median(rates))?;
        }
    }
    Ok(())
}

/// One sample of prefill, one of decode, each from an empty cache.
fn run(
    executor: &mut CudaExecutor<Driver>,
    load: Load,
    rows: usize,
) -> Result<(Duration, Duration)> {
    let began = Instant::now();
    for next in prompts(load.batch, load.prefill, rows, Want::Last) {
        executor.execute(&next)?;
    }
    let prefill = began.elapsed();
    for sequence in 0..load.batch {
        executor.cache_mut().reset(sequence)?;
    }
    for next in prompts(load.batch, load.depth, rows, Want::Nothing) {
        executor.execute(&next)?;
    }
    let began = Instant::now();
    for step in 0..load.decode {
        let step = pass(load.batch, load.depth + step, 1, Want::Last);
        executor.likeliest(&step, &vec![true; load.batch])?;
    }
    let decode = began.elapsed();
    for sequence in 0..load.batch {
        executor.cache_mut().reset(sequence)?;
    }
    Ok((prefill, decode))
}
