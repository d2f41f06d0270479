//! Clients that go, stall and are cut off: nobody else notices, and nothing stays behind.

use super::server::{STORY, Server, question, read_some};
use serde_json::json;
use std::io::Read;
use std::time::Duration;

/// Text of four hundred tokens and more: as long as the embedded model's context has room for.
fn long(stream: bool) -> serde_json::Value {
    json!({"prompt": STORY, "max_tokens": 480, "ignore_eos": true, "stream": stream, "n": 4})
}

#[test]
fn a_client_that_goes_frees_its_blocks() {
    let server = Server::start(|_| {}, &[]);
    for stream in [true, false] {
        let mut connection = server.send("/v1/completions", &long(stream));
        server.wait_until("it runs", |server| server.engine.state().running > 0);
        if stream {
            read_some(&mut connection, 200);
        }
        let cancelled = server.engine.state().counters.cancelled;
        drop(connection);
        server.wait_until_idle();
        let counters = server.engine.state().counters;
        assert_eq!(counters.cancelled, cancelled + 4, "{counters:?}");
        assert_eq!(counters.full_length, 0, "it ran to its end: {counters:?}");
    }
    let metrics = server.get("/metrics").text;
    let aborted = "finished_reason=\"abort\"} 8";
    assert!(metrics.contains(aborted), "{metrics}");
}

#[test]
fn an_answer_that_a_stop_string_ended_is_stopped_and_not_cancelled() {
    let server = Server::start(|_| {}, &[]);
    let body = json!({"prompt": STORY, "max_tokens": 400, "ignore_eos": true, "stop": " "});
    let answer = server.complete(body).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
    server.wait_until("it is counted", |server| {
        let counters = server.engine.state().counters;
        counters.stopped + counters.cancelled > 0
    });
    let counters = server.engine.state().counters;
    assert_eq!((counters.stopped, counters.cancelled), (1, 0), "{counters:?}");
}

#[test]
fn a_client_that_goes_while_it_waits_is_forgotten() {
    for stream in [true, false] {
        let server = Server::start(|options| options.running = 1, &[]);
        let first = server.send("/v1/completions", &long(true));
        let asks = json!({"messages": question(), "stream": stream});
        let second = server.send("/v1/chat/completions", &asks);
        server.wait_until("both are there", |server| server.engine.state().counters.submitted >= 5);
        drop(second);
        drop(first);
        server.wait_until_idle();
    }
}

#[test]
fn a_client_that_never_reads_holds_up_nobody() {
    let server = Server::start(
        |options| {
            options.events = 16;
            options.patience = Duration::from_millis(500);
        },
        &[],
    );
    // Log-probabilities make the events so large that no socket swallows them all.
    let greedy = json!({
        "prompt": STORY, "max_tokens": 480, "ignore_eos": true, "stream": true, "n": 16,
        "logprobs": 20, "return_token_ids": true,
    });
    let stalled: Vec<_> = (0..2).map(|_| server.send("/v1/completions", &greedy)).collect();
    server.wait_until("they stall", |server| server.engine.state().stalled > 0);
    let answer = server.complete(json!({"prompt": STORY, "max_tokens": 20}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    // Nobody keeps a place for ever.
    server.wait_until_idle();
    drop(stalled);
}

#[test]
fn a_server_that_ends_finishes_what_it_has_and_takes_no_more() {
    let mut server = Server::start(|_| {}, &[]);
    let mut under_way = server.send("/v1/completions", &long(true));
    read_some(&mut under_way, 100);
    let mut watching = std::net::TcpStream::connect(server.address).unwrap();
    std::io::Write::write_all(&mut watching, b"GET /state HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    read_some(&mut watching, 100);
    server.end();
    server.wait_until("it drains", |server| server.app.is_draining());
    let mut rest = String::new();
    under_way.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(server.engine.state().counters.full_length, 4);
    // The stream of states has no end of its own, and says why it ends.
    watching.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut states = String::new();
    watching.read_to_string(&mut states).unwrap();
    assert!(states.contains("\"draining\":true"), "{states}");
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn half_a_request_holds_up_nobody() {
    let server = Server::shared();
    let mut half = std::net::TcpStream::connect(server.address).unwrap();
    std::io::Write::write_all(&mut half, b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-")
        .unwrap();
    assert_eq!(server.get("/health").status, 200);
}
