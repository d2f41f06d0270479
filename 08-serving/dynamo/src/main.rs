//! `ladder serve` behind NVIDIA Dynamo.
//!
//! [Dynamo](https://github.com/ai-dynamo/dynamo) is a front for many engines: it takes requests, and sends each where most of
//! its beginning is known. It knows that from KV events, which every engine sends.
//!
//! `frontend` is Dynamo's own, as a program of one file: the API, the tokeniser, the router. `worker` stands beside a
//! `ladder serve --kv-events` and speaks for it: requests go one way, tokens and KV events the other.
//!
//! | File | Holds |
//! |---|---|
//! | `server.rs` | the server that a worker speaks for, over HTTP |
//! | `translate.rs` | Dynamo's requests as the server takes them, and its answers as Dynamo takes them |
//! | `worker.rs` | the worker: signs on, and answers |
//! | `kv_events.rs` | the server's KV events as Dynamo's |

mod kv_events;
mod server;
mod translate;
mod worker;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use dynamo_llm::entrypoint::input::{Input, run_input};
use dynamo_llm::entrypoint::{EngineConfig, RouterConfig};
use dynamo_llm::local_model::LocalModelBuilder;
use dynamo_runtime::distributed::DistributedConfig;
use dynamo_runtime::pipeline::RouterMode;
use dynamo_runtime::{DistributedRuntime, Runtime, Worker, logging};

/// How often a request may move to another worker when its own is lost.
const MOVES: u32 = 3;

/// Puts `ladder serve` behind NVIDIA Dynamo. How processes find each other is Dynamo's to say: DYN_DISCOVERY_BACKEND=file
/// with DYN_FILE_KV=DIRECTORY does on one machine.
#[derive(Debug, Parser)]
#[command(name = "ladder-dynamo", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Take requests, and send each to a worker
    Frontend {
        /// Address to listen on
        #[arg(long, default_value = "127.0.0.1")]
        host: String,
        /// Port to listen on
        #[arg(long, default_value_t = 8080)]
        port: u16,
        /// Who has a request: the worker that knows most of its beginning, or the next
        #[arg(long, value_enum, default_value_t = Router::Kv)]
        router: Router,
    },
    /// Speak for a server that runs with --kv-events
    Worker(worker::WorkerArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Router {
    /// The one that knows most of it
    Kv,
    /// The next
    RoundRobin,
}

fn main() -> Result<()> {
    let Arguments { command } = Arguments::parse();
    logging::init();
    Worker::from_settings()?.execute(|runtime| run(runtime, command))
}

async fn run(runtime: Runtime, command: Command) -> Result<()> {
    let distributed =
        DistributedRuntime::new(runtime, DistributedConfig::try_from_settings()?).await?;
    match command {
        Command::Frontend { host, port, router } => {
            let mode = match router {
                Router::Kv => RouterMode::KV,
                Router::RoundRobin => RouterMode::RoundRobin,
            };
            let mut model = LocalModelBuilder::default();
            model.http_host(Some(host)).http_port(port).migration_limit(Some(MOVES));
            model.router_config(Some(RouterConfig::new(mode, Default::default())));
            let model = Box::new(model.build().await?);
            let engine = EngineConfig::Dynamic {
                model,
                chat_engine_factory: None,
                prefill_load_estimator: None,
            };
            run_input(distributed, Input::Http, engine).await
        }
        Command::Worker(args) => worker::run(distributed, args).await,
    }
}
