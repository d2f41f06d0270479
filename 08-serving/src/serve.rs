//! `ladder serve`: the server.

use crate::api::Generation;
use crate::engine::Prefiller;
use crate::http::{
    App, DRAIN_IN, Hosts, Keys, Origin, PrefillWorkers, WorkerAddress, bind, in_header, listen,
    runtime,
};
use crate::say;
use crate::served::{EngineArgs, Exchanging, Served};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use model_files::SamplingDefaults;
use std::env::VarError;
use std::io::IsTerminal;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpSocket;
use tracing::{info, warn};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Where an API key may be besides the command line, which other users of a machine can read.
const KEY_VARIABLE: &str = "LADDER_API_KEY";
const PREFILL_KEY_VARIABLE: &str = "LADDER_PREFILL_KEY";

/// Which lines the log has.
const LOG_VARIABLE: &str = "RUST_LOG";

/// What to serve, and to whom.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// What requests call the model; its own name if not given
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Address to listen on, or a name that has one; other machines reach 0.0.0.0
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 takes one that is free
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Let in only whoever sends this key; may be given several times. LADDER_API_KEY in the environment is
    /// one too
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// Most seconds that an answer may take, with the time that it waits; it then ends where it is, as at
    /// max_tokens. As long as it likes if not given
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Seconds to finish what is under way once the server is to end; answers then end where they are. Whoever kills
    /// it has to wait three seconds longer
    #[arg(long, value_name = "SECONDS", default_value_t = DRAIN_IN.as_secs())]
    drain_seconds: u64,
    /// Read prompts for other servers, too, and give them the keys and values (prefill-decode disaggregation). Whoever may
    /// ask this server may have them
    #[arg(long)]
    prefill_worker: bool,
    /// Have prompts read by a server that runs with --prefill-worker, at http://HOST:PORT; may be given several times. It
    /// needs the same model, --weights and --kv. While none answers, prompts are read here
    #[arg(long, value_name = "ADDRESS")]
    prefill_at: Vec<WorkerAddress>,
    /// Key that those servers let in; LADDER_PREFILL_KEY in the environment is it, too
    #[arg(long, value_name = "KEY", requires = "prefill_at")]
    prefill_key: Option<String>,
    /// Tell at /kv-events which blocks of earlier texts are known, with their tokens, for a router that sends requests where
    /// their beginning is. Whoever may ask this server may read them, but for those under a key or a salt
    #[arg(long)]
    kv_events: bool,
    /// Let pages of this origin (scheme, host and port) ask, or of all with *; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    allowed_origin: Vec<Origin>,
    /// Who runs first: fcfs, in the order in which requests come, or priority, where they may say it of themselves
    #[arg(long, value_enum, value_name = "POLICY", default_value_t, hide_possible_values = true)]
    scheduling_policy: SchedulingPolicy,
    /// Where sampling parameters come from that a request leaves out: auto, from the model's own files as far as they say
    /// (generation_config.json), or none, which is OpenAI's
    #[arg(long, value_enum, value_name = "FROM", default_value_t, hide_possible_values = true)]
    generation_config: GenerationConfig,
}

/// Who runs first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum SchedulingPolicy {
    /// First come, first served
    #[default]
    Fcfs,
    /// By what requests say of themselves
    Priority,
}

/// Where sampling parameters come from that a request leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum GenerationConfig {
    /// From the model's files
    #[default]
    Auto,
    /// From nowhere
    None,
}

fn seconds(written: &str) -> Result<Duration, String> {
    let seconds =
        written.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| !time.is_zero()).ok_or_else(|| "expected seconds, more than 0".to_owned())
}

impl ServeArgs {
    /// Who reads prompts for this server.
    fn prefiller(&self) -> Result<Option<Arc<dyn Prefiller>>> {
        if self.prefill_at.is_empty() {
            return Ok(None);
        }
        let key = match &self.prefill_key {
            Some(key) => Some(key.clone()),
            None => key_of_environment(PREFILL_KEY_VARIABLE)?,
        };
        let key = key.as_deref().map(in_header).transpose().context("a prefill worker's key")?;
        let workers = PrefillWorkers::new(self.prefill_at.clone(), key)?;
        Ok(Some(Arc::new(workers)))
    }

    /// The address, taken. Of a name that has several, IPv4 goes first: `localhost` is to be where clients look.
    fn bind(&self) -> Result<TcpSocket> {
        let refused = || {
            let (host, port) = (&self.host, self.port);
            format!("cannot listen on {host}:{port}; --host and --port name another place")
        };
        let found = (self.host.as_str(), self.port).to_socket_addrs().with_context(refused)?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        let address = addresses.first().with_context(refused)?;
        bind(*address).with_context(refused)
    }
}

impl ServeArgs {
    /// Sampling parameters of requests that say nothing of them.
    ///
    /// # Errors
    /// If the model's files name one that cannot be.
    fn sampling(
        &self,
        of_model: naive_decode::Result<SamplingDefaults>,
        vocabulary: usize,
    ) -> Result<SamplingDefaults> {
        if self.generation_config == GenerationConfig::None {
            return Ok(SamplingDefaults::default());
        }
        let refused = |problem: String| {
            anyhow!(
                "the model's files say how tokens are chosen, but {problem}; --generation-config none passes them over"
            )
        };
        let of_model = of_model.map_err(|malformed| refused(malformed.to_string()))?;
        let checked = Generation::default().sampling(&of_model, vocabulary);
        checked.map(|_| of_model).map_err(|error| refused(error.error.message))
    }
}

/// Serves a model over HTTP until ctrl-c or SIGTERM; then finishes what is under way.
///
/// # Errors
/// Whatever is wrong with the model, an address that cannot be had, or an empty name.
pub fn serve(args: &ServeArgs) -> Result<()> {
    let _log = log()?;
    let is_nameless = args.served_model_name.as_deref() == Some("");
    ensure!(!is_nameless, "--served-model-name is empty, expected a name");
    let variable = key_of_environment(KEY_VARIABLE)?;
    let keys = args.api_key.iter().map(String::as_str).chain(variable.as_deref());
    let keys = Keys::new(keys)?;
    let is_open = keys.is_open();
    let socket = args.bind()?;
    let prefiller = args.prefiller()?;
    let exchange = Exchanging { reads_for_others: args.prefill_worker, prefiller };
    let Served { name, tokenizer, template, end_tokens, device, weights, cut, sampling, engine } =
        args.engine.start(exchange)?;
    let sampling = args.sampling(sampling, engine.limits().vocabulary)?;
    let name = args.served_model_name.clone().unwrap_or(name);
    let limits = engine.limits();
    let app = App::new(name, tokenizer, template, end_tokens, engine)?;
    let app = app.with_keys(keys).with_answers_in(args.timeout).with_sampling(sampling);
    let app = app.with_priorities(args.scheduling_policy == SchedulingPolicy::Priority);
    let app = app.with_prompts_of_others(args.prefill_worker).with_kv_events(args.kv_events);
    let app = app.with_drain_in(Duration::from_secs(args.drain_seconds));
    let is_near = is_open && socket.local_addr()?.ip().is_loopback();
    let hosts = match is_near {
        true => Hosts::near(&args.host, &args.allowed_origin),
        false => Hosts::Any,
    };
    let app = Arc::new(app.with_origins(args.allowed_origin.clone()).with_hosts(hosts));
    let runtime = runtime()?;
    runtime.block_on(async {
        let address = socket.local_addr()?;
        let listening = listen(socket, app.clone());
        let listening = listening.with_context(|| format!("cannot listen on {address}"))?;
        if is_open && !is_near {
            warn!("anybody who reaches {} may use the model: no --api-key", address.ip());
        }
        if args.kv_events && !is_open {
            warn!("--kv-events tells nothing: what is said under a key is nobody else's");
        }
        if let Some(cut) = cut {
            warn!("{cut}");
        }
        if sampling != SamplingDefaults::default() {
            info!("what requests do not say is as the model's files have it: {sampling}");
        }
        info!(
            model = app.name,
            device,
            weights,
            context = limits.context,
            pool_tokens = limits.pool_tokens,
            "serving on http://{}",
            listening.address()?
        );
        listening.serve(ended()).await;
        anyhow::Ok(())
    })?;
    // Work on a request that nobody waits for any more need not be waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// A key in the environment, if there is one. One that cannot be read is no reason to let in everybody.
fn key_of_environment(variable: &str) -> Result<Option<String>> {
    match std::env::var(variable) {
        Ok(key) => Ok(Some(key)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            bail!("{variable} is not UTF-8, expected a key as text")
        }
    }
}

/// Logs what [`LOG_VARIABLE`] asks for: requests and what goes wrong, if it asks for nothing. The last lines are written when
/// what this gives is dropped.
fn log() -> Result<WorkerGuard> {
    let asked = std::env::var(LOG_VARIABLE).ok().filter(|asked| !asked.is_empty());
    let asked = asked.as_deref().unwrap_or("info");
    let levels: Targets = asked.parse().with_context(|| {
        format!("{LOG_VARIABLE} is {asked}, expected a level such as debug, or serving=debug")
    })?;
    // A log that nobody reads is no reason to wait, nor one that nobody reads any more to fail.
    let (aside, guard) = say::without_waiting();
    let lines = tracing_subscriber::fmt::layer().with_target(false).log_internal_errors(false);
    let lines = lines.with_writer(aside);
    // On a terminal it has its colours, unless NO_COLOR is set.
    let lines = match std::io::stderr().is_terminal() {
        true => lines,
        false => lines.with_ansi(false),
    };
    tracing_subscriber::registry().with(lines.with_filter(levels)).init();
    Ok(guard)
}

/// Waits until somebody wants the server to end. A second time ends it at once.
async fn ended() {
    wait_for_signal().await;
    tokio::spawn(async {
        wait_for_signal().await;
        std::process::exit(130);
    });
}

#[cfg(unix)]
async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return ctrl_c().await;
    };
    tokio::select! {
        () = ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn wait_for_signal() {
    ctrl_c().await;
}

/// Where the signal cannot be listened for, the system ends the program by itself.
async fn ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
