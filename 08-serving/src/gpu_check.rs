//! `ladder gpu-check`: a GPU held to what the interpreter was held to, then timed, all in one run.
//!
//! | File | Holds |
//! |---|---|
//! | `tokens.rs` | a model's greedy tokens, on the processor and on the GPU |
//! | `bench.rs` | kernels, timed |
//! | `decode.rs` | decoding steps of whole models, timed |
//! | `peers.rs`, `peers.py` | the same shapes in PyTorch, where that is there |
//! | `parts.rs` | each check, model and shape in a process of its own, with a limit |
//! | `machine.rs` | which GPU, driver and program |
//!
//! Everything is written as JSON with all samples, after each part. Nothing is written that was not measured in the same run.
//! Each process loads its kernels anew; the driver compiles them once and then finds them in its cache (`~/.nv/ComputeCache`),
//! unless it is off (`CUDA_CACHE_DISABLE`) or cannot be written, and then it compiles them for each part.

pub mod bench;
pub mod decode;
mod machine;
mod parts;
mod peers;
pub mod tokens;

use crate::say::say;
use anyhow::{Context, Result, bail};
use clap::Args;
use cuda_executor::Driver;
use cuda_kernels::{Gpu, check};
use machine::Machine;
use model_files::ModelArgs;
use parts::{Kind, Outcome, Part};
use serde::Serialize;
use serde_json::{Value, to_value};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs};

/// What to check, and where to write.
#[derive(Debug, Clone, Args)]
pub struct GpuCheckArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Directory for what comes of it; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The one part that this process is for
    #[arg(long, hide = true)]
    part: Option<Part>,
}

/// What came of a check.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Which kernels.
    pub name: &'static str,
    /// What is wrong; none if nothing is.
    pub problem: Option<String>,
    /// Why it was not run, if it was not.
    pub left_out: Option<String>,
    /// How long it took, the reference on the processor included.
    pub seconds: f64,
}

/// Holds the first GPU to the processor, times it, and writes all of it to a directory.
///
/// # Errors
/// In one line, without a GPU; if something is wrong with a kernel or a token, or a part has failed, once everything is
/// written; and if nothing can be written.
pub fn gpu_check(args: &GpuCheckArgs) -> Result<()> {
    let out = &args.out;
    if let Some(part) = args.part {
        let name = names(args, part.kind).into_iter().nth(part.index);
        let name = name.with_context(|| format!("there is no part {part}"))?;
        let outcome = run_part(args, part);
        let outcome = outcome.or_else(|error| Outcome::failed(&name, &format!("{error:#}")))?;
        return write(out, parts::OUTCOME, &outcome);
    }
    let gpu = Driver::open()?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let machine = Machine::of(&gpu)?;
    let (major, minor) = machine.capability;
    say!("{}, compute capability {major}.{minor}", machine.gpu)?;
    write(out, "machine.json", &machine)?;
    // The parts' processes have the whole device.
    drop(gpu);

    let ladder = env::current_exe().context("cannot find this program")?;
    let mut wrong = Vec::new();
    for kind in Kind::ALL {
        let run = |part: Part| {
            let mut command = Command::new(&ladder);
            command.args(env::args_os().skip(1)).arg("--part").arg(part.to_string());
            parts::within(command.stdin(Stdio::null()), kind.limit())
        };
        wrong.extend(parts::all(out, kind, &names(args, kind), run)?);
    }
    say!("{}", peers::run(out, &bench::Shapes::for_a_gpu())?)?;
    say!("written to {}", out.display())?;
    match wrong.first() {
        None => Ok(()),
        Some(first) => bail!("{} of the checks failed, the first: {first}", wrong.len()),
    }
}

/// What the parts of a kind are called, in order.
fn names(args: &GpuCheckArgs, kind: Kind) -> Vec<String> {
    match kind {
        Kind::Kernels => check::all().iter().map(|check| check.name.to_owned()).collect(),
        Kind::Tokens => {
            let name = |model: ModelArgs| model.model.unwrap_or("the embedded model".into());
            models(args).into_iter().map(|model| format!("tokens of {}", name(model))).collect()
        }
        Kind::KernelsTimed => {
            bench::Shapes::for_a_gpu().shapes.iter().map(|shape| format!("{shape:?}")).collect()
        }
        Kind::DecodeTimed => {
            let shapes = decode::Shape::for_a_gpu();
            shapes.iter().map(|shape| format!("decoding with {}", shape.name)).collect()
        }
    }
}

/// The embedded model, and the one that was asked for beside it.
fn models(args: &GpuCheckArgs) -> Vec<ModelArgs> {
    let mut models = vec![ModelArgs::default()];
    models.extend((!args.model.is_embedded()).then(|| args.model.clone()));
    models
}

/// Runs a part on a device of its own.
fn run_part(args: &GpuCheckArgs, Part { kind, index }: Part) -> Result<Outcome> {
    let mut open = || Ok(Driver::open()?);
    let values = |results: Value| match results {
        Value::Array(results) => results,
        result => vec![result],
    };
    Ok(match kind {
        Kind::Kernels => {
            let checked = checked(&check::all()[index], &mut open()?)?;
            Outcome { results: values(to_value(&checked)?), problem: checked.problem }
        }
        Kind::Tokens => {
            let tokens = tokens::compare(open()?, &models(args)[index].files()?)?;
            say!("{}: {}", tokens.model, tokens.said())?;
            Outcome { problem: tokens.problem(), results: values(to_value(tokens)?) }
        }
        Kind::KernelsTimed => {
            let mut shapes = bench::Shapes::for_a_gpu();
            shapes.shapes = vec![shapes.shapes[index]];
            let timed = bench::all(&mut open, &shapes)?;
            Outcome { problem: None, results: values(to_value(timed)?) }
        }
        Kind::DecodeTimed => {
            let shape = decode::Shape::for_a_gpu().swap_remove(index);
            let steps = decode::all(&mut open, &[shape])?;
            Outcome { problem: None, results: values(to_value(steps)?) }
        }
    })
}

/// Runs one check on a device, and says how it went. A device that fails fails its checks.
///
/// # Errors
/// If standard output cannot be written.
pub fn checked(check: &check::Check, device: &mut dyn Gpu) -> Result<Checked> {
    let name = check.name;
    if let Some(why) = check.left_out(device) {
        say!("  left out  {name}: {why}")?;
        return Ok(Checked { name, problem: None, left_out: Some(why), seconds: 0.0 });
    }
    let began = Instant::now();
    let problem = check.run(device).err().map(|problem| format!("{name}: {problem}"));
    match &problem {
        None => say!("  right     {name}")?,
        Some(problem) => say!("  WRONG     {problem}")?,
    }
    Ok(Checked { name, problem, left_out: None, seconds: began.elapsed().as_secs_f64() })
}

fn write(out: &Path, name: &str, what: &impl Serialize) -> Result<()> {
    let path = out.join(name);
    let json = serde_json::to_vec_pretty(what)?;
    fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))
}
