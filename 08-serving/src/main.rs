//! The `ladder` command.

use anyhow::{Error, Result};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use mimalloc::MiMalloc;
use serving::bench::{BenchArgs, bench};
use serving::break_its;
use serving::chat::{ChatArgs, chat};
use serving::climb::{ClimbArgs, climb};
use serving::generate::{GenerateArgs, generate};
use serving::gpu_check::{GpuCheckArgs, gpu_check};
use serving::gpu_step::{GpuStepArgs, gpu_step};
use serving::models::{ModelsArgs, models};
use serving::serve::{ServeArgs, serve};
use serving::simulate::{self, SimulateArgs};
use serving::trace::{TraceArgs, trace};
use std::io::Write;
use std::process::ExitCode;

// A pass makes and drops some arrays for each layer. This allocator has them at the beginnings of cache lines, and the
// same memory again for the next (decision 22).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Climb LLM inference rung by rung: same model, same prompt, same bits, one change at a time
#[derive(Parser)]
#[command(name = "ladder", version, args_conflicts_with_subcommands = true, term_width = 92)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    climb: ClimbArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Run every rung on one prompt and compare them (what happens without a command)
    Climb(ClimbArgs),
    /// Continue a text
    Generate(GenerateArgs),
    /// Serve a model over HTTP, with OpenAI's API, Anthropic's messages and a web page
    Serve(ServeArgs),
    /// Talk to a model in the terminal
    Chat(ChatArgs),
    /// List models: embedded, in the hub's cache, in directories, and known by name
    Models(ModelsArgs),
    /// Measure prefill and decode beside what the memory gives
    Bench(BenchArgs),
    /// Check every kernel on this machine's GPU against the processor, then time it
    GpuCheck(GpuCheckArgs),
    /// Run a load through the engine and print what each pass did, as JSON
    Trace(TraceArgs),
    /// Say what a deployment would do: what the roofline allows, and a run of the engine's own scheduler
    Simulate(Box<SimulateArgs>),
    /// Step through a GPU kernel on this machine's processor: warps, registers, bank conflicts, barriers, copies
    GpuStep(GpuStepArgs),
    /// Break something on purpose and see what it does; without a name, list what there is
    Break(break_its::Args),
}

fn main() -> ExitCode {
    let matches = with_negative_numbers(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|problem| problem.exit());
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // Nobody may be there to read it.
            let _ = writeln!(std::io::stderr(), "error: {}", in_words(&problem));
            ExitCode::FAILURE
        }
    }
}

/// Lets a number below zero be the value of any option. Where it cannot be, the option that has it is named.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let has_value = arg.get_action().takes_values();
        arg.allow_negative_numbers(has_value)
    });
    command.mut_subcommands(with_negative_numbers)
}

/// A problem and what caused it, in one line: a cause that the problem names itself is not told twice.
fn in_words(problem: &Error) -> String {
    let mut words = String::new();
    for cause in problem.chain().map(ToString::to_string) {
        if !words.ends_with(&cause) {
            let comma = if words.is_empty() { "" } else { ": " };
            words += &format!("{comma}{cause}");
        }
    }
    words
}

fn run(cli: Cli) -> Result<()> {
    // A reader who closes the pipe, as `head` does, has seen enough. Not so a server's client, whose connection would
    // end the process for all others with the same signal.
    if !matches!(cli.command, Some(Command::Serve(_))) {
        sigpipe::reset();
    }
    match cli.command {
        None => climb(&cli.climb),
        Some(Command::Climb(args)) => climb(&args),
        Some(Command::Generate(args)) => generate(&args),
        Some(Command::Serve(args)) => serve(&args),
        Some(Command::Chat(args)) => chat(&args),
        Some(Command::Models(args)) => models(&args),
        Some(Command::Bench(args)) => bench(&args),
        Some(Command::GpuCheck(args)) => gpu_check(&args),
        Some(Command::Trace(args)) => trace(&args),
        Some(Command::Simulate(args)) => simulate::run(&args),
        Some(Command::GpuStep(args)) => gpu_step(&args),
        Some(Command::Break(args)) => break_its::run(&args),
    }
}
