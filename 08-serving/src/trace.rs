//! `ladder trace`: a load through the engine, and what each pass did, as JSON for the book and the web page.

mod timeline;

pub use timeline::{RequestTimeline, Timeline, run};

use crate::engine::policy::{Continuous, Policy, StaticBatches};
use crate::engine::{Engine, EngineOptions};
use crate::load::Load;
use crate::load::sizes::MOST_REQUESTS;
use crate::packed::{Keep, load_packed};
use crate::say::say;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use flash_attention::packed::Weights;
use flash_attention::threads::Pool;
use model_files::ModelArgs;
use naive_decode::LoadOptions;
use paged_cache::Room;
use std::sync::Arc;

/// A way to batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Batching {
    /// Whoever fits comes in, in every pass
    Continuous,
    /// A batch at a time
    Static,
}

impl Batching {
    /// The policy behind the name.
    pub fn policy(self) -> Arc<dyn Policy> {
        match self {
            Batching::Continuous => Arc::new(Continuous),
            Batching::Static => Arc::new(StaticBatches),
        }
    }
}

/// What to trace.
#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    load: Load,
    /// How requests share passes
    #[arg(long, value_enum, default_value_t = Batching::Continuous)]
    batching: Batching,
    /// Rows of a pass, at most
    #[arg(long, default_value_t = 64)]
    rows: usize,
    /// Requests that run at once, at most
    #[arg(long, default_value_t = 8)]
    running: usize,
    /// Tokens that the pool has room for; four texts of the whole context if not given
    #[arg(long, value_name = "N")]
    pool_tokens: Option<usize>,
}

/// Runs a load and prints its timeline.
///
/// # Errors
/// Whatever is wrong with the model or the options.
pub fn trace(args: &TraceArgs) -> Result<()> {
    let (requests, rows, running) = (args.load.requests, args.rows, args.running);
    ensure!(
        (1..=MOST_REQUESTS).contains(&requests),
        "--requests is {requests}, expected 1 to {MOST_REQUESTS}"
    );
    ensure!(
        rows >= running,
        "--rows is {rows}, expected at least {running}: one row for each request of --running"
    );
    let files = args.model.files()?;
    let pool = Pool::shared();
    let loaded = load_packed(&files, Weights::AsStored, LoadOptions::default(), &pool, Keep::Slow)?;
    let model = Arc::new(loaded.model);
    let mut options = EngineOptions {
        rows,
        running,
        queue: requests,
        policy: args.batching.policy(),
        ..EngineOptions::for_model(&model)?
    };
    if let Some(tokens) = args.pool_tokens {
        options.pool_bytes = Room::for_tokens(&model, tokens)?.bytes;
    }
    let engine = Engine::new(model, options).context("cannot set up the engine")?;
    let arrivals = args.load.arrivals(&files.tokenizer, engine.limits().context)?;
    let (timeline, _) = run(engine, &arrivals)?;
    say!("{}", serde_json::to_string(&timeline)?)?;
    Ok(())
}
