//! A server under clients that do everything clients do.
//!
//! | File | Holds |
//! |---|---|
//! | `soak/questions.rs` | what is asked, and what each is answered alone |
//! | `soak/client.rs` | how clients behave |
//! | `soak/watch.rs` | the engine meanwhile |
//! | `soak/process.rs` | threads, files and memory of this process |

#[path = "soak/client.rs"]
mod client;
#[path = "soak/process.rs"]
mod process;
#[path = "soak/questions.rs"]
mod questions;
#[path = "soak/watch.rs"]
mod watch;

use anyhow::{Context, Result, ensure};
use client::{Client, Run};
use embedded_models::TARGET;
use flash_attention::packed::Weights;
use flash_attention::threads::Pool;
use model_files::ModelFiles;
use naive_decode::measurement::MachineName;
use naive_decode::{LoadOptions, Model};
use paged_cache::Room;
use process::Process;
use questions::Question;
use serde::Serialize;
use serving::engine::{BlockCounts, Engine, EngineHandle, EngineOptions};
use serving::http::{App, InProcess};
use serving::packed::{Keep, load_packed};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use watch::Watched;

/// Questions that clients choose among.
const QUESTIONS: u64 = 48;

/// Answers under way when the server is told to end.
const AT_THE_END: u64 = 8;

/// How long the server may take to clean up after the last client: threads that prepare requests stay for ten seconds.
const SETTLED_IN: Duration = Duration::from_secs(30);

/// How long it may take to end, with what is under way.
const ENDED_IN: Duration = Duration::from_secs(30);

/// A load that goes on for a while.
pub(crate) struct Soak {
    /// Clients at the same time.
    pub(crate) clients: usize,
    /// For how long they go on.
    pub(crate) lasting: Duration,
    /// Of what is asked, and of how clients behave.
    pub(crate) seed: u64,
}

/// What became of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: MachineName,
    /// What to type to do it again.
    command: String,
    clients: usize,
    seconds: f64,
    /// Tokens that all clients ask for at a time, on average, and those that the pool has room for.
    demand_tokens: usize,
    pool_tokens: usize,
    /// Requests by what became of them.
    pub(crate) requests: BTreeMap<&'static str, u64>,
    pub(crate) load: Watched,
    /// Seconds that answers took which were read as they came: half of them at most, 99 of 100, all.
    answer_seconds: BTreeMap<&'static str, f64>,
    /// The pool before the first client and after the last.
    blocks: [BlockCounts; 2],
    /// This process, the same.
    process: [Process; 2],
    /// Seconds that the server took to end, with answers under way.
    ended_in: f64,
    /// Whatever should not have happened.
    pub(crate) problems: Vec<String>,
}

impl Soak {
    /// Serves, asks, and looks what is left.
    ///
    /// # Errors
    /// If there is no server to ask. What goes wrong with it later is told among the problems.
    pub(crate) fn run(&self) -> Result<Report> {
        let files = ModelFiles::embedded(&TARGET)?;
        let (weights, options) = (Weights::AsStored, LoadOptions::default());
        let loaded = load_packed(&files, weights, options, &Pool::shared(), Keep::Never)?;
        let model = Arc::new(loaded.model);
        let questions = self.questions(&files, &model)?;
        let tokens: usize = questions.iter().map(|question| question.tokens).sum();
        let demand_tokens = self.clients * tokens / questions.len();
        let mut options = under_pressure(&model)?;
        let pool_tokens = (demand_tokens / 4).max(model.context());
        options.pool_bytes = Room::for_tokens(&model, pool_tokens)?.bytes;
        options.running = self.clients;
        options.queue = self.clients;
        let (mut server, engine) = serve(&files, &model, options)?;
        let run = Run::new(server.address(), questions);
        // What is only made once is there from now on.
        Client::new(&run, self.seed, u64::MAX).asks(&run.questions[0]);
        let before = settled(&engine, None)?;
        let began = Instant::now();
        let load = std::thread::scope(|scope| {
            for number in 0..self.clients as u64 {
                let run = &run;
                scope.spawn(move || {
                    let mut client = Client::new(run, self.seed, number);
                    while began.elapsed() < self.lasting {
                        client.comes();
                    }
                    run.gone.fetch_add(1, Ordering::Relaxed);
                });
            }
            watch::watch(&engine, &run, self.clients, self.lasting)
        });
        let seconds = began.elapsed().as_secs_f64();
        let after = settled(&engine, Some(&before));
        let after = after.unwrap_or_else(|problem| {
            run.problem(format!("after the last client: {problem:#}"));
            Left::of(&engine)
        });
        let ended_in = self.end(&mut server, &run)?;
        drop((server, engine));
        if process::waits_for(|| Process::threads_called("engine") == 0, ENDED_IN).is_err() {
            run.problem("the engine's thread is still there".to_owned());
        }
        let done = run.into_outcome();
        Ok(Report {
            machine: MachineName::this(),
            command: self.command(),
            clients: self.clients,
            seconds,
            demand_tokens,
            pool_tokens,
            requests: done.requests,
            load,
            answer_seconds: quantiles(done.seconds),
            blocks: [before.blocks, after.blocks],
            process: [before.process, after.process],
            ended_in,
            problems: done.problems,
        })
    }

    fn command(&self) -> String {
        let (minutes, clients, seed) = (self.lasting.as_secs_f64() / 60.0, self.clients, self.seed);
        format!(
            "cargo run --release -p serving --example soak -- --minutes {minutes} --clients {clients} --seed {seed}"
        )
    }

    /// What is asked, each answered alone: by an engine that keeps nothing from one to the next, and guesses nothing.
    fn questions(&self, files: &ModelFiles, model: &Arc<Model>) -> Result<Vec<Question>> {
        let plain = EngineOptions { prefixes: false, draft: 0, ..EngineOptions::for_model(model)? };
        let (server, _engine) = serve(files, model, plain)?;
        (0..QUESTIONS).map(|number| Question::new(self.seed, number, server.address())).collect()
    }

    /// Tells the server to end while it answers, and times it.
    fn end(&self, server: &mut InProcess, run: &Run) -> Result<f64> {
        let address = server.address();
        let (under_way, is_told) = (AtomicU64::new(0), AtomicBool::new(false));
        let when_begun = || {
            under_way.fetch_add(1, Ordering::Relaxed);
            // What else goes wrong is told by the reading.
            let _ = process::waits_for(|| is_told.load(Ordering::Relaxed), ENDED_IN);
        };
        std::thread::scope(|scope| {
            for number in 0..AT_THE_END {
                let mut client = Client::new(run, self.seed, u64::MAX - number);
                let when_begun = &when_begun;
                scope.spawn(move || client.streams_one(when_begun));
            }
            let all = || under_way.load(Ordering::Relaxed) == AT_THE_END;
            let began = process::waits_for(all, SETTLED_IN);
            let told = Instant::now();
            server.end();
            is_told.store(true, Ordering::Relaxed);
            began.context("the last answers did not begin")?;
            if process::waits_for(|| server.has_ended(), ENDED_IN).is_err() {
                run.problem(format!("the server did not end in {} s", ENDED_IN.as_secs()));
            }
            if std::net::TcpStream::connect(address).is_ok() {
                run.problem("a server that has ended takes connections".to_owned());
            }
            Ok(told.elapsed().as_secs_f64())
        })
    }
}

fn quantiles(mut samples: Vec<f64>) -> BTreeMap<&'static str, f64> {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    let at = [("p50", last / 2), ("p99", last * 99 / 100), ("most", last)];
    at.into_iter().filter_map(|(name, at)| Some((name, *samples.get(at)?))).collect()
}

/// As `ladder serve` has it, but with less patience, so that it runs out while somebody looks.
fn under_pressure(model: &Model) -> Result<EngineOptions> {
    let options = EngineOptions::for_model(model)?;
    let host_bytes = options.pool_bytes;
    Ok(EngineOptions { events: 16, patience: Duration::from_secs(2), host_bytes, ..options })
}

fn serve(
    files: &ModelFiles,
    model: &Arc<Model>,
    options: EngineOptions,
) -> Result<(InProcess, EngineHandle)> {
    let end_tokens = model.config.end_tokens.clone();
    let engine = EngineHandle::start(Engine::new(model.clone(), options)?)?;
    let (tokenizer, template) = (files.tokenizer.clone(), files.chat_template.clone());
    let app = App::new(TARGET.name, tokenizer, template, end_tokens, engine.clone())?;
    Ok((InProcess::start(Arc::new(app.with_priorities(true)))?, engine))
}

/// What is there while nobody asks anything.
struct Left {
    blocks: BlockCounts,
    process: Process,
}

impl Left {
    fn of(engine: &EngineHandle) -> Self {
        Left { blocks: engine.state().blocks, process: Process::now() }
    }

    fn check(&self, before: Option<&Left>) -> Result<()> {
        let used = self.blocks.used();
        ensure!(used == 0, "{used} blocks are held by nobody");
        let Some(before) = before else { return Ok(()) };
        let (threads, files) = (self.process.threads, self.process.files);
        let (threads_before, files_before) = (before.process.threads, before.process.files);
        ensure!(threads <= threads_before, "{threads} threads, and {threads_before} before");
        ensure!(files <= files_before, "{files} open files, and {files_before} before");
        Ok(())
    }
}

/// Waits until the engine is idle, and nothing more is there than before.
fn settled(engine: &EngineHandle, before: Option<&Left>) -> Result<Left> {
    let is_settled = || {
        let state = engine.state();
        state.running + state.waiting + state.stalled == 0 && Left::of(engine).check(before).is_ok()
    };
    // Why not is told by the check below.
    let _ = process::waits_for(is_settled, SETTLED_IN);
    let state = engine.state();
    let (running, waiting, stalled) = (state.running, state.waiting, state.stalled);
    let stuck = format!("{running} requests run, {waiting} wait and {stalled} are held back");
    ensure!(running + waiting + stalled == 0, "{stuck}, for nobody");
    let left = Left::of(engine);
    left.check(before)?;
    Ok(left)
}
