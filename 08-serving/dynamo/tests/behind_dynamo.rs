//! Two servers behind Dynamo: the same answers, each where its beginning is known, whatever becomes of a server.
//!
//! They need `ladder` of the other workspace: `cargo build --release --bin ladder` at the root.

mod world;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::thread::sleep;
use std::time::Duration;
use world::{Server, World};

/// What is asked: the text goes on greedily.
fn asked(prompt: &str, tokens: usize) -> Value {
    json!({"model": world::MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0})
}

/// A beginning of some eighty tokens, another for each number.
fn beginning(number: usize) -> String {
    format!("The house of number {number} stands at the river. ").repeat(8)
}

/// Tokens that a server found in its prefix cache.
fn found(server: &Server) -> f64 {
    server.metric("vllm:prefix_cache_hits_total")
}

fn texts(answer: &Value) -> &Value {
    &answer["choices"][0]["text"]
}

#[test]
fn answers_are_the_servers_own() {
    let world = World::start("kv");
    let server = &world.servers[0];
    for (i, tokens) in [(0, 40), (1, 1), (2, 90)] {
        let body = asked(&beginning(i), tokens);
        let through = world.post("/v1/completions", &body).expect("an answer");
        let direct = server.post("/v1/completions", &body).expect("an answer");
        assert_eq!(texts(&through), texts(&direct), "{body}");
        assert_eq!(through["choices"][0]["finish_reason"], direct["choices"][0]["finish_reason"]);
        assert_eq!(through["usage"]["completion_tokens"], direct["usage"]["completion_tokens"]);
        assert_eq!(through["usage"]["prompt_tokens"], direct["usage"]["prompt_tokens"]);
    }
    // A conversation, which ends by itself: the frontend writes it down as the server does.
    let question = json!({
        "model": world::MODEL, "temperature": 0, "max_tokens": 60,
        "messages": [{"role": "user", "content": "Who are you?"}],
    });
    let through = world.post("/v1/chat/completions", &question).expect("an answer");
    let direct = server.post("/v1/chat/completions", &question).expect("an answer");
    assert_eq!(
        through["choices"][0]["message"]["content"],
        direct["choices"][0]["message"]["content"]
    );
    assert_eq!(through["choices"][0]["finish_reason"], "stop");
    assert_eq!(through["usage"]["completion_tokens"], direct["usage"]["completion_tokens"]);
    // One that is held to a form.
    let mut form = question.clone();
    form["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": {
        "type": "object", "properties": {"a": {"enum": ["mill", "river"]}}, "required": ["a"],
        "additionalProperties": false,
    }}});
    let through = world.post("/v1/chat/completions", &form).expect("an answer");
    let text = through["choices"][0]["message"]["content"].as_str().expect("a text");
    let held: Value = serde_json::from_str(text).expect("a form");
    assert!(held["a"] == "mill" || held["a"] == "river", "{text}");
    // One that may be as long as it likes.
    let open = json!({"model": world::MODEL, "temperature": 0, "ignore_eos": true, "prompt": beginning(5)});
    let through = world.post("/v1/completions", &open).expect("an answer");
    assert_eq!(
        through["usage"]["total_tokens"], 513,
        "the context, and a token that need not be read"
    );
    // Sampled with a seed, with penalties, ended by a string.
    for more in [
        json!({"temperature": 1.0, "seed": 7, "top_p": 0.9}),
        json!({"stop": ["and"]}),
        json!({"temperature": 0.5, "seed": 3, "presence_penalty": 0.5, "frequency_penalty": 0.5}),
    ] {
        let mut body = asked(&beginning(3), 30);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let through = world.post("/v1/completions", &body).expect("an answer");
        let direct = server.post("/v1/completions", &body).expect("an answer");
        assert_eq!(texts(&through), texts(&direct), "{body}");
    }
    // What is not done here is refused, with the reason, and the worker is none the worse.
    let mut body = asked("Once", 2);
    body["logprobs"] = json!(1);
    let (status, said) = world.post("/v1/completions", &body).expect_err("a refusal");
    assert!((400..500).contains(&status) && said.contains("logprobs"), "{status}: {said}");
    let long = asked(&"river ".repeat(3000), 2);
    let (status, said) = world.post("/v1/completions", &long).expect_err("a refusal");
    assert!((400..500).contains(&status), "{status}: {said}");
    world.post("/v1/completions", &asked("Once", 2)).expect("an answer");
}

/// Eight beginnings, each asked about five times in turn. Gives the tokens that both servers found known.
fn rounds(world: &World) -> (f64, f64) {
    for round in 0..5 {
        for number in 0..8 {
            let prompt = format!("{}In round {round}", beginning(number));
            world.post("/v1/completions", &asked(&prompt, 4)).expect("an answer");
            // Events are on their way for some milliseconds.
            sleep(Duration::from_millis(50));
        }
    }
    (found(&world.servers[0]), found(&world.servers[1]))
}

#[test]
fn requests_go_where_their_beginning_is_known() {
    let block = 16;
    let whole = |tokens: usize| (tokens / block * block) as f64;
    let kv = World::start("kv");
    let least: f64 =
        (0..8).map(|number| 4.0 * whole(kv.servers[0].count(&beginning(number)))).sum();
    let (a, b) = rounds(&kv);
    // Whatever was known anywhere was known where it was asked for.
    assert!(a + b >= least, "{a} + {b} tokens were found, expected {least} at least");
    assert!(a > 0.0 && b > 0.0, "both servers have work: {a} and {b}");
    drop(kv);
    // Eight is even, so in turn each would have the same beginnings again: one more request in each round.
    let in_turn = World::start("round-robin");
    for round in 0..5 {
        for number in 0..8 {
            let prompt = format!("{}In round {round}", beginning(number));
            in_turn.post("/v1/completions", &asked(&prompt, 4)).expect("an answer");
        }
        in_turn.post("/v1/completions", &asked("Once", 1)).expect("an answer");
    }
    let in_turn = found(&in_turn.servers[0]) + found(&in_turn.servers[1]);
    assert!(in_turn < 0.9 * least, "{in_turn} tokens were found without knowing, {least} with");
}

#[test]
fn whoever_goes_away_and_whatever_is_killed() {
    let mut world = World::start("kv");
    // A client that goes away: the server's work ends.
    let mut body = asked(&beginning(0), 400);
    body["stream"] = json!(true);
    body["ignore_eos"] = json!(true);
    let mut lines = BufReader::new(world.stream("/v1/completions", &body)).lines();
    lines.next();
    drop(lines);
    world.wait_until("the answer is given up", |world| {
        world.servers.iter().map(|server| server.metric("vllm:num_requests_running")).sum::<f64>()
            == 0.0
    });
    let generated: f64 =
        world.servers.iter().map(|server| server.metric("vllm:generation_tokens_total")).sum();
    assert!(generated < 400.0, "{generated}");
    // A server that is killed in the middle of an answer: the other one goes on with it, and no token changes. The answer is
    // at the first server, as that one knows its beginning.
    body["prompt"] = json!(beginning(1));
    let mut whole = body.clone();
    whole["stream"] = json!(false);
    let expected = world.servers[0].post("/v1/completions", &whole).expect("an answer");
    sleep(Duration::from_millis(300));
    let before = world.servers[1].metric("vllm:generation_tokens_total");
    let mut answer = BufReader::new(world.stream("/v1/completions", &body));
    let mut line = String::new();
    answer.read_line(&mut line).unwrap();
    world.servers.remove(0).kill();
    answer.read_to_string(&mut line).unwrap();
    let data = line
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]");
    let pieces = data.map(|data| serde_json::from_str::<Value>(data).expect("an event"));
    let text: String =
        pieces.map(|piece| texts(&piece).as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(text, texts(&expected).as_str().unwrap());
    let rest = world.servers[0].metric("vllm:generation_tokens_total") - before;
    assert!(rest > 0.0 && rest < 400.0, "{rest} tokens of 400 are the other server's");
    // What is asked from now on is answered by the one that is left.
    for number in 0..4 {
        world.post("/v1/completions", &asked(&beginning(number), 3)).expect("an answer");
    }
}
