//! `ladder bench`: how fast a model's weights go through this machine, beside what its memory gives.
//!
//! | File | Holds |
//! |---|---|
//! | `run.rs` | one model under one load, on the processor |
//! | `on_gpu.rs` | the same on a GPU |
//! | `report.rs` | what was measured, as JSON and in words |

mod on_gpu;
mod report;
mod run;

use crate::device::{Device, DeviceArgs, OnGpu, kv_on_gpu};
use crate::packed::{Keep, load_packed};
use crate::say::say;
use anyhow::Result;
use clap::Args;
use flash_attention::packed::Weights;
use flash_attention::threads::Pool;
use flash_attention::tile_attention::KvType;
use model_files::{ModelArgs, ModelFiles};
use naive_decode::measurement::MachineName;
use naive_decode::roofline::probe::Memory;
use naive_decode::{Element, LoadOptions};
use report::{Report, peak_bytes, print_run};
use run::{Load, Run};
use std::time::Instant;

/// More threads than any machine has cores, few enough to start.
const MOST_THREADS: usize = 1_024;

/// What to measure.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// What the weights are stored as: stored (as the file has them), f32, bf16, bf16-fast, f16, fp8, q8_0, int8, q4_0,
    /// q4_1;
    /// several are measured one after another
    #[arg(long, value_name = "FORMAT", value_delimiter = ',', default_value = "stored")]
    weights: Vec<Weights>,
    /// What keys and values are kept as: f32, bf16, f16, int8, which loses something, or bf16-fast, which rounds
    /// what they meet to bf16, too; if not given, f32 on the processor and bf16 on a GPU
    #[arg(long, value_name = "TYPE")]
    kv: Option<KvType>,
    /// Tokens of each sequence's prompt; long ones run in a pass of their own, short ones share it
    #[arg(long, default_value_t = 512)]
    prefill: usize,
    /// Tokens to decode, one at a time
    #[arg(long, default_value_t = 128)]
    decode: usize,
    /// Tokens that lie in the cache before
    #[arg(long, default_value_t = 0)]
    depth: usize,
    /// Sequences that decode side by side
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Threads; as many as there are cores if not given
    #[arg(long)]
    threads: Option<usize>,
    /// Samples of each figure
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Whether packed weights are kept in a file beside the model, to be mapped at the next start
    #[arg(long, value_enum, default_value_t = Keep::Slow)]
    keep: Keep,
    /// Print one JSON object with all samples
    #[arg(long)]
    json: bool,
}

/// Measures prefill and decode, with the memory's bandwidth measured before each sample.
///
/// # Errors
/// Whatever is wrong with the model, or a load that there is no memory for. The model's context is no limit: the clock
/// does not ask what the text means.
pub fn bench(args: &BenchArgs) -> Result<()> {
    for (what, found) in [("batch", args.batch), ("samples", args.samples)] {
        anyhow::ensure!(found > 0, "{what} is 0, expected at least 1");
    }
    anyhow::ensure!(
        args.prefill > 0 || args.decode > 0,
        "prefill and decode are both 0, expected at least 1 token of one of them"
    );
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = args.threads.unwrap_or(cores);
    anyhow::ensure!(
        (1..=MOST_THREADS).contains(&threads),
        "threads is {threads}, expected from 1 to {MOST_THREADS}"
    );
    // What is not packed is shared out by rayon, which is to have no more threads than asked for.
    let others = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    others.install(|| measure(args, threads))
}

impl BenchArgs {
    /// The GPU to measure, and the model's files, if the processor is not to be measured.
    fn on_gpu(&self, load: Load) -> Result<Option<(OnGpu, ModelFiles)>> {
        if self.device.device == Device::Cpu {
            return Ok(None);
        }
        let formats = (self.weights != [Weights::AsStored]).then(|| {
            "--weights names formats of the processor's, expected none on a GPU".to_owned()
        });
        let otherwise = formats.or(kv_on_gpu(self.kv));
        let mut files = self.model.files()?;
        files.config.rope_scaling = None;
        let on_gpu =
            self.device.gpu(&files, Some(load.tokens()), otherwise, |_| Ok(on_gpu::room(load)))?;
        Ok(on_gpu.map(|on_gpu| (on_gpu, files)))
    }
}

fn measure(args: &BenchArgs, threads: usize) -> Result<()> {
    let BenchArgs { prefill, decode, depth, batch, .. } = *args;
    let kv = args.kv.unwrap_or(KvType::Exact(Element::F32));
    let load = Load { kv, prefill, decode, depth, batch };
    if let Some((on_gpu, files)) = args.on_gpu(load)? {
        return on_gpu::measure(on_gpu, &files, load, args);
    }
    let memory = Memory::new();
    let pool = Pool::new(threads);
    let mut report =
        Report { machine: MachineName::this(), bandwidth_gb_per_s: Vec::new(), runs: Vec::new() };
    for &weights in &args.weights {
        let began = Instant::now();
        let mut files = args.model.files()?;
        // How far RoPE is stretched is all one to the clock.
        files.config.rope_scaling = None;
        let (context, kv_element) = (Some(load.tokens()), kv.rounded_to());
        let options = LoadOptions { context, kv_element, ..LoadOptions::default() };
        let loaded = load_packed(&files, weights, options, &pool, args.keep)?;
        drop(files);
        let model = &loaded.model;
        let load_ms = began.elapsed().as_secs_f64() * 1e3;
        let mut cache = load.cache(model, &pool)?;
        let mut run = Run::new(&loaded, load, threads, &cache);
        run.load_ms = load_ms;
        for _ in 0..args.samples {
            report.bandwidth_gb_per_s.push(memory.read_rate(threads) / 1e9);
            run.sample(model, &mut cache)?;
        }
        run.peak_bytes = peak_bytes();
        if !args.json {
            let gb = &report.bandwidth_gb_per_s[report.bandwidth_gb_per_s.len() - args.samples..];
            print_run(&report.machine, &run, gb)?;
        }
        report.runs.push(run);
    }
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}
