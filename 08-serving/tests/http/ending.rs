//! A server that is told to end.

use super::server::{STORY, Server};
use serde_json::{Value, json};
use serving::engine::EngineOptions;
use serving::engine::policy::{Budget, Continuous, Plan, Policy, State};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lets a pass take a hundredth of a second and more: nobody writes 480 tokens while a test looks on.
struct Slow;

impl Policy for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn schedule(&self, state: &State, budget: Budget) -> Plan {
        std::thread::sleep(Duration::from_millis(10));
        Continuous.schedule(state, budget)
    }
}

/// A slow server in which so many run, and which waits as long for them when it ends.
fn slow(running: usize, drain_in: Duration) -> Server {
    let change = move |options: &mut EngineOptions| {
        (options.running, options.draft, options.rows) = (running, 0, 16);
        options.policy = Arc::new(Slow);
    };
    Server::start_with(change, |app| app.with_drain_in(drain_in))
}

#[test]
fn whoever_has_not_come_to_run_by_then_may_ask_somebody_else() {
    let mut server = slow(1, Duration::from_millis(50));
    let body = |stream: bool| json!({"prompt": STORY, "max_tokens": 480, "ignore_eos": true, "stream": stream});
    let _runs = server.send("/v1/completions", &body(true));
    server.wait_until("it runs", |server| server.engine.state().running == 1);
    let waits = [false, true].map(|stream| server.send("/v1/completions", &body(stream)));
    server.wait_until("two wait", |server| server.engine.state().counters.submitted == 3);
    server.end();
    let [whole, stream] = waits.map(|stream| {
        BufReader::new(stream).lines().map_while(Result::ok).collect::<Vec<String>>()
    });
    for said in [whole, stream] {
        assert!(said[0].contains("503"), "{said:?}");
        assert!(said.iter().any(|line| line == "retry-after: 1"), "{said:?}");
        let why = said.last().unwrap();
        assert!(why.contains("service_unavailable_error"), "{said:?}");
        assert!(why.contains("the server is shutting down"), "no answer's time was up: {said:?}");
    }
}

#[test]
fn answers_that_are_not_done_in_time_end_where_they_are() {
    let drain_in = Duration::from_millis(50);
    let mut server = slow(4, drain_in);
    let body = |stream: bool| json!({"prompt": STORY, "max_tokens": 480, "ignore_eos": true, "stream": stream, "n": 2});
    let stream = server.send("/v1/completions", &body(true));
    let whole = server.send("/v1/completions", &body(false));
    server.wait_until("all four write", |server| {
        let state = server.engine.state();
        state.requests.iter().filter(|row| row.generated_tokens > 0).count() == 4
    });
    let waits = server.send("/v1/completions", &body(false));
    server.wait_until("one waits", |server| server.engine.state().counters.submitted == 6);
    let begun = Instant::now();
    server.end();
    let lines = |stream| BufReader::new(stream).lines().map_while(Result::ok);
    let events: Vec<String> =
        lines(stream).filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).collect();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let events = events[..events.len() - 1].iter();
    let events: Vec<Value> = events.map(|data| serde_json::from_str(data).unwrap()).collect();
    let reasons = events.iter().map(|event| &event["choices"][0]["finish_reason"]);
    let reasons: Vec<&Value> = reasons.filter(|reason| !reason.is_null()).collect();
    assert_eq!(reasons, vec![&json!("length"); 2]);
    let whole: Vec<String> = lines(whole).collect();
    assert!(whole[0].ends_with("200 OK"), "{whole:?}");
    let answer: Value = serde_json::from_str(whole.last().unwrap()).unwrap();
    assert!(
        (1..2 * 480).contains(&answer["usage"]["completion_tokens"].as_u64().unwrap()),
        "{answer}"
    );
    let waits: Vec<String> = lines(waits).collect();
    assert!(waits[0].contains("503"), "not one of its answers has begun: {waits:?}");
    server.wait_until("it has ended", |server| server.has_ended());
    assert!(begun.elapsed() >= drain_in, "it waits as long as it is told to");
}

#[test]
fn texts_to_embed_are_finished_once_some_are_taken() {
    // Two of the twelve are in the engine at a time.
    let change = |options: &mut serving::engine::EngineOptions| {
        (options.running, options.queue, options.rows) = (2, 16, 16);
    };
    let mut server = Server::start(change, &[]);
    let inputs: Vec<String> = (0..12).map(|i| format!("{i} {STORY}")).collect();
    let asked = server.send("/v1/embeddings", &json!({"input": inputs}));
    server.wait_until("some are there", |server| server.engine.state().counters.submitted >= 2);
    server.end();
    let said: Vec<String> = BufReader::new(asked).lines().map_while(Result::ok).collect();
    assert!(said[0].ends_with("200 OK"), "{said:?}");
    let answer: Value = serde_json::from_str(said.last().unwrap()).unwrap();
    assert_eq!(answer["data"].as_array().unwrap().len(), 12);
    server.wait_until("it has ended", |server| server.has_ended());
    assert!(server.engine.is_drained());
}
