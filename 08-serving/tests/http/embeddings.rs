//! `POST /v1/embeddings`, beside a forward pass by hand.

use super::server::{STORY, Server};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use embedded_models::TARGET;
use model_files::ModelFiles;
use naive_decode::{LoadOptions, NaiveAttention, Pass, Span, Want};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn embed(server: &Server, body: Value) -> Value {
    let answer = server.post("/v1/embeddings", &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// The numbers of an answer's embeddings.
fn numbers(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap();
    let one = |entry: &Value| {
        let list = entry["embedding"].as_array().unwrap();
        list.iter().map(|number| number.as_f64().unwrap() as f32).collect()
    };
    data.iter().map(one).collect()
}

/// The model's last hidden state after a text, at length 1, without any server.
fn by_hand(text: &str) -> Vec<f32> {
    let files = ModelFiles::embedded(&TARGET).unwrap();
    let model = files.load(LoadOptions::default()).unwrap();
    let tokens = files.tokenizer.encode_with_special(text).unwrap();
    let pass = Pass::one(Span::new(0, 0, &tokens, Want::Last));
    let hidden = model.hidden(&pass, &mut NaiveAttention::new(model.isa)).unwrap();
    let length = hidden.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    hidden.iter().map(|&x| (f64::from(x) / length) as f32).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn an_embedding_is_the_last_hidden_state_at_length_one() {
    let server = Server::shared();
    let texts = [STORY, "The dog ran home.", "Where is the key?"];
    let answer = embed(server, json!({"model": "target", "input": texts, "user": "ada"}));
    let together = numbers(&answer);
    for (text, found) in texts.iter().zip(&together) {
        assert_eq!(*found, by_hand(text), "{text}");
        assert!((dot(found, found) - 1.0).abs() < 1e-5);
        // Alone, and as tokens, it is the same to the bit.
        assert_eq!(numbers(&embed(server, json!({"input": text})))[0], *found);
        let tokens = server.post("/tokenize", &json!({"prompt": text})).json()["tokens"].clone();
        assert_eq!(numbers(&embed(server, json!({"input": tokens})))[0], *found);
        assert_eq!(numbers(&embed(server, json!({"input": [tokens, [9]]})))[0], *found);
    }
    assert!(dot(&together[0], &together[1]) < 0.999, "different texts are different");
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("target")));
    assert_eq!(answer["data"][2]["index"], 2);
    assert_eq!(answer["data"][2]["object"], "embedding");
    let count = |text: &str| {
        server.post("/tokenize", &json!({"prompt": text})).json()["count"].as_u64().unwrap()
    };
    let tokens: u64 = texts.iter().map(|text| count(text)).sum();
    assert_eq!(answer["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
    server.wait_until_idle();
}

#[test]
fn base64_has_the_same_numbers_in_fewer_bytes() {
    let server = Server::shared();
    let floats = numbers(&embed(server, json!({"input": STORY, "encoding_format": "float"})));
    let text = embed(server, json!({"input": STORY, "encoding_format": "base64"}));
    let bytes = STANDARD.decode(text["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let (chunks, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    assert_eq!(chunks.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>(), floats[0]);
    let all = floats[0].len();
    assert_eq!(numbers(&embed(server, json!({"input": STORY, "dimensions": all}))), floats);
}

#[test]
fn what_cannot_be_embedded_is_named() {
    let server = Server::shared();
    for (more, param) in [
        (json!({"input": null}), "input"),
        (json!({"input": ""}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [[]]}), "input"),
        (json!({"input": ["a", ""]}), "input"),
        (json!({"input": [2048]}), "input"),
        (json!({"input": [-1]}), "input"),
        (json!({"input": {"text": "a"}}), "input"),
        (json!({"input": vec!["a"; 2_049]}), "input"),
        (json!({"input": vec![1; 600]}), "input"),
        (json!({"dimensions": 8}), "dimensions"),
        (json!({"dimensions": 0}), "dimensions"),
        (json!({"dimensions": 1_000_000_000}), "dimensions"),
        (json!({"encoding_format": "hex"}), "encoding_format"),
        (json!({"encoding": "float"}), "encoding"),
    ] {
        let mut body = json!({"input": STORY});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let message = server.post("/v1/embeddings", &body).is_refused(400, Some(param));
        assert!(message.contains(param) || message.contains("tokens"), "{more}: {message}");
    }
    let other = json!({"input": "a", "model": "other"});
    server.post("/v1/embeddings", &other).is_refused(404, Some("model"));
    // The longest that fits does.
    assert_eq!(embed(server, json!({"input": vec![7; 512]}))["usage"]["prompt_tokens"], 512);
    server.wait_until_idle();
}

#[test]
fn embeddings_and_texts_run_side_by_side() {
    let server = Server::start(|options| options.rows = 48, &[]);
    let body = json!({"prompt": STORY, "max_tokens": 60, "temperature": 0, "ignore_eos": true});
    let expected = Server::shared().text(body.clone());
    let inputs: Vec<String> = (0..40).map(|i| format!("{i} {STORY}")).collect();
    std::thread::scope(|scope| {
        let texts: Vec<_> = (0..4).map(|_| scope.spawn(|| server.text(body.clone()))).collect();
        let found = numbers(&embed(&server, json!({"input": inputs})));
        for at in [0, 17, 39] {
            assert_eq!(found[at], by_hand(&inputs[at]), "input {at}");
        }
        texts.into_iter().for_each(|text| assert_eq!(text.join().unwrap(), expected));
    });
    // Whoever has gone is forgotten.
    let long = vec![vec![7; 500]; 60];
    drop(server.send("/v1/embeddings", &json!({"input": long})));
    server.wait_until_idle();
}

#[test]
fn more_inputs_than_the_queue_holds_are_embedded_in_order() {
    let server = Server::start(|options| options.queue = 7, &[]);
    let inputs: Vec<String> = (0..150).map(|i| format!("{i} is a number")).collect();
    let found = numbers(&embed(&server, json!({"input": inputs})));
    assert_eq!(found.len(), inputs.len());
    for at in [0, 6, 7, 127, 128, 149] {
        assert_eq!(found[at], by_hand(&inputs[at]), "input {at}");
    }
    // One that does not fit is found before anything is done.
    let submitted = server.engine.state().counters.submitted;
    let mut tokens = vec![vec![7]; 20];
    tokens.push(vec![7; 600]);
    server.post("/v1/embeddings", &json!({"input": tokens})).is_refused(400, Some("input"));
    server.wait_until_idle();
    assert_eq!(server.engine.state().counters.submitted, submitted);
}

#[test]
fn an_embedding_that_takes_too_long_is_no_embedding() {
    let at_once = Some(Duration::from_nanos(1));
    let server = Server::start_with(|_| {}, |app| app.with_answers_in(at_once));
    let message = server.post("/v1/embeddings", &json!({"input": STORY})).is_refused(503, None);
    assert!(message.contains("in the time that an answer may take"), "{message}");
    server.wait_until_idle();
}

#[test]
fn more_requests_than_there_are_places_for_wait_for_one() {
    let server = Server::start(
        |options| {
            options.queue = 16;
            options.running = 2;
        },
        &[],
    );
    let inputs: Vec<String> = (0..12).map(|i| format!("{i} {}", STORY.repeat(8))).collect();
    let last = by_hand(&inputs[11]);
    std::thread::scope(|scope| {
        let ask = || server.post("/v1/embeddings", &json!({"input": inputs}));
        // Four have a place, and as many may wait as the queue is long.
        let clients: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        let asked = server.complete(json!({"prompt": STORY, "max_tokens": 1}));
        assert_eq!(asked.status, 200, "{}", asked.text);
        for client in clients {
            let answer = client.join().unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(numbers(&answer.json())[11], last);
        }
    });
    server.wait_until_idle();
}

#[test]
fn many_texts_to_embed_keep_nobody_out_and_none_of_them_is_lost() {
    let server = Server::start(
        |options| {
            options.queue = 16;
            options.running = 2;
            options.rows = 64;
        },
        &[],
    );
    let inputs = |name: &str| -> Vec<String> {
        (0..40).map(|i| format!("{name} {i} {}", STORY.repeat(3))).collect()
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = &server;
        let clients = ["ada", "bob", "eve"].map(|name| {
            let body = json!({"input": inputs(name)});
            scope.spawn(move || server.post("/v1/embeddings", &body))
        });
        server.wait_until("all are there", |server| server.engine.state().counters.submitted >= 4);
        for _ in 0..8 {
            let asked = server.complete(json!({"prompt": STORY, "max_tokens": 1}));
            assert_eq!(asked.status, 200, "{}", asked.text);
        }
        // Others fill what is left of the queue, again and again.
        let flood = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                server.complete(json!({"prompt": STORY, "max_tokens": 2, "n": 12}));
            }
        });
        for client in clients {
            let answer = client.join().unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(numbers(&answer.json()).len(), 40);
        }
        is_over.store(true, Ordering::Relaxed);
        flood.join().unwrap();
    });
    server.wait_until_idle();
}
