//! Small answers: models, tokens, metrics, the document, the page.

use super::server::{STORY, Server};
use serde_json::{Value, json};
use serving::engine::EngineRequest;
use serving::engine::policy::{Budget, Plan, Policy, State};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn models_version_and_health() {
    let server = Server::shared();
    let models = server.get("/v1/models").json();
    assert_eq!(models["data"][0]["id"], "target");
    assert_eq!(models["data"][0]["max_model_len"], 512);
    assert_eq!(server.get("/v1/models/target").json(), models["data"][0]);
    assert_eq!(server.get("/version").json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(pings(server), [200; 3]);
}

/// What it says to whoever calls it alive by another name, whatever he sends.
fn pings(server: &Server) -> [u16; 3] {
    let posted = ["", "{}"].map(|body| server.post_with("/ping", body, &[]).status);
    [server.get("/ping").status, posted[0], posted[1]]
}

#[test]
fn the_last_token_of_a_text_is_one_more_than_max_model_len() {
    let server = Server::shared();
    let most = server.get("/v1/models").json()["data"][0]["max_model_len"].as_u64().unwrap();
    let ask = |tokens: u64| {
        let prompt = vec![7; most as usize - 1];
        server.complete(json!({"prompt": prompt, "max_tokens": tokens, "ignore_eos": true}))
    };
    assert_eq!(ask(2).json()["usage"]["total_tokens"], most + 1);
    ask(3).is_refused(400, Some("max_tokens"));
}

#[test]
fn a_server_whose_engine_has_ended_is_not_healthy() {
    let server = Server::start(|_| {}, &[]);
    // As when its device fails: from the engine's side, not by a signal.
    server.engine.drain();
    server.wait_until("the engine has ended", |server| server.engine.is_drained());
    assert_eq!(server.get("/health").status, 503);
    assert_eq!(pings(&server), [503; 3]);
}

/// Plans for somebody who is not there: an invariant that does not hold.
struct Broken;

impl Policy for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn schedule(&self, _: &State, _: Budget) -> Plan {
        Plan { preempt: vec![u64::MAX], ..Plan::default() }
    }
}

#[test]
fn an_engine_that_is_gone_is_not_said_to_come_back() {
    let server = Server::start(|options| options.policy = Arc::new(Broken), &[]);
    server.wait_until("the engine has ended", |server| server.engine.is_drained());
    for (path, body) in
        [("/v1/completions", json!({"prompt": STORY})), ("/v1/embeddings", json!({"input": STORY}))]
    {
        let message = server.post(path, &body).is_refused(500, None);
        assert_eq!(message, "the engine is gone");
    }
}

#[test]
fn tokens_of_a_text_and_back() {
    let server = Server::shared();
    for text in [STORY, "", "🦊 <|end|>", "a\u{0}b"] {
        let tokens = server.post("/tokenize", &json!({"prompt": text, "return_token_strs": true}));
        let tokens = tokens.json();
        let list = tokens["tokens"].as_array().unwrap();
        assert_eq!(tokens["count"], list.len());
        assert_eq!(tokens["token_strs"].as_array().unwrap().len(), list.len());
        let back = server.post("/detokenize", &json!({"tokens": list})).json();
        assert_eq!(back["prompt"], text);
    }
    server.post("/tokenize", &json!({})).is_refused(400, Some("prompt"));
    server.post("/tokenize", &json!({"prompt": "a", "x": 1})).is_refused(400, Some("x"));
    server.post("/detokenize", &json!({"tokens": [5_000]})).is_refused(400, Some("tokens"));
    server.post("/detokenize", &json!({"tokens": "a"})).is_refused(400, Some("tokens"));
}

#[test]
fn metrics_have_vllm_s_names_and_count() {
    // Without guesses each token comes with a pass of its own.
    let server = Server::start(|options| options.draft = 0, &[]);
    let prompt = STORY.repeat(6);
    for _ in 0..3 {
        let answer =
            server.complete(json!({"prompt": prompt, "max_tokens": 12, "ignore_eos": true}));
        assert_eq!(answer.status, 200);
    }
    server.wait_until_idle();
    let text = server.get("/metrics").text;
    let value = |name: &str| {
        let found = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
        let line = found.unwrap_or_else(|| panic!("no {name} in {text}"));
        assert!(line.contains("model_name=\"target\"") && line.contains("engine=\"0\""), "{line}");
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(value("vllm:generation_tokens_total"), 36.0);
    assert!(value("vllm:prompt_tokens_total") > 100.0);
    assert!(value("vllm:prefix_cache_queries_total") > value("vllm:prefix_cache_hits_total"));
    assert!(value("vllm:prefix_cache_hits_total") > 0.0);
    for name in ["queries", "hits"] {
        assert_eq!(value(&format!("vllm:external_prefix_cache_{name}_total")), 0.0, "no tiers");
    }
    assert_eq!(value("vllm:num_requests_running"), 0.0);
    assert_eq!(value("vllm:num_requests_waiting"), 0.0);
    assert_eq!(value("vllm:kv_cache_usage_perc"), 0.0);
    assert_eq!(value("vllm:num_preemptions_total"), 0.0);
    assert!(text.contains("finished_reason=\"length\"} 3"), "{text}");
    for (histogram, count) in [
        ("time_to_first_token", 3.0),
        ("inter_token_latency", 33.0),
        ("e2e_request_latency", 3.0),
        ("request_queue_time", 3.0),
        ("request_prefill_time", 3.0),
        ("request_decode_time", 3.0),
        ("request_time_per_output_token", 3.0),
    ] {
        assert_eq!(value(&format!("vllm:{histogram}_seconds_count")), count, "{histogram}");
        assert!(text.contains(&format!("vllm:{histogram}_seconds_bucket")));
    }
    for length in ["prompt", "generation"] {
        let name = format!("vllm:request_{length}_tokens");
        assert_eq!(value(&format!("{name}_count")), 3.0, "{name}");
        assert_eq!(value(&format!("{name}_sum")), value(&format!("vllm:{length}_tokens_total")));
        assert!(text.contains(&format!("{name}_bucket")), "{text}");
    }
    assert_eq!(value("vllm:request_max_num_generation_tokens_sum"), 36.0);
    assert_eq!(value("vllm:cache_config_info"), 1.0);
    let blocks = server.engine.state().blocks;
    let configured = format!("block_size=\"16\",num_gpu_blocks=\"{}\"", blocks.total);
    assert!(text.contains(&configured), "{configured} is not in {text}");
    assert!(value("vllm:iteration_tokens_total_sum") > 0.0);
    for name in ["drafts", "draft_tokens", "accepted_tokens"] {
        value(&format!("vllm:spec_decode_num_{name}_total"));
    }
}

/// What a line of metrics that begins so says.
pub(crate) fn count(text: &str, begins: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(begins));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[test]
fn what_is_refused_is_counted_by_route_and_status() {
    let server = Server::start(|options| (options.queue, options.running) = (2, 1), &["ada"]);
    let key = [("authorization", "Bearer ada"), ("content-type", "application/json")];
    let many = json!({"prompt": STORY, "n": 4}).to_string();
    for _ in 0..3 {
        server.post_with("/v1/completions", &many, &key).is_refused(400, Some("n"));
    }
    server.post("/v1/completions", &json!({"prompt": STORY})).is_refused(401, None);
    server.get_with("/nowhere", &key).is_refused(404, None);
    server.get_with("/v1/models/target", &key);
    let text = server.get_with("/metrics", &key).text;
    for (route, status, times) in [
        ("/v1/completions", 400, 3.0),
        ("/v1/completions", 401, 1.0),
        ("none", 404, 1.0),
        ("/v1/models/{*model}", 200, 1.0),
    ] {
        let line = format!("http_requests_total{{handler=\"{route}\",status=\"{status}\"}}");
        assert_eq!(count(&text, &line), times, "{line}: {text}");
    }
}

#[test]
fn embeddings_are_measured_as_requests() {
    let server = Server::start(|_| {}, &[]);
    let answer = server.post("/v1/embeddings", &json!({"input": [STORY, "The dog ran home."]}));
    let tokens = answer.json()["usage"]["prompt_tokens"].as_f64().unwrap();
    let text = server.get("/metrics").text;
    assert!(text.contains("finished_reason=\"stop\"} 2"), "{text}");
    for (name, times) in [
        ("e2e_request_latency_seconds_count", 2.0),
        ("request_queue_time_seconds_count", 2.0),
        ("request_prompt_tokens_sum", tokens),
        ("time_to_first_token_seconds_count", 0.0),
    ] {
        assert_eq!(count(&text, &format!("vllm:{name}")), times, "{name}: {text}");
    }
}

#[test]
fn a_text_to_embed_that_nobody_waits_for_any_more_is_counted() {
    let server = Server::start(|options| options.running = 1, &[]);
    let before = |_| server.engine.submit(EngineRequest::new(vec![5; 4], 500)).unwrap();
    let tickets: Vec<_> = (0..4).map(before).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A request of which nobody reads makes way for others.
        for mut ticket in tickets {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) && ticket.blocking_recv().is_some() {}
            });
        }
        let client = server.send("/v1/embeddings", &json!({"input": STORY}));
        server.wait_until("the text waits", |server| server.engine.state().counters.submitted > 4);
        drop(client);
        let is_counted = |server: &Server| {
            let text = server.get("/metrics").text;
            text.contains("finished_reason=\"abort\"} 1")
        };
        server.wait_until("it is counted", is_counted);
        is_over.store(true, Ordering::Relaxed);
    });
    server.wait_until_idle();
}

#[test]
fn a_pass_is_one_sample_however_many_tokens_it_brings() {
    let server = Server::start(|_| {}, &[]);
    // What repeats itself is easily guessed.
    let prompt = STORY.repeat(4);
    let body = json!({"prompt": prompt, "max_tokens": 200, "temperature": 0, "ignore_eos": true});
    assert_eq!(server.complete(body).status, 200);
    server.wait_until_idle();
    let counters = server.engine.state().counters;
    assert!(counters.accepted_tokens > 0, "{counters:?}");
    let text = server.get("/metrics").text;
    let samples = count(&text, "vllm:inter_token_latency_seconds_count");
    // The first pass has read the prompt.
    assert_eq!(samples, counters.passes as f64 - 1.0, "{counters:?}");
    // Each token by itself would be as many as there are, but for the first.
    assert_eq!(samples, 199.0 - counters.accepted_tokens as f64, "{counters:?}");
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let server = Server::shared();
    assert_eq!(server.complete(json!({"prompt": STORY, "max_tokens": 3})).status, 200);
    let text = server.get("/metrics").text;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/grafana.json");
    let dashboard = std::fs::read_to_string(path).unwrap();
    serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
    let names: BTreeSet<&str> = dashboard
        .match_indices("vllm:")
        .map(|(at, _)| {
            let rest = &dashboard[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c));
            &rest[..end.unwrap()]
        })
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names.into_iter().chain(["http_requests_total"]) {
        assert!(dashboard.contains(name), "{name}");
        let is_there = |line: &str| {
            line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "))
        };
        assert!(text.lines().any(is_there), "{name} is not in {text}");
    }
}

#[test]
fn the_document_lists_every_parameter() {
    let server = Server::shared();
    let document = server.get("/openapi.json").json();
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/health",
        "/ping",
        "/metrics",
        "/version",
        "/state",
    ] {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }
    let text = document["components"]["schemas"].to_string();
    for parameter in [
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "logprobs",
        "top_logprobs",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "allowed_token_ids",
        "bad_words",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "user",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "echo",
        "prompt",
        "top_k",
        "min_p",
        "repetition_penalty",
        "min_tokens",
        "ignore_eos",
        "stop_token_ids",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "cache_salt",
        "priority",
        "chat_template_kwargs",
        "reasoning_effort",
        "structured_outputs",
        "return_token_ids",
        "prompt_logprobs",
        "decoded_token",
        "cached_tokens",
        "input",
        "encoding_format",
        "dimensions",
        "embedding",
    ] {
        assert!(text.contains(&format!("\"{parameter}\":")), "{parameter}");
    }
    let schemas = &document["components"]["schemas"];
    let [asked, part] = ["ResponseRequest", "OutputPart"].map(|name| schemas[name].to_string());
    for parameter in ["input", "instructions", "max_output_tokens", "tools", "text", "include"] {
        assert!(asked.contains(&format!("\"{parameter}\":")), "{parameter} in {asked}");
    }
    assert!(part.contains("annotations"), "{part}");
}

#[test]
fn the_document_says_that_whoever_sends_a_body_may_have_to_wait() {
    let document = Server::shared().get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    let with_bodies: Vec<_> =
        paths.iter().filter(|(_, item)| item["post"]["requestBody"].is_object()).collect();
    assert_eq!(with_bodies.len(), 8);
    for (path, item) in with_bodies {
        assert!(item["post"]["responses"]["429"].is_object(), "{path}: {item}");
    }
}

#[test]
fn the_page_asks_nobody_else() {
    let server = Server::shared();
    for (path, holds) in
        [("/", "<!doctype html>"), ("/page.css", "color-scheme"), ("/page.js", "EventSource")]
    {
        let page = server.get(path);
        assert_eq!(page.status, 200);
        assert!(page.text.contains(holds), "{path}");
        assert!(!page.text.contains("http://") || path == "/page.js", "{path} asks somebody else");
        assert!(!page.text.contains("https://"), "{path} asks somebody else");
    }
}

#[test]
fn the_stream_of_states_has_what_the_page_reads() {
    let server = Server::start(|_| {}, &[]);
    let prompt = STORY.repeat(4);
    let answer = server.complete(json!({"prompt": prompt, "max_tokens": 30, "ignore_eos": true}));
    assert_eq!(answer.status, 200);
    server.wait_until_idle();
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(stream, "GET /state HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let event = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).next();
    let state: Value = serde_json::from_str(&event.unwrap()).unwrap();
    for number in [
        "/running",
        "/waiting",
        "/blocks/total",
        "/blocks/free",
        "/blocks/cached",
        "/blocks/shared",
        "/context",
        "/counters/prefix_hits",
        "/counters/prefix_queries",
        "/counters/accepted_tokens",
        "/counters/drafted_tokens",
        "/counters/preemptions",
        "/counters/passes",
        "/passes/0/start",
        "/passes/0/duration",
        "/passes/0/prefill_rows",
        "/passes/0/decode_rows",
        "/passes/0/draft_rows",
        "/passes/0/tokens",
        "/passes/0/preempted",
        "/recent/ttft_ms/0",
        "/recent/tpot_ms/0",
        "/prefixes/0/depth",
        "/prefixes/0/tokens",
    ] {
        assert!(state.pointer(number).is_some_and(Value::is_number), "{number}: {state}");
    }
    assert_eq!(state["model"], "target");
    assert_eq!(state["draining"], false);
    assert_eq!(state["requests"], json!([]));
    assert!(!state["prefixes"][0]["blocks"].as_array().unwrap().is_empty());
    let cells = state["cells"].as_array().unwrap();
    assert_eq!(cells.len() as u64, state["blocks"]["total"].as_u64().unwrap());
    assert!(cells.iter().any(|cell| cell == "cached") && cells.iter().any(|cell| cell == "free"));
}
