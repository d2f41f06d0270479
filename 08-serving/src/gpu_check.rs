//! `ladder gpu-check`: a GPU held to what the interpreter was held to, then timed, all in one run.
//!
//! | File | Holds |
//! |---|---|
//! | `tokens.rs` | a model's greedy tokens, on the processor and on the GPU |
//! | `bench.rs` | kernels, timed |
//! | `decode.rs` | decoding steps of whole models, timed |
//! | `peers.rs`, `peers.py` | the same shapes in PyTorch, where that is there |
//!
//! Everything is written as JSON with all samples. Nothing is written that was not measured in the same run.

pub mod bench;
pub mod decode;
mod peers;
pub mod tokens;

use anyhow::{Context, Result, bail};
use clap::Args;
use cuda_executor::Driver;
use cuda_kernels::{Gpu, check};
use model_files::ModelArgs;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to check, and where to write.
#[derive(Debug, Clone, Args)]
pub struct GpuCheckArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Directory for what comes of it; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Which GPU.
#[derive(Debug, Serialize)]
struct Machine {
    gpu: String,
    capability: (i32, i32),
    memory_bytes: usize,
    /// This program's version.
    version: &'static str,
}

/// What came of a check.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Which kernels.
    pub name: &'static str,
    /// What is wrong; none if nothing is.
    pub problem: Option<String>,
    /// Why it was not run, if it was not.
    pub left_out: Option<&'static str>,
    /// How long it took, the reference on the processor included.
    pub seconds: f64,
}

/// Holds the first GPU to the processor, times it, and writes all of it to a directory.
///
/// # Errors
/// In one line, without a GPU; if something is wrong with a kernel or a token, once everything is written; and if nothing
/// can be written.
pub fn gpu_check(args: &GpuCheckArgs) -> Result<()> {
    let gpu = Driver::open()?;
    let out = &args.out;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let (_, memory_bytes) = gpu.memory()?;
    let (name, capability) = (gpu.name()?, gpu.capability());
    let version = env!("CARGO_PKG_VERSION");
    let machine = Machine { gpu: name, capability, memory_bytes, version };
    println!("{}, compute capability {}.{}", machine.gpu, capability.0, capability.1);
    write(out, "machine.json", &machine)?;
    drop(gpu);

    // Each part has a device of its own: what one has set aside is free for the next.
    let mut checks = Vec::new();
    for check in check::all() {
        checks.push(checked(&check, &mut Driver::open()?));
    }
    write(out, "kernels.json", &checks)?;
    let mut wrong: Vec<String> = checks.iter().filter_map(|check| check.problem.clone()).collect();

    let mut models = vec![ModelArgs::default()];
    models.extend((!args.model.is_embedded()).then(|| args.model.clone()));
    let mut compared = Vec::new();
    for model in &models {
        let files = model.files()?;
        let tokens = tokens::compare(Driver::open()?, &files)?;
        println!("{}: {}", tokens.model, tokens.said());
        wrong.extend(tokens.problem());
        compared.push(tokens);
    }
    write(out, "tokens.json", &compared)?;

    let shapes = bench::Shapes::for_a_gpu();
    let samples = bench::all(&mut || Ok(Driver::open()?), &shapes)?;
    write(out, "kernels_timed.json", &samples)?;
    let steps = decode::all(&mut || Ok(Driver::open()?), &decode::Shape::for_a_gpu())?;
    write(out, "decode_timed.json", &steps)?;
    println!("{}", peers::run(out, &shapes)?);
    println!("written to {}", out.display());
    match wrong.first() {
        None => Ok(()),
        Some(first) => bail!("{} of the checks failed, the first: {first}", wrong.len()),
    }
}

/// Runs one check on a device, and says how it went. A device that fails fails its checks.
pub fn checked(check: &check::Check, device: &mut dyn Gpu) -> Checked {
    let name = check.name;
    if check.is_for_hopper && !device.is_hopper() {
        let left_out = Some("for compute capability 9.0 alone");
        println!("  left out  {name}");
        return Checked { name, problem: None, left_out, seconds: 0.0 };
    }
    let began = Instant::now();
    let problem = check.run(device).err().map(|problem| format!("{name}: {problem}"));
    match &problem {
        None => println!("  right     {name}"),
        Some(problem) => println!("  WRONG     {problem}"),
    }
    Checked { name, problem, left_out: None, seconds: began.elapsed().as_secs_f64() }
}

fn write(out: &Path, name: &str, what: &impl Serialize) -> Result<()> {
    let path = out.join(name);
    let json = serde_json::to_vec_pretty(what)?;
    fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))
}
