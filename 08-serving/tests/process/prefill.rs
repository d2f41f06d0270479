//! `ladder serve --prefill-worker` beside `ladder serve --prefill-at`: killed and there again, and no token changes.

use crate::server::Server;
use embedded_models::TARGET;
use serde_json::Value;
use std::fs::{File, write};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Tokens of prompts that another server has read for this one.
fn brought(server: &Server) -> f64 {
    let metrics = server.get_text("/metrics");
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with("ladder:kv_received_tokens_total{")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_worker_may_be_killed_and_come_back() {
    let prompt = |name: &str| format!("{name} went to the market and met a friend. ").repeat(12);
    let plain = Server::start(&[]);
    let expected = |name: &str| -> Value { plain.ask(&prompt(name)).unwrap().tokens };
    let keyed = [("LADDER_API_KEY", "sesame")];
    let worker = Server::start_in(&["--prefill-worker"], &keyed);
    let port = worker.url.rsplit(':').next().unwrap().to_owned();
    let at = ["--prefill-at", worker.url.as_str()];
    let writer = Server::start_in(&at, &[("LADDER_PREFILL_KEY", "sesame")]);
    assert_eq!(writer.ask(&prompt("Ada")).unwrap().tokens, expected("Ada"));
    let first = brought(&writer);
    assert!(first >= 100.0, "{first}");
    worker.signal("-KILL");
    assert_eq!(writer.ask(&prompt("Ben")).unwrap().tokens, expected("Ben"));
    assert_eq!(brought(&writer), first);
    writer.logs("prompts are read here");
    drop(worker);
    let _worker = Server::start_in(&["--prefill-worker", "--port", &port], &keyed);
    // It is asked again five seconds later.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(writer.ask(&prompt("Cleo")).unwrap().tokens, expected("Cleo"));
    assert!(brought(&writer) > first);
    writer.logs("reads prompts again");
}

#[test]
fn a_worker_that_is_stopped_costs_no_answer() {
    let prompt = "Ada went to the market and met a friend. ".repeat(12);
    let worker = Server::start(&["--prefill-worker"]);
    let writer = Server::start(&["--prefill-at", &worker.url, "--timeout", "8"]);
    worker.signal("-STOP");
    let answer = writer.ask(&prompt).unwrap();
    writer.logs("prompts are read here");
    assert_eq!(brought(&writer), 0.0);
    assert_eq!(answer.tokens, Server::start(&[]).ask(&prompt).unwrap().tokens);
}

/// A copy of the target, as one that was fetched so many seconds ago.
fn write_copy(directory: &Path, seconds: u64) {
    write(directory.join("config.json"), TARGET.config).unwrap();
    write(directory.join("tokenizer.json"), TARGET.tokenizer).unwrap();
    let weights = directory.join("model.safetensors");
    write(&weights, TARGET.weights).unwrap();
    let time = SystemTime::now() - Duration::from_secs(seconds);
    File::options().write(true).open(&weights).unwrap().set_modified(time).unwrap();
}

#[test]
fn copies_of_a_model_are_one_model_whenever_they_were_fetched() {
    let [here, there, kept] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let path = |directory: &tempfile::TempDir| directory.path().to_str().unwrap().to_owned();
    let prompt = "Ada went to the market and met a friend. ".repeat(12);
    write_copy(there.path(), 1_000);
    write_copy(here.path(), 2_000);
    let worker = Server::start(&["--prefill-worker", "--model", &path(&there)]);
    let kept = ["--model", &path(&here), "--kv-dir", &path(&kept)];
    let writer = Server::start(&[&kept[..], &["--prefill-at", &worker.url]].concat());
    let answer = writer.ask(&prompt).unwrap();
    assert!(brought(&writer) >= 100.0 && answer.cached == 0, "{answer:?}");
    writer.terminate();
    // Fetched once more, it finds its file of keys and values.
    write_copy(here.path(), 3_000);
    let again = Server::start(&kept).ask(&prompt).unwrap();
    assert!(again.cached >= 100 && again.tokens == answer.tokens, "{again:?}");
}
