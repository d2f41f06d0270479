//! One server reads prompts for another, over HTTP: the same answers, whoever is there to do it.

use crate::server::Server;
use crate::small::count;
use serde_json::{Value, json};
use serving::engine::{EngineOptions, Exchange};
use serving::http::{Keys, PrefillWorkers};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

const MODEL: [u8; 32] = [5; 32];

/// A server that reads prompts for others.
fn worker(model: [u8; 32], keys: &[&str]) -> Server {
    let keys = Keys::new(keys.iter().copied()).unwrap();
    let change = |options: &mut EngineOptions| {
        options.exchange = Some(Exchange { model, prefiller: None });
        options.rows = 64;
    };
    Server::start_with(change, |app| app.with_keys(keys).with_prompts_of_others(true))
}

/// A server that has prompts read there.
fn writer(workers: &[SocketAddr], key: Option<&str>) -> Server {
    writer_in(workers, key, None)
}

/// The same, whose answers have so much time.
fn writer_in(workers: &[SocketAddr], key: Option<&str>, answers_in: Option<Duration>) -> Server {
    let addresses = workers.iter().map(|worker| format!("http://{worker}").parse().unwrap());
    let workers = PrefillWorkers::new(addresses.collect(), key).unwrap();
    let exchange = Exchange { model: MODEL, prefiller: Some(Arc::new(workers)) };
    let change = |options: &mut EngineOptions| options.exchange = Some(exchange);
    Server::start_with(change, |app| app.with_answers_in(answers_in))
}

/// What is asked about a text that is long enough to be read elsewhere.
fn asks(name: &str) -> Value {
    let prompt = format!("The word of {name} is amber. ").repeat(20);
    json!({"prompt": prompt, "max_tokens": 12, "temperature": 0})
}

/// Asks a server, and says how many tokens of the prompt somebody else has read.
#[track_caller]
fn answered(server: &Server, asked: &Value) -> u64 {
    let before = server.engine.state().counters.brought_tokens;
    let answer = server.complete(asked.clone());
    assert_eq!(answer.status, 200, "{}", answer.text);
    let expected = Server::shared().text(asked.clone());
    assert_eq!(answer.json()["choices"][0]["text"], expected);
    assert_eq!(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    // The text's end is told after it is counted.
    server.engine.state().counters.brought_tokens - before
}

#[test]
fn a_prompt_that_another_server_reads_has_the_same_answer() {
    let worker = worker(MODEL, &[]);
    let writer = writer(&[worker.address], None);
    let brought = answered(&writer, &asks("Ada"));
    assert!(brought >= 100 && brought.is_multiple_of(16), "{brought}");
    let counters = writer.engine.state().counters;
    // Blocks go before they are counted.
    worker.wait_until("not all that came is counted as lent", |worker| {
        worker.engine.state().counters.lent_bytes >= counters.brought_bytes
    });
    let lent = worker.engine.state().counters;
    assert_eq!(lent.lent_bytes, counters.brought_bytes);
    assert_eq!(lent.generated_tokens, 0);
    // Here the rest of the prompt, and the answer.
    assert!(counters.rows < 64, "{counters:?}");
    // Many at once, streams among them, each its own.
    std::thread::scope(|scope| {
        for i in 0..8 {
            let writer = &writer;
            scope.spawn(move || {
                let asked = asks(&format!("number {i}"));
                let expected = Server::shared().text(asked.clone());
                assert_eq!(writer.text(asked), expected);
            });
        }
    });
    let metrics = writer.get("/metrics").text;
    let tokens = count(&metrics, "ladder:kv_received_tokens_total{");
    assert_eq!(tokens, writer.engine.state().counters.brought_tokens as f64);
    assert!(worker.get("/metrics").text.contains("ladder:kv_sent_bytes_total{"));
}

#[test]
fn a_worker_with_a_key_wants_it_and_keeps_tenants_apart() {
    let worker = worker(MODEL, &["sesame"]);
    assert!(answered(&writer(&[worker.address], Some("sesame")), &asks("Ada")) > 0);
    let hits = |server: &Server| server.engine.state().counters.prefix_hits;
    assert_eq!(hits(&worker), 0);
    // What was read for the other server is known, for the next one as well.
    assert!(answered(&writer(&[worker.address], Some("sesame")), &asks("Ada")) > 0);
    worker.wait_until("what was read for one is not found for the next", |worker| {
        hits(worker) >= 100
    });
    let known = hits(&worker);
    // A client of the worker's own does not find it, with the same text and key.
    let headers = [("content-type", "application/json"), ("authorization", "Bearer sesame")];
    let answer = worker.post_with("/v1/completions", &asks("Ada").to_string(), &headers);
    assert_eq!(answer.status, 200);
    assert_eq!(hits(&worker), known);
    for wrong in [None, Some("open")] {
        assert_eq!(answered(&writer(&[worker.address], wrong), &asks("Ada")), 0);
    }
}

#[test]
fn nobody_takes_blocks_of_another_model() {
    let other = worker([6; 32], &[]);
    let writer = writer(&[other.address], None);
    assert_eq!(answered(&writer, &asks("Ada")), 0);
    assert_eq!(other.engine.state().counters.submitted, 0);
    // Somebody who is not asked in vain is asked first.
    let right = worker(MODEL, &[]);
    let both = self::writer(&[other.address, right.address], None);
    let brought: Vec<u64> = ["Ada", "Ben", "Cleo"].map(|name| answered(&both, &asks(name))).into();
    assert_eq!(brought[0], 0, "the first in the list is the first to be asked");
    assert!(brought[1] > 0 && brought[2] > 0, "{brought:?}");
}

/// Somebody who does something else than a worker with every connection.
fn stranger(does: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(does));
    address
}

/// Reads a request's head, so that closing is no reset.
fn heard(mut stream: &TcpStream) {
    let mut head = [0; 256];
    let _ = stream.read(&mut head);
}

#[test]
fn whatever_a_worker_does_the_answer_comes() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let says = |text: Vec<u8>| {
        stranger(move |mut stream| {
            heard(&stream);
            let _ = stream.write_all(&text);
        })
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n";
    let garbage = [head.as_bytes(), b"content-length: 2000000\r\n\r\n", &[7; 2_000_000]].concat();
    let strangers = [
        ("nobody listens", nobody),
        ("it hangs up", stranger(drop)),
        ("it does not speak HTTP", says(b"220 welcome\r\n".to_vec())),
        ("it sends something else", says(garbage)),
        ("it ends early", says(format!("{head}content-length: 9\r\n\r\nabcd").into_bytes())),
        ("it has nothing", says(format!("{head}content-length: 0\r\n\r\n").into_bytes())),
        ("it is not one of them", Server::shared().address),
    ];
    for (what, address) in strangers {
        let writer = writer(&[address], None);
        let begun = Instant::now();
        assert_eq!(answered(&writer, &asks("Ada")), 0, "{what}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{what}: {:?}", begun.elapsed());
    }
}

/// Somebody who takes connections and says nothing, as a worker that is stopped; and the connections.
fn silent() -> (SocketAddr, Arc<Mutex<Vec<TcpStream>>>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let connections = kept.clone();
    (stranger(move |stream| connections.lock().unwrap().push(stream)), kept)
}

/// A client that goes away more than a second after the worker was asked.
fn gives_up_soon(writer: &Server, name: &str, is_asked: impl Fn() -> bool) {
    let mut asked = asks(name);
    asked["stream"] = json!(true);
    let client = writer.send("/v1/completions", &asked);
    writer.wait_until("the worker is not asked", |_| is_asked());
    sleep(Duration::from_millis(1_300));
    drop(client);
    writer.wait_until_idle();
}

#[test]
fn a_worker_that_says_nothing_is_not_waited_for_for_ever() {
    let (address, kept) = silent();
    let writer = writer(&[address], None);
    let begun = Instant::now();
    assert_eq!(answered(&writer, &asks("Ada")), 0);
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    // It is not asked again at once.
    let begun = Instant::now();
    assert_eq!(answered(&writer, &asks("Ben")), 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(kept.lock().unwrap().len(), 1);
}

#[test]
fn a_client_that_gives_up_on_a_silent_worker_is_the_last_that_waits_for_it() {
    let (address, kept) = silent();
    let writer = writer(&[address], None);
    gives_up_soon(&writer, "Ada", || kept.lock().unwrap().len() == 1);
    assert_eq!(answered(&writer, &asks("Ben")), 0);
    assert_eq!(kept.lock().unwrap().len(), 1);
}

#[test]
fn a_request_waits_for_a_silent_worker_for_half_of_its_time() {
    let (address, kept) = silent();
    let writer = writer_in(&[address], None, Some(Duration::from_millis(3_000)));
    for name in ["Ada", "Ben"] {
        let answer = writer.complete(asks(name));
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(kept.lock().unwrap().len(), 1);
}

#[test]
fn a_client_that_leaves_a_worker_at_work_leaves_it_to_others() {
    let times = Arc::new(AtomicUsize::new(0));
    let counts = times.clone();
    // Less than a block each second, but no silence.
    let busy = stranger(move |mut stream| {
        heard(&stream);
        counts.fetch_add(1, Ordering::Relaxed);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n");
        while stream.write_all(&[7]).is_ok() {
            sleep(Duration::from_millis(50));
        }
    });
    let writer = writer(&[busy], None);
    for time in 1..=2 {
        gives_up_soon(&writer, "Ada", || times.load(Ordering::Relaxed) == time);
    }
}

#[test]
fn clients_that_go_away_leave_nothing_at_either_side() {
    let worker = worker(MODEL, &[]);
    let writer = writer(&[worker.address], None);
    for i in 0..6 {
        let mut asked = asks(&format!("number {i}"));
        asked["stream"] = json!(true);
        drop(writer.send("/v1/completions", &asked));
    }
    let is_still = |server: &Server| {
        let state = server.engine.state();
        state.running + state.waiting + state.stalled == 0 && state.blocks.used() == 0
    };
    writer.wait_until("the writer is still", is_still);
    worker.wait_until("the worker is still", is_still);
    assert!(answered(&writer, &asks("Ada")) > 0);
}

#[test]
fn a_worker_is_asked_in_blocks_that_are_its_own() {
    let worker = worker(MODEL, &[]);
    let fingerprint = worker.engine.exchanged().unwrap().fingerprint;
    let ask = |tokens: usize, known: usize| {
        let (salt, tokens) = ([0u8; 32], vec![5; tokens]);
        json!({"fingerprint": fingerprint, "salt": salt, "tokens": tokens, "known": known})
    };
    let refused = |body: Value, status: u16, param: Option<&str>, words: &str| {
        let message = worker.post("/prefill", &body).is_refused(status, param);
        assert!(message.contains(words), "{message}");
    };
    refused(ask(0, 0), 400, Some("tokens"), "some blocks of 16");
    refused(ask(20, 0), 400, Some("tokens"), "some blocks of 16");
    refused(ask(32, 2), 400, Some("known"), "fewer than the 2 blocks");
    refused(ask(1 << 16, 0), 400, Some("tokens"), "do not fit");
    refused(json!({"tokens": [1]}), 400, None, "missing field");
    let mut unknown = ask(16, 0);
    unknown["tokens"][3] = json!(u32::MAX);
    refused(unknown, 400, Some("tokens"), "below");
    let mut other = ask(16, 0);
    other["fingerprint"] = [9u8; 32].to_vec().into();
    refused(other, 409, None, "of another model");
    // A server that is no worker has nothing there.
    let message = Server::shared().post("/prefill", &ask(16, 0)).is_refused(404, None);
    assert!(message.contains("/prefill"), "{message}");
}
