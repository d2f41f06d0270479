//! API keys: no path around them.

use super::server::{STORY, Server, read_some};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn every_path_but_those_that_say_it_is_alive_wants_a_key() {
    let server = Server::start(|_| {}, &["ada", "bob"]);
    let document = {
        let answer = server.get_with("/openapi.json", &[("authorization", "Bearer ada")]);
        answer.json()
    };
    let documented = document["paths"].as_object().unwrap().keys().cloned();
    let others = [
        "/",
        "/page.js",
        "/page.css",
        "/openapi.json",
        "/nothing",
        "//health",
        "/health/",
        "/health/x",
        "/%68ealth",
        "//ping",
        "/ping/",
    ];
    let open = ["/health", "/ping"];
    for path in documented.chain(others.map(str::to_owned)).filter(|path| !open.contains(&&**path))
    {
        let path = path.replace("{model}", "target");
        for key in [None, Some("Bearer eve"), Some("Bearer"), Some("Basic YWRhOg=="), Some("ada")] {
            let headers: Vec<(&str, &str)> =
                key.map(|key| ("authorization", key)).into_iter().collect();
            let got = server.get_with(&path, &headers);
            got.is_refused(401, None);
            let posted = server.post_with(&path, "{}", &[&headers[..], &[JSON]].concat());
            posted.is_refused(401, None);
        }
    }
    for path in open {
        assert_eq!(server.get(path).status, 200);
    }
    assert_eq!(server.post_with("/ping", "", &[]).status, 200);
    for key in ["Bearer ada", "Bearer bob", "Basic eDphZGE="] {
        assert_eq!(server.get_with("/v1/models", &[("authorization", key)]).status, 200, "{key}");
    }
}

#[test]
fn a_salt_is_bound_to_its_key() {
    let server = Server::start(|_| {}, &["ada", "bob"]);
    let cached = |key: &str, salt: Option<&str>| -> u64 {
        let body = json!({"prompt": STORY.repeat(8), "max_tokens": 1, "cache_salt": salt});
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), JSON];
        let answer = server.post_with("/v1/completions", &body.to_string(), &headers);
        let usage: Value = answer.json()["usage"].clone();
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!((cached("ada", None), cached("bob", None)), (0, 0));
    assert_eq!((cached("ada", Some("s")), cached("bob", Some("s"))), (0, 0));
    assert!(cached("ada", None) > 0 && cached("bob", None) > 0);
    assert!(cached("ada", Some("s")) > 0 && cached("bob", Some("s")) > 0);
}

#[test]
fn whoever_is_refused_before_his_body_is_read_is_told_that_the_connection_ends() {
    let server = Server::start(|_| {}, &["ada"]);
    let mut refused = server.send("/v1/completions", &json!({"prompt": STORY}));
    let mut said = String::new();
    refused.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 401") && said.contains("connection: close"), "{said}");
    // Whose body was read may ask again.
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "host: here\r\nauthorization: Bearer ada\r\ncontent-type: application/json";
    let wrong = format!("POST /tokenize HTTP/1.1\r\n{head}\r\ncontent-length: 2\r\n\r\n{{}}");
    for _ in 0..2 {
        stream.write_all(wrong.as_bytes()).unwrap();
        let said = String::from_utf8(read_some(&mut stream, 200)).unwrap();
        assert!(said.starts_with("HTTP/1.1 400") && !said.contains("connection: close"), "{said}");
        read_some(&mut stream, answer_bytes(&said) - 200);
    }
}

/// Bytes of an answer whose beginning is there.
fn answer_bytes(beginning: &str) -> usize {
    let (head, _) = beginning.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    head.len() + 4 + length.parse::<usize>().unwrap()
}
