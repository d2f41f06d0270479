//! Decoding steps of whole models, timed: what launching costs, with graphs and without, and what a batch brings.

use crate::say::say;
use anyhow::{Result, bail};
use cuda_executor::{CudaExecutor, Room, kv_bytes_per_token};
use cuda_kernels::Gpu;
use kv_cache::CachedExecutor;
use naive_decode::{Config, Executor, Pass, Rope, Span, Want, random_tensors};
use serde::Serialize;
use std::time::Instant;

/// A model of random weights, and how it is run.
#[derive(Debug, Clone)]
pub struct Shape {
    /// What to call it.
    pub name: &'static str,
    /// The model's shape.
    pub config: Config,
    /// Sequences that decode side by side; each is timed.
    pub batches: Vec<usize>,
    /// Tokens that each has before.
    pub depth: usize,
    /// Steps that are timed.
    pub steps: usize,
}

impl Shape {
    /// A model so small that launching is what takes time, and Llama 3.2 1B's shape.
    pub fn for_a_gpu() -> Vec<Self> {
        let small = Config {
            hidden_size: 256,
            layers: 6,
            heads: 8,
            kv_heads: 2,
            head_dim: 32,
            intermediate_size: 704,
            vocab_size: 2048,
            rms_norm_eps: 1e-5,
            rope_theta: 10_000.0,
            rope_scaling: None,
            trained_context: 2048,
            tied_head: true,
            end_tokens: Vec::new(),
        };
        let large = Config {
            hidden_size: 2048,
            layers: 16,
            heads: 32,
            kv_heads: 8,
            head_dim: 64,
            intermediate_size: 8192,
            vocab_size: 128_256,
            rope_theta: 500_000.0,
            ..small.clone()
        };
        vec![
            Shape { name: "small", config: small, batches: vec![1, 8], depth: 64, steps: 64 },
            Shape {
                name: "1B",
                config: large,
                batches: vec![1, 8, 32, 64],
                depth: 1024,
                steps: 32,
            },
        ]
    }
}

/// Steps of one model at one size of batch.
#[derive(Debug, Serialize)]
pub struct Steps {
    /// Which model.
    pub name: &'static str,
    /// Sequences side by side.
    pub batch: usize,
    /// Tokens that each had before the first step.
    pub depth: usize,
    /// Whether steps were played from graphs.
    pub with_graphs: bool,
    /// Bytes of weights, and of keys and values before the first step: what a step must read.
    pub weight_bytes: usize,
    /// See there.
    pub kv_bytes: usize,
    /// Seconds of each step, from one's tokens on the host to the next one's, each the likeliest.
    pub seconds: Vec<f64>,
}

/// Times all of them, each on a device of its own.
///
/// # Errors
/// If a device cannot be had, refuses or fails, or cannot record a step: times of launches are not taken for a graph's.
pub fn all<G: Gpu + 'static>(
    open: &mut dyn FnMut() -> Result<G>,
    shapes: &[Shape],
) -> Result<Vec<Steps>> {
    let mut all = Vec::new();
    for shape in shapes {
        let most = shape.batches.iter().copied().max().unwrap_or(1);
        let capacity = shape.depth + shape.steps + WARM_UP;
        let room = Room {
            tokens: most * capacity.next_multiple_of(16),
            capacity,
            rows: shape.depth.max(most),
        };
        for with_graphs in [true, false] {
            let rope = Rope::new(shape.config.rope_theta, shape.config.head_dim, capacity);
            let (config, tensors) = (shape.config.clone(), random_tensors(1));
            let mut executor = CudaExecutor::new(open()?, config, &rope, &tensors, room)?;
            if !with_graphs {
                executor = executor.without_graphs();
            }
            for &batch in &shape.batches {
                let steps = timed(&mut executor, shape, batch)?;
                let median = naive_decode::measurement::median(&steps.seconds);
                let read = (steps.weight_bytes + steps.kv_bytes) as f64 / median / 1e9;
                say!(
                    "  {}, {batch} at once, {}: {:.0} us a step, {:.0} tokens/s, reads {read:.0} GB/s",
                    shape.name,
                    if steps.with_graphs { "graphs" } else { "launches" },
                    median * 1e6,
                    batch as f64 / median,
                )?;
                all.push(steps);
            }
        }
    }
    Ok(all)
}

/// Steps before the first that is timed: the first is recorded.
const WARM_UP: usize = 3;

fn timed<G: Gpu>(executor: &mut CudaExecutor<G>, shape: &Shape, batch: usize) -> Result<Steps> {
    let sequences: Vec<usize> = (0..batch).map(|_| executor.cache_mut().open()).collect();
    let token = |slot: usize| (slot * 37 % shape.config.vocab_size) as u32;
    for &sequence in &sequences {
        let tokens: Vec<u32> = (0..shape.depth).map(token).collect();
        executor.execute(&Pass::one(Span::new(sequence, 0, &tokens, Want::Nothing)))?;
    }
    let mut seconds = Vec::new();
    for slot in shape.depth..shape.depth + WARM_UP + shape.steps {
        let span = |&sequence: &usize| Span::new(sequence, slot, &[token(slot)], Want::Last);
        let pass = Pass { spans: sequences.iter().map(span).collect() };
        let began = Instant::now();
        executor.likeliest(&pass, &vec![true; batch])?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    if let Some(error) = executor.not_recorded() {
        bail!("{}, {batch} at once: a step could not be recorded: {error}", shape.name);
    }
    for sequence in sequences {
        executor.cache_mut().close(sequence)?;
    }
    Ok(Steps {
        name: shape.name,
        batch,
        depth: shape.depth,
        with_graphs: executor.has_graphs(),
        weight_bytes: weight_bytes(&shape.config),
        kv_bytes: batch * shape.depth * kv_bytes_per_token(&shape.config)?,
        seconds: seconds.split_off(WARM_UP),
    })
}

/// Bytes of weights that a step reads, in bf16: all matrices, of the embedding's only the head if the two are tied.
fn weight_bytes(config: &Config) -> usize {
    let Config { hidden_size: width, heads, kv_heads, head_dim, .. } = *config;
    let attention = width * head_dim * (2 * heads + 2 * kv_heads);
    let feed_forward = 3 * width * config.intermediate_size;
    2 * (config.layers * (attention + feed_forward) + config.vocab_size * width)
}
