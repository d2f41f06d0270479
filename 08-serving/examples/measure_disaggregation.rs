//! Prompts read by one server and answers written by another, beside two servers that do both.
//!
//!     cargo run --release -p serving --example measure_disaggregation
//!
//! Two servers, each on a core of its own if there are two. First, how long a prompt takes to its first token where it is
//! read, read elsewhere, and known elsewhere, so that only its keys and values travel. Then how evenly texts are
//! written while long prompts come: with one server for each kind of work, and with two that share both.

mod streams;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use naive_decode::measurement::{Measurement, Series, median};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams::{Answer, Server, quantile};

/// What has come to a writer.
const RECEIVED: &str = "ladder:kv_received_bytes_total";

/// Prompts that every server reads before anything is timed: a young one waits for the system's memory.
const WARM: usize = 6;

/// Measures prefill-decode disaggregation.
#[derive(Parser)]
struct Arguments {
    /// Model of all servers; the embedded one if not given.
    #[arg(long)]
    model: Option<String>,
    /// What keys and values are kept as.
    #[arg(long, default_value = "f32")]
    kv: String,
    /// Tokens of the prompts.
    #[arg(long, value_delimiter = ',', default_values_t = [128, 256, 448])]
    prompts: Vec<usize>,
    /// Clients that have texts written, and tokens of each text.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// How often everything is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// A `ladder serve` of its own. It ends with this.
struct Process {
    child: Child,
    server: Server,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts one on a core of its own, as far as there are some and the system has `taskset`.
    fn start(name: &str, core: usize, arguments: &Arguments, more: &[&str]) -> Result<Self> {
        let ladder = ladder()?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let can_pin = Command::new("taskset").arg("--version").output().is_ok();
        let mut command = match can_pin && cores > 1 {
            true => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", &core.to_string()]).arg(ladder);
                command
            }
            false => Command::new(ladder),
        };
        command.args(["serve", "--port", "0", "--device", "cpu", "--kv", &arguments.kv]);
        command.args(arguments.model.iter().flat_map(|model| ["--model", model])).args(more);
        command.env("NO_COLOR", "1").env("RUST_LOG", "info").stderr(Stdio::piped());
        let mut child = command.spawn().context("ladder cannot be started")?;
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let url = loop {
            let Some(line) = lines.next() else { bail!("{name} ended before it listened") };
            let line = line?;
            if let Some(at) = line.find("http://127.0.0.1:") {
                break line[at..].split_whitespace().next().unwrap_or_default().to_owned();
            }
        };
        // A full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Process { child, server: Server::at(name, &url)? })
    }

    /// A counter of `/metrics`.
    fn counted(&self, name: &str) -> Result<f64> {
        let url = format!("{}/metrics", self.server.url);
        let text = ureq::get(&url).call()?.body_mut().read_to_string()?;
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.with_context(|| format!("{url} has no {name}"))
    }
}

/// The command beside this example.
fn ladder() -> Result<PathBuf> {
    let example = std::env::current_exe()?;
    let folder = example.parent().and_then(Path::parent).context("this example has no folder")?;
    let ladder = folder.join("ladder");
    ensure!(ladder.is_file(), "no {}: cargo build --release -p serving", ladder.display());
    Ok(ladder)
}

/// Tokens that no other number begins with.
fn prompt(seed: usize, count: usize) -> Vec<u32> {
    let mut state = seed as u64 + 1;
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        64 + (state >> 33) as u32 % 512
    };
    (0..count).map(|_| draw()).collect()
}

/// By what was measured and its unit, and then by the number of tokens or of clients.
type Samples = BTreeMap<(&'static str, &'static str), BTreeMap<usize, Vec<f64>>>;

fn keep(samples: &mut Samples, what: &'static str, unit: &'static str, at: usize, value: f64) {
    samples.entry((what, unit)).or_default().entry(at).or_default().push(value);
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let (rounds, lengths) = (arguments.rounds, arguments.prompts.len());
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left")?;
    let bar = ProgressBar::new((rounds * (lengths + 2)) as u64).with_style(style);
    let mut samples = Samples::new();
    let worker = Process::start("the worker", 0, &arguments, &["--prefill-worker"])?;
    // Two writers: what the first has had read is known to the worker when the second asks, and to nobody else.
    let at = ["--prefill-at", &worker.server.url.clone()];
    let first = Process::start("the first writer", 1, &arguments, &at)?;
    let second = Process::start("the second writer", 1, &arguments, &at)?;
    let alone = Process::start("the second of two", 1, &arguments, &[])?;
    bar.set_message("the first prompts");
    for (i, &count) in arguments.prompts.iter().cycle().take(WARM).enumerate() {
        for process in [&worker, &first, &second, &alone] {
            process.server.ask(prompt(90_000 + i, count), 4)?;
        }
    }
    for round in 0..rounds {
        for (i, &count) in arguments.prompts.iter().enumerate() {
            bar.set_message(format!("prompts of {count} tokens"));
            let here = worker.server.ask(prompt(5_000 + round * 100 + i, count), 4)?;
            let cold = prompt(round * 100 + i, count);
            let elsewhere = first.server.ask(cold.clone(), 4)?;
            let before = second.counted(RECEIVED)?;
            let known = second.server.ask(cold, 4)?;
            let bytes = second.counted(RECEIVED)? - before;
            ensure!(elsewhere.text == known.text, "the same prompt has two answers");
            keep(&mut samples, "TTFT, read where it is answered", "ms", count, ms(here.first()));
            keep(&mut samples, "TTFT, read elsewhere", "ms", count, ms(elsewhere.first()));
            keep(&mut samples, "TTFT, known elsewhere", "ms", count, ms(known.first()));
            keep(&mut samples, "keys and values that travel", "MB", count, bytes / 1e6);
            bar.inc(1);
        }
        for disaggregated in [true, false] {
            let (message, servers, [pause, each, first]) = match disaggregated {
                true => (
                    "one reads and one writes",
                    [&first.server, &first.server],
                    [
                        "longest pause of a text, one reads and one writes",
                        "TPOT, one reads and one writes",
                        "TTFT of prompts, one reads and one writes",
                    ],
                ),
                false => (
                    "both do both",
                    [&worker.server, &alone.server],
                    [
                        "longest pause of a text, both do both",
                        "TPOT, both do both",
                        "TTFT of prompts, both do both",
                    ],
                ),
            };
            bar.set_message(message);
            let (texts, firsts) = under_load(servers, &arguments, round)?;
            let mut keep = |what, time| keep(&mut samples, what, "ms", arguments.clients, ms(time));
            for text in &texts {
                keep(pause, longest_pause(text));
                text.each().into_iter().for_each(|time| keep(each, time));
            }
            firsts.into_iter().for_each(|time| keep(first, time));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    print(&samples);
    let series = samples.into_iter().map(|((name, unit), points)| Series {
        name: name.into(),
        unit: unit.into(),
        points: points.into_iter().map(|(at, values)| (at as f64, values)).collect(),
    });
    let measured = Measurement::by("serving", "measure_disaggregation", series.collect());
    measured.keep(arguments.json.as_deref())?;
    Ok(())
}

/// Texts that are written while long prompts come, one after another. Clients take the servers in turn. Gives the texts,
/// and the prompts' times to the first token.
fn under_load(
    servers: [&Server; 2],
    arguments: &Arguments,
    round: usize,
) -> Result<(Vec<Answer>, Vec<Duration>)> {
    let longest = arguments.prompts.iter().copied().max().unwrap_or(1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = |i: usize| {
            let short = prompt(7_000 + round * 100 + i, 24);
            scope.spawn(move || servers[i % 2].ask(short, arguments.tokens))
        };
        let texts: Vec<_> = (0..arguments.clients).map(write).collect();
        let prompts = scope.spawn(|| -> Result<Vec<Duration>> {
            let mut firsts = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let long = prompt(20_000 + round * 1_000 + firsts.len(), longest);
                firsts.push(servers[firsts.len() % 2].ask(long, 2)?.first());
            }
            Ok(firsts)
        });
        let texts: Vec<_> =
            texts.into_iter().map(|text| text.join().expect("no client panics")).collect();
        is_over.store(true, Ordering::Relaxed);
        let prompts = prompts.join().expect("no client panics")?;
        Ok((texts.into_iter().collect::<Result<_>>()?, prompts))
    })
}

/// The longest time between two pieces of a text.
fn longest_pause(text: &Answer) -> Duration {
    let pauses = text.pieces.windows(2).map(|pair| pair[1] - pair[0]);
    pauses.max().unwrap_or_default()
}

fn print(samples: &Samples) {
    for ((what, unit), points) in samples {
        for (at, values) in points {
            println!(
                "{what:<52} {at:>5}  p50 {:>8.1}  p95 {:>8.1}  p99 {:>8.1} {unit}",
                median(values),
                quantile(values, 0.95),
                quantile(values, 0.99),
            );
        }
    }
    // What a move would add if nothing of it happened while the prompt is read, and what it does add.
    let [here, elsewhere, known] =
        ["read where it is answered", "read elsewhere", "known elsewhere"].map(|how| {
            samples.iter().find(|((what, _), _)| what.ends_with(how)).map(|(_, points)| points)
        });
    let (Some(here), Some(elsewhere), Some(known)) = (here, elsewhere, known) else { return };
    for (at, read) in here {
        let (read, elsewhere, known) = (median(read), median(&elsewhere[at]), median(&known[at]));
        let hidden = 1.0 - (elsewhere - read).max(0.0) / known;
        println!(
            "{at:>5} tokens: a move of {known:.1} ms adds {:.1} ms, {:.0} % of it is hidden",
            elsewhere - read,
            hidden * 100.0
        );
    }
}
