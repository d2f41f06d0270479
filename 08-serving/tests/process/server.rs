//! A `ladder serve` in a process of its own.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A `ladder serve` of its own process. It does not outlive the test, even one that fails.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    agent: ureq::Agent,
    /// The line in which it says that it listens.
    pub(crate) listens: String,
    /// What it said before.
    pub(crate) said: Vec<String>,
    /// And since then.
    log: Arc<Mutex<Vec<String>>>,
}

/// What came of a prompt.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) tokens: Value,
    pub(crate) cached: u64,
}

impl Server {
    pub(crate) fn start(more: &[&str]) -> Server {
        Server::start_in(more, &[])
    }

    /// The same with variables of the environment.
    pub(crate) fn start_in(more: &[&str], variables: &[(&str, &str)]) -> Server {
        Server::start_by(Command::new(env!("CARGO_BIN_EXE_ladder")), more, variables)
    }

    /// The same from a shell that says something before, such as `ulimit -n 256`.
    pub(crate) fn start_in_shell(before: &str, more: &[&str]) -> Server {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_ladder")]);
        Server::start_by(shell, more, &[])
    }

    fn start_by(mut command: Command, more: &[&str], variables: &[(&str, &str)]) -> Server {
        let port: &[&str] = if more.contains(&"--port") { &[] } else { &["--port", "0"] };
        command.args(["serve", "--device", "cpu"]).args(port).args(more).env("NO_COLOR", "1");
        command.env_remove("HF_HUB_OFFLINE").env_remove("RUST_LOG").envs(variables.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let (url, listens) = loop {
            let Some(line) = lines.next() else { panic!("it ended too early: {said:?}") };
            let line = line.unwrap();
            if let Some(at) = line.find("http://127.0.0.1:") {
                let url = line[at..].split_whitespace().next().unwrap().to_owned();
                break (url, line);
            }
            said.push(line);
        };
        // A full pipe would stop it.
        let log = Arc::new(Mutex::new(Vec::new()));
        let later = log.clone();
        std::thread::spawn(move || lines.for_each(|line| later.lock().unwrap().extend(line.ok())));
        let agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(120)));
        let agent = agent.http_status_as_error(false);
        Server { child, url, agent: agent.build().into(), listens, said, log }
    }

    /// Waits for a line of its log.
    #[track_caller]
    pub(crate) fn logs(&self, words: &str) {
        let begun = Instant::now();
        while !self.log.lock().unwrap().iter().any(|line| line.contains(words)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no {words}: {:?}", self.log);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it says to a GET.
    pub(crate) fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.get_text(path)).unwrap()
    }

    /// The same, where it is not JSON.
    pub(crate) fn get_text(&self, path: &str) -> String {
        let mut answer = self.agent.get(format!("{}{path}", self.url)).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    }

    /// What it says to a POST.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.send(path, body).unwrap()
    }

    /// Asks for so many tokens, calls the request so, and goes away once something has been said, or all.
    pub(crate) fn ask_as(&self, id: &str, tokens: usize, leaves: bool) {
        // So many that no machine is done with all of them before it is left.
        let n = if leaves { 64 } else { 1 };
        let body = json!({
            "prompt": "Once", "max_tokens": tokens, "ignore_eos": true, "stream": leaves, "n": n,
        });
        let request = self.agent.post(format!("{}/v1/completions", self.url));
        let request = request.header("content-type", "application/json").header("x-request-id", id);
        let mut answer = request.send(body.to_string()).unwrap();
        match leaves {
            true => drop(answer),
            false => drop(answer.body_mut().read_to_string().unwrap()),
        }
    }

    /// What it says to a POST that it refuses.
    pub(crate) fn post_for_error(&self, path: &str, body: &Value) -> String {
        let answer = self.post(path, body);
        answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// None if it does not answer any more.
    fn send(&self, path: &str, body: &Value) -> Option<Value> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json");
        let text = request.send(body.to_string()).ok()?.body_mut().read_to_string().ok()?;
        serde_json::from_str(&text).ok()
    }

    /// None if it does not answer any more.
    pub(crate) fn ask(&self, prompt: &str) -> Option<Answer> {
        let body =
            json!({"prompt": prompt, "max_tokens": 24, "temperature": 0, "return_token_ids": true});
        let answer = self.send("/v1/completions", &body)?;
        Some(Answer {
            tokens: answer["choices"][0]["token_ids"].clone(),
            cached: answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64()?,
        })
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(mut self) {
        self.signal("-TERM");
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL; it may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
