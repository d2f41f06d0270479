//! `GET /kv-events`: what a router reads.

use crate::server::Server;
use serde_json::{Value, json};
use serving::http::Keys;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Events, as they come.
struct Events(BufReader<TcpStream>);

impl Events {
    fn of(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET /kv-events HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
        Events(BufReader::new(stream))
    }

    /// The next; none at the end.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

fn telling() -> Server {
    Server::start_with(|_| {}, |app| app.with_kv_events(true))
}

/// Asks something of 40 tokens, and gives them.
fn ask(server: &Server) -> Vec<u64> {
    let tokens: Vec<u64> = (100..140).collect();
    server.text(json!({"prompt": tokens, "max_tokens": 1, "temperature": 0}));
    tokens
}

/// What is answered to one more listener, and for how long he listens.
fn listen(server: &Server) -> (String, Events) {
    let mut events = Events::of(server);
    let mut status = String::new();
    events.0.read_line(&mut status).unwrap();
    (status, events)
}

#[test]
fn as_many_listen_as_may_and_who_goes_makes_room() {
    let server = telling();
    let mut listening: Vec<_> = (0..32).map(|_| listen(&server)).collect();
    assert!(listening.iter().all(|(status, _)| status.starts_with("HTTP/1.1 200")));
    assert!(listen(&server).0.starts_with("HTTP/1.1 429"));
    // Whether somebody has gone is seen when he is told something.
    listening.pop();
    let asked = Instant::now();
    while !listen(&server).0.starts_with("HTTP/1.1 200") {
        assert!(asked.elapsed() < Duration::from_secs(60), "nobody has gone");
        ask(&server);
    }
}

#[test]
fn routers_are_told_what_is_known_and_what_becomes_known() {
    let mut server = telling();
    let mut early = Events::of(&server);
    let begin = early.next().unwrap();
    let blocks = server.engine.state().blocks.total;
    assert_eq!(begin, json!({"type": "begin", "block_tokens": 16, "blocks": blocks}));
    let tokens = ask(&server);
    let stored = early.next().unwrap();
    assert_eq!(stored["type"], "stored");
    assert_eq!(stored["parent"], Value::Null);
    assert_eq!(stored["tokens"].as_array().unwrap().len(), 32);
    assert_eq!(stored["tokens"], json!(tokens[..32]));
    let names: Vec<&str> =
        stored["blocks"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
    assert!(names.len() == 2 && names.iter().all(|name| name.len() == 64), "{names:?}");
    // What goes on from there names what it goes on from.
    let longer: Vec<u64> = (100..160).collect();
    server.text(json!({"prompt": longer, "max_tokens": 1, "temperature": 0}));
    let more = early.next().unwrap();
    assert_eq!((&more["parent"], &more["tokens"]), (&json!(names[1]), &json!(longer[32..48])));
    // Who comes late is told the same.
    let mut late = Events::of(&server);
    assert_eq!(late.next().unwrap(), begin);
    let all = late.next().unwrap();
    assert_eq!((&all["parent"], &all["tokens"]), (&Value::Null, &json!(longer[..48])));
    // What is under a salt is not told of. What comes next is about what is asked after it.
    let others: Vec<u64> = (200..240).collect();
    let salted = json!({"prompt": others, "max_tokens": 1, "cache_salt": "ada"});
    server.text(salted);
    server.text(json!({"prompt": (300..320).collect::<Vec<u64>>(), "max_tokens": 1}));
    assert_eq!(late.next().unwrap()["tokens"], json!((300..316).collect::<Vec<u64>>()));
    // Both end with the server, which does not wait for them.
    server.end();
    while early.next().is_some() {}
    while late.next().is_some() {}
}

#[test]
fn only_a_server_that_is_told_to_tells() {
    let server = Server::shared();
    server.get("/kv-events").is_refused(404, None);
}

#[test]
fn whoever_may_not_ask_is_told_nothing_and_what_keys_say_is_nobody_elses() {
    let keys = Keys::new(["ada-s-key"]).unwrap();
    let mut server = Server::start_with(|_| {}, |app| app.with_keys(keys).with_kv_events(true));
    server.get("/kv-events").is_refused(401, None);
    let key = ("authorization", "Bearer ada-s-key");
    let body = json!({"prompt": (100..140).collect::<Vec<u64>>(), "max_tokens": 1}).to_string();
    let headers = [("content-type", "application/json"), key];
    assert_eq!(server.post_with("/v1/completions", &body, &headers).status, 200);
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "authorization: Bearer ada-s-key\r\nhost: here";
    write!(stream, "GET /kv-events HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut data = lines.filter(|line| line.starts_with("data: "));
    let first = data.next().unwrap();
    assert!(first.contains("begin"), "{first}");
    // Neither what was there before nor what comes now.
    let body = json!({"prompt": (200..240).collect::<Vec<u64>>(), "max_tokens": 1}).to_string();
    assert_eq!(server.post_with("/v1/completions", &body, &headers).status, 200);
    std::thread::sleep(Duration::from_millis(200));
    server.end();
    assert_eq!(data.next(), None);
}
