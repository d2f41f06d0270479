//! Pages of others: what their browsers are told.

use super::server::{STORY, Server};
use serde_json::json;
use serving::http::{Hosts, Keys, Origin};
use std::io::{Read, Write};
use std::net::TcpStream;

fn server(origins: &[&str]) -> Server {
    let origins: Vec<Origin> = origins.iter().map(|origin| origin.parse().unwrap()).collect();
    let keys = Keys::new(["ada"]).unwrap();
    Server::start_with(|_| {}, |app| app.with_keys(keys).with_origins(origins))
}

/// The head of what is said to a request from a page, and what comes after it.
fn said(server: &Server, request: &str, more: &[&str], body: &str) -> (String, String) {
    said_to(server, "here", request, more, body)
}

/// The same of a server that is called so.
fn said_to(
    server: &Server,
    host: &str,
    request: &str,
    more: &[&str],
    body: &str,
) -> (String, String) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let more: String = more.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: {host}\r\norigin: https://page.example\r\nconnection: close\r\n\
         content-length: {length}\r\n{more}\r\n{body}"
    )
    .unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let (head, rest) = said.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), rest.to_owned())
}

const ASKS: [&str; 2] = [
    "access-control-request-method: POST",
    "access-control-request-headers: authorization,content-type,x-stainless-os",
];
const POST: [&str; 2] = ["authorization: Bearer ada", "content-type: application/json"];

#[test]
fn a_page_from_an_origin_that_is_named_may_ask() {
    for (origins, allowed) in [
        (&["https://other.example", "https://page.example"][..], "https://page.example"),
        (&["*"], "*"),
    ] {
        let server = server(origins);
        let allowed = format!("access-control-allow-origin: {allowed}");
        let (head, _) = said(&server, "OPTIONS /v1/chat/completions", &ASKS, "");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        for line in [allowed.as_str(), "authorization,content-type,x-stainless-os", "get,post"] {
            assert!(head.contains(line), "{line} is not in {head}");
        }
        // Answers, refusals and streams all say so.
        let body = json!({"prompt": STORY, "max_tokens": 2, "stream": true}).to_string();
        let (head, events) = said(&server, "POST /v1/completions", &POST, &body);
        assert!(head.contains(&allowed) && events.contains("[DONE]"), "{head} {events}");
        for (request, status) in [("GET /v1/models", "401"), ("GET /health", "200")] {
            let (head, _) = said(&server, request, &[], "");
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
            assert!(head.contains(&allowed), "{head}");
        }
        let (head, _) = said(&server, "POST /v1/completions", &POST, "{");
        assert!(head.starts_with("http/1.1 400") && head.contains(&allowed), "{head}");
    }
}

#[test]
fn any_other_page_may_not() {
    let (named, closed) = (server(&["https://other.example"]), server(&[]));
    for (server, status) in [(&named, "200"), (&closed, "401")] {
        let (head, _) = said(server, "OPTIONS /v1/completions", &ASKS, "");
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
        assert!(!head.contains("access-control-allow-origin"), "{head}");
        let (head, _) = said(server, "GET /health", &[], "");
        assert!(!head.contains("access-control-allow-origin"), "{head}");
    }
}

/// It has had its name lead to this machine: for the browser, the server is where it came from.
#[test]
fn nor_may_a_page_that_has_its_name_lead_here() {
    let open = |hosts| Server::start_with(|_| {}, |app| app.with_hosts(hosts));
    let body = json!({"prompt": STORY, "max_tokens": 2}).to_string();
    let post = ["content-type: application/json"];
    let (near, far) = ("localhost:8000", "page.example:8000");
    let server = open(Hosts::near("127.0.0.1", &[]));
    for (request, more, body) in [
        ("POST /v1/completions", &post[..], body.as_str()),
        ("GET /v1/models", &[], ""),
        ("GET /metrics", &[], ""),
    ] {
        let (head, said) = said_to(&server, far, request, more, body);
        assert!(head.starts_with("http/1.1 403"), "{head}");
        assert!(said.contains("the host is page.example:8000"), "{said}");
        let (head, _) = said_to(&server, near, request, more, body);
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
    let page = "https://page.example".parse().unwrap();
    for hosts in [Hosts::near("127.0.0.1", &[page]), Hosts::Any] {
        let (head, _) = said_to(&open(hosts), far, "POST /v1/completions", &post, &body);
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
}

#[test]
fn a_request_has_a_name_that_its_answer_has_too() {
    let server = server(&["https://page.example"]);
    let name = |request: &str, more: &[&str]| {
        let (head, _) = said(&server, request, more, "{}");
        assert!(head.contains("access-control-expose-headers: retry-after,x-request-id"), "{head}");
        let named = head.lines().filter_map(|line| line.strip_prefix("x-request-id: "));
        let names: Vec<String> = named.map(str::to_owned).collect();
        assert_eq!(names.len(), 1, "{head}");
        names[0].clone()
    };
    let sent = [&POST[..], &["x-request-id: 7f3c-2a"]].concat();
    for request in ["GET /v1/models", "POST /v1/completions", "POST /nowhere"] {
        assert_eq!(name(request, &sent), "7f3c-2a");
        let (one, other) = (name(request, &[]), name(request, &POST));
        assert!(one.starts_with("req_") && other.starts_with("req_") && one != other);
    }
}
