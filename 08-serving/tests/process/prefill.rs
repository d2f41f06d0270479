//! `ladder serve --prefill-worker` beside `ladder serve --prefill-at`: killed and there again, and no token changes.

use crate::server::Server;
use serde_json::Value;

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
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(writer.ask(&prompt("Cleo")).unwrap().tokens, expected("Cleo"));
    assert!(brought(&writer) > first);
    writer.logs("reads prompts again");
}
