//! Two servers, a worker beside each, and a frontend.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The model's name.
pub(crate) const MODEL: &str = "target";

/// How long processes may take to find each other.
const FOUND_IN: Duration = Duration::from_secs(60);

/// A process that ends with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A `ladder serve --kv-events`.
pub(crate) struct Server {
    process: Process,
    url: String,
    // A log that nobody reads would fill its pipe.
    _log: std::thread::JoinHandle<()>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Server {
    fn start() -> Self {
        let ladder = root().join("target/release/ladder");
        assert!(
            ladder.exists(),
            "there is no {}: `cargo build --release --bin ladder` makes it",
            ladder.display()
        );
        let mut child = Command::new(ladder)
            .args(["serve", "--port", "0", "--kv-events", "--served-model-name", MODEL])
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut log = BufReader::new(child.stderr.take().expect("a log"));
        let process = Process(child);
        let url = address(&mut log);
        let _log = std::thread::spawn(move || {
            let _ = log.read_to_end(&mut Vec::new());
        });
        Server { process, url, _log }
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(self) {
        drop(self.process);
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, (u16, String)> {
        post(&self.url, path, body)
    }

    /// The sum of a metric's values; 0 if there is none, as before anything has happened.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = ureq::get(format!("{}/metrics", self.url)).call().expect("metrics");
        let text = text.into_body().read_to_string().expect("text");
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines
            .map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number"))
            .sum()
    }

    /// Tokens of a text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let counted = self.post("/tokenize", &json!({"prompt": text})).expect("tokens");
        counted["count"].as_u64().expect("a count") as usize
    }
}

/// Reads a server's log up to the line that says where it is.
fn address(log: &mut BufReader<ChildStderr>) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(log.read_line(&mut line).expect("a log") > 0, "the server has ended");
        if let Some((_, rest)) = line.split_once("serving on ") {
            return rest.split_whitespace().next().expect("an address").to_owned();
        }
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(FOUND_IN))
        .build()
        .into()
}

fn post(url: &str, path: &str, body: &Value) -> Result<Value, (u16, String)> {
    let answer =
        agent().post(format!("{url}{path}")).send_json(body).map_err(|e| (0, e.to_string()))?;
    let status = answer.status().as_u16();
    let text = answer.into_body().read_to_string().map_err(|e| (status, e.to_string()))?;
    match status {
        200 => serde_json::from_str(&text).map_err(|e| (status, format!("{e}: {text}"))),
        _ => Err((status, text)),
    }
}

/// All of them. They end with this.
pub(crate) struct World {
    pub(crate) servers: Vec<Server>,
    url: String,
    _workers: Vec<Process>,
    _frontend: Process,
    _found: TempDir,
}

impl World {
    /// With a frontend that routes in some way.
    pub(crate) fn start(router: &str) -> World {
        let found = tempfile::tempdir().expect("a directory");
        let servers = vec![Server::start(), Server::start()];
        let start = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ladder-dynamo"));
            command
                .args(args)
                .env("DYN_DISCOVERY_BACKEND", "file")
                .env("DYN_FILE_KV", found.path());
            command.env("DYN_REQUEST_PLANE", "tcp").stderr(Stdio::null()).stdout(Stdio::null());
            for host in ["DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST"]
            {
                command.env(host, "127.0.0.1");
            }
            Process(command.spawn().expect("a process"))
        };
        let model = root().join("models/weights/target");
        let model = model.to_str().expect("a path");
        let worker =
            |server: &Server| start(&["worker", "--server", &server.url, "--model", model]);
        let workers = servers.iter().map(worker).collect();
        let port = free_port().to_string();
        let frontend = start(&["frontend", "--port", &port, "--router", router]);
        let url = format!("http://127.0.0.1:{port}");
        let world = World { servers, url, _workers: workers, _frontend: frontend, _found: found };
        // Until both have answered something.
        world.wait_until("both workers are found", |world| {
            let body = json!({"model": MODEL, "prompt": "Once", "max_tokens": 1});
            let _ = world.post("/v1/completions", &body);
            world.servers.iter().all(|server| server.metric("vllm:generation_tokens_total") > 0.0)
        });
        world
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, (u16, String)> {
        post(&self.url, path, body)
    }

    /// An answer that is read as it comes.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> impl Read + use<> {
        let answer =
            agent().post(format!("{}{path}", self.url)).send_json(body).expect("an answer");
        assert_eq!(answer.status().as_u16(), 200);
        answer.into_body().into_reader()
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&World) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < FOUND_IN, "it takes too long until {what}");
            sleep(Duration::from_millis(100));
        }
    }
}

/// A port that is free now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
