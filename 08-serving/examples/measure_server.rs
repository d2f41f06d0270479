//! Streaming clients against a server, or against several in turn: time to the first token, time for each
//! token after it, tokens a second.
//!
//!     cargo run --release -p serving --example measure_server -- --server ladder=http://127.0.0.1:8000
//!
//! Without a server it starts one of its own, on the embedded model or `--model`. Any server that speaks
//! OpenAI's `/v1/completions` will do; with several, each load runs against one after the other, round by round.

mod streams;

use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use naive_decode::measurement::{Measurement, Series, median};
use serving::http::{App, InProcess};
use serving::served::{EngineArgs, Exchanging, Served};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use streams::{Answer, Server, quantile};

/// Measures servers under streaming clients.
#[derive(Parser)]
struct Arguments {
    /// A server and what to call it; several are measured in turn.
    #[arg(long, value_name = "NAME=URL")]
    server: Vec<String>,
    #[command(flatten)]
    own: EngineArgs,
    /// Words of the beginning that prompts share; those that share nothing have up to half as many.
    #[arg(long, default_value_t = 100)]
    words: u64,
    /// Clients that ask at the same time.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    clients: Vec<usize>,
    /// Requests of each client.
    #[arg(long, default_value_t = 4)]
    requests: usize,
    /// How often each load is run.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also write the raw samples to this file.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// What a load is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    /// Prompts of very different lengths that share nothing; answers of 32 to 128 tokens.
    Mixed,
    /// The same beginning for all, then a question of 8 to 24 words; answers of 32 tokens.
    Shared,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Load::Mixed => "mixed lengths",
            Load::Shared => "shared beginning",
        }
    }
}

/// By load, server, what was measured and its unit; and then by the number of clients.
type Samples = BTreeMap<(Load, usize, &'static str, &'static str), BTreeMap<usize, Vec<f64>>>;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut servers = Vec::new();
    let own = match arguments.server.is_empty() {
        true => Some(start(&arguments.own)?),
        false => None,
    };
    for named in &arguments.server {
        let (name, url) = named.split_once('=').with_context(|| {
            format!("server {named}, expected a name and an address: ladder=http://127.0.0.1:8000")
        })?;
        servers.push(Server::at(name, url)?);
    }
    if let Some(own) = &own {
        servers.push(Server::at("ladder", &format!("http://{}", own.address()))?);
    }
    for server in &servers {
        compare_alone_and_in_company(server, arguments.words)?;
    }
    let loads = [Load::Mixed, Load::Shared];
    let runs = loads.len() * arguments.clients.len() * arguments.rounds * servers.len();
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left")?;
    let bar = ProgressBar::new(runs as u64).with_style(style);
    let mut samples = Samples::new();
    for load in loads {
        for &clients in &arguments.clients {
            for round in 0..arguments.rounds {
                for (at, server) in servers.iter().enumerate() {
                    bar.set_message(format!("{}, {}, {clients} clients", server.name, load.name()));
                    let seed = (round + 1) * 1_000_000 + clients * 10_000;
                    let began = Instant::now();
                    let answers = run(server, load, clients, &arguments, seed)?;
                    let took = began.elapsed().as_secs_f64();
                    let mut keep = |what, unit, values: Vec<f64>| {
                        let points = samples.entry((load, at, what, unit)).or_default();
                        points.entry(clients).or_default().extend(values);
                    };
                    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
                    keep("TTFT", "ms", answers.iter().map(|answer| ms(&answer.first())).collect());
                    let each = answers.iter().filter_map(Answer::each);
                    keep("TPOT", "ms", each.map(|time| ms(&time)).collect());
                    let tokens: usize = answers.iter().map(|answer| answer.tokens).sum();
                    keep("throughput", "tokens/s", vec![tokens as f64 / took]);
                    bar.inc(1);
                }
            }
        }
    }
    bar.finish_and_clear();
    for ((load, at, what, unit), points) in &samples {
        for (clients, values) in points {
            println!(
                "{:<9} {:<17} {clients:>3} clients  {what:<10} p50 {:>8.1}  p95 {:>8.1}  p99 {:>8.1} {unit}",
                servers[*at].name,
                load.name(),
                median(values),
                quantile(values, 0.95),
                quantile(values, 0.99),
            );
        }
    }
    let series = samples.into_iter().map(|((load, at, what, unit), points)| Series {
        name: format!("{}: {}, {what}", servers[at].name, load.name()),
        unit: unit.into(),
        points: points.into_iter().map(|(clients, values)| (clients as f64, values)).collect(),
    });
    Measurement::by("serving", "measure_server", series.collect())
        .keep(arguments.json.as_deref())?;
    Ok(())
}

/// A server in this process.
fn start(engine: &EngineArgs) -> Result<InProcess> {
    let Served { name, tokenizer, template, end_tokens, engine, .. } =
        engine.start(Exchanging::default())?;
    let app = Arc::new(App::new(name, tokenizer, template, end_tokens, engine)?);
    Ok(InProcess::start(app)?)
}

/// Says how many answers are the same when nobody else asks and when seven others do.
fn compare_alone_and_in_company(server: &Server, words: u64) -> Result<()> {
    let prompts: Vec<(String, usize)> =
        (0..8).map(|i| request(Load::Mixed, 77 + i, words)).collect();
    let alone: Vec<String> = prompts
        .iter()
        .map(|(prompt, tokens)| Ok(server.ask(prompt.as_str(), *tokens)?.text))
        .collect::<Result<_>>()?;
    let company = std::thread::scope(|scope| {
        let asked: Vec<_> = prompts
            .iter()
            .map(|(prompt, tokens)| scope.spawn(|| server.ask(prompt.as_str(), *tokens)))
            .collect();
        asked.into_iter().map(|asked| asked.join().expect("a client does not panic")).collect()
    });
    let company: Vec<Answer> = Result::from_iter::<Vec<Result<Answer>>>(company)?;
    let same = alone.iter().zip(&company).filter(|(alone, company)| **alone == company.text);
    println!("{}: {} of {} answers the same alone and in company", server.name, same.count(), 8);
    Ok(())
}

/// Every client's answers.
fn run(
    server: &Server,
    load: Load,
    clients: usize,
    arguments: &Arguments,
    seed: usize,
) -> Result<Vec<Answer>> {
    let requests = clients * arguments.requests;
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= requests {
                            return Ok(());
                        }
                        let (prompt, tokens) = request(load, seed + number, arguments.words);
                        let answer = server.ask(prompt, tokens)?;
                        answers.lock().expect("no client panics").push(answer);
                    }
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no client panics"))
    })?;
    Ok(answers.into_inner().expect("no client panics"))
}

/// Prompt and answer's length of a request: the same for the same seed.
fn request(load: Load, seed: usize, most: u64) -> (String, usize) {
    const WORDS: [&str; 32] = [
        "river", "stone", "light", "garden", "window", "small", "across", "morning", "paper",
        "under", "quiet", "letter", "seven", "carry", "north", "silver", "bridge", "open",
        "winter", "table", "before", "music", "yellow", "follow", "market", "cloud", "ship",
        "gather", "road", "evening", "bread", "answer",
    ];
    let mut state = seed as u64 + 1;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let words = |count: u64, draw: &mut dyn FnMut(u64) -> u64| -> String {
        let words: Vec<&str> = (0..count).map(|_| WORDS[draw(32) as usize]).collect();
        words.join(" ")
    };
    match load {
        Load::Mixed => {
            let length = most / 16 + draw(most * 7 / 16 + 1);
            (words(length, &mut draw), 32 + draw(97) as usize)
        }
        Load::Shared => {
            let beginning: Vec<&str> =
                (0..most as usize).map(|i| WORDS[i * i % 31 + i % 2]).collect();
            let length = 8 + draw(17);
            (format!("{} {}", beginning.join(" "), words(length, &mut draw)), 32)
        }
    }
}
