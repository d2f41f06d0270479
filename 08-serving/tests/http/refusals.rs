//! Bad input: refused by name, and the server is as it was.

use super::server::{STORY, Server, question};
use naive_decode::Error;
use serde_json::{Value, json};
use serving::api::ApiError;
use serving::engine::EngineRequest;

#[test]
fn parameters_out_of_range_are_named() {
    let server = Server::shared();
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for (more, param) in [
        (json!({"n": 1_000_000_000}), "n"),
        (json!({"n": 0}), "n"),
        (json!({"n": -1}), "n"),
        (json!({"n": 1e9}), "n"),
        (json!({"n": "2"}), "n"),
        (json!({"best_of": 1_000_000_000}), "best_of"),
        (json!({"best_of": 2}), "best_of"),
        (json!({"n": 2, "best_of": 1}), "best_of"),
        (json!({"modalities": ["audio"]}), "modalities"),
        (json!({"modalities": "text"}), "modalities"),
        (json!({"priority": 1}), "priority"),
        (json!({"priority": -100}), "priority"),
        (json!({"temprature": 1}), "temprature"),
        (json!({"use_beam_search": true}), "use_beam_search"),
        (json!({"length_penalty": 1.5}), "length_penalty"),
        (json!({"length_penalty": "1"}), "length_penalty"),
        (json!({"bad_words": "x"}), "bad_words"),
        (json!({"bad_words": ["x", ""]}), "bad_words"),
        (json!({"bad_words": [" \n"]}), "bad_words"),
        (json!({"bad_words": ["x".repeat(257)]}), "bad_words"),
        (json!({"bad_words": vec!["x"; 1025]}), "bad_words"),
        (json!({"allowed_token_ids": []}), "allowed_token_ids"),
        (json!({"allowed_token_ids": [2048]}), "allowed_token_ids"),
        (json!({"allowed_token_ids": [-1]}), "allowed_token_ids"),
        (json!({"allowed_token_ids": vec![1; 2049]}), "allowed_token_ids"),
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": 0}), "top_p"),
        (json!({"top_p": 1.1}), "top_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"min_p": 2}), "min_p"),
        (json!({"frequency_penalty": 2.1}), "frequency_penalty"),
        (json!({"presence_penalty": -3}), "presence_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"repetition_penalty": 1e-39}), "repetition_penalty"),
        (json!({"repetition_penalty": 101}), "repetition_penalty"),
        (json!({"logit_bias": {"5000": 1}}), "logit_bias"),
        (json!({"logit_bias": {"-1": 1}}), "logit_bias"),
        (json!({"logit_bias": {"1": 101}}), "logit_bias"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"max_tokens": 100_000}), "max_tokens"),
        (json!({"max_tokens": u64::MAX}), "max_tokens"),
        (json!({"min_tokens": 17}), "min_tokens"),
        (json!({"stop": vec!["x"; 17]}), "stop"),
        (json!({"stop": "x".repeat(257)}), "stop"),
        (json!({"stop": ""}), "stop"),
        (json!({"stop_token_ids": [2048]}), "stop_token_ids"),
        (json!({"stop_token_ids": vec![1; 65]}), "stop_token_ids"),
        (json!({"logprobs": 1_000_000}), "logprobs"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"),
        (json!({"stream": true, "stream_options": {"usage": true}}), "stream_options"),
        (json!({"seed": 0.5}), "seed"),
        (json!({"prompt": ""}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": [[]]}), "prompt"),
        (json!({"prompt": [""]}), "prompt"),
        (json!({"prompt": [2048]}), "prompt"),
        (json!({"prompt": [-1]}), "prompt"),
        (json!({"prompt": null}), "prompt"),
        (json!({"prompt": vec!["x"; 129]}), "prompt"),
        (json!({"prompt": vec![1; 600]}), "prompt"),
        (json!({"prompt": ["a", "b"], "n": 65}), "n"),
        (json!({"structured_outputs": {}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": "a", "json_object": true}}), "structured_outputs"),
        (json!({"structured_outputs": {"json_object": true}, "ignore_eos": true}), "ignore_eos"),
    ] {
        let mut body = json!({"prompt": STORY});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let message = server.complete(body).is_refused(400, Some(param));
        assert!(message.contains(param) || message.contains("tokens"), "{more}: {message}");
    }
    let deep = format!("{{\"prompt\": {}}}", nested(100_000));
    let json = [("content-type", "application/json")];
    server.post_with("/v1/completions", &deep, &json).is_refused(400, None);
    server.wait_until_idle();
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_before_anything_is_made_of_it() {
    let server = Server::start(|_| {}, &[]);
    for prompt in [json!(vec![7; 20_000]), json!([vec![7; 20_000]])] {
        let form = json!({"regex": "a{7}"});
        let body = json!({"prompt": prompt, "n": 128, "structured_outputs": form});
        let message = server.complete(body).is_refused(400, Some("prompt"));
        assert!(message.contains("20000 tokens"), "{message}");
    }
    let body = json!({"prompt": STORY, "max_tokens": 10_000, "structured_outputs": {"regex": "("}});
    server.complete(body).is_refused(400, Some("max_tokens"));
    assert_eq!(server.app.kept_forms(), 0, "a form was compiled for an answer that there is not");
    // The length is what has to change, whatever else cannot be had with it.
    let body = json!({"prompt": vec![7; 20_000], "min_tokens": 5});
    for answer in [
        server.complete(body.clone()),
        server.chat(json!({
            "messages": [{"role": "user", "content": STORY.repeat(200)}], "min_tokens": 5,
        })),
    ] {
        assert_eq!(answer.json()["error"]["code"], "context_length_exceeded", "{}", answer.text);
    }
}

#[test]
fn what_others_call_otherwise_is_told_by_its_name_here() {
    let server = Server::shared();
    for (name, here) in [("n_predict", "max_tokens"), ("guided_json", "structured_outputs")] {
        let refused = server.complete(json!({"prompt": STORY, name: 1}));
        let message = refused.is_refused(400, Some(name));
        assert!(message.contains(here), "{message}");
    }
}

#[test]
fn where_files_lie_is_not_told() {
    let file = "/home/ada/tokenizer_config.json";
    let refused = ApiError::caused_by("messages", &Error::file(file, "roles must alternate"));
    assert_eq!(refused.error.message, "roles must alternate");
}

#[test]
fn what_would_change_nothing_here_is_taken() {
    let server = Server::shared();
    for more in [
        json!({"best_of": 1}),
        json!({"n": 2, "best_of": 2}),
        json!({"modalities": ["text"]}),
        json!({"priority": 0}),
        json!({"stream": true, "stream_options": {"include_obfuscation": false}}),
        json!({"use_beam_search": false, "length_penalty": 1, "early_stopping": false}),
        json!({"length_penalty": 1.0, "bad_words": [], "detokenize": true}),
        json!({"spaces_between_special_tokens": true, "include_reasoning": true}),
        json!({"add_special_tokens": true, "documents": [], "return_tokens_as_token_ids": false}),
    ] {
        let mut body = json!({"prompt": STORY, "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = server.complete(body);
        assert_eq!(answer.status, 200, "{more}: {}", answer.text);
    }
    let body =
        json!({"messages": question(), "max_tokens": 1, "modalities": ["text"], "echo": false});
    assert_eq!(server.chat(body).status, 200);
    server
        .post("/v1/embeddings", &json!({"input": STORY, "priority": 3}))
        .is_refused(400, Some("priority"));
}

#[test]
fn priorities_are_for_servers_that_have_them() {
    let server = Server::start_with(|_| {}, |app| app.with_priorities(true));
    let body = json!({"prompt": STORY, "max_tokens": 1, "priority": -100});
    assert_eq!(server.complete(body).status, 200);
    let body = json!({"input": STORY, "priority": 100});
    assert_eq!(server.post("/v1/embeddings", &body).status, 200);
}

#[test]
fn a_parameter_that_nobody_set_is_no_parameter() {
    let server = Server::shared();
    for more in [json!({"best_of": null, "suffix": null}), json!({"stop": null, "logprobs": null})]
    {
        let mut body = json!({"prompt": STORY, "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(server.complete(body).status, 200, "{more}");
    }
    let choice = json!({"choice": ["yes", "no"], "structural_tag": null});
    let body = json!({"prompt": STORY, "max_tokens": 5, "structured_outputs": choice});
    assert_eq!(server.complete(body).status, 200);
    let function = json!({"name": "weather", "description": null, "deferred": null});
    let tool = json!({"type": "function", "function": function, "cache_control": null});
    let body = json!({"messages": question(), "max_tokens": 1, "tools": [tool]});
    let answer = server.chat(body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    // One that was set is still refused, whatever is null beside it.
    let body = json!({"prompt": STORY, "best_of": null, "suffix": ""});
    server.complete(body).is_refused(400, Some("suffix"));
}

#[test]
fn what_is_wrong_is_said_in_the_client_s_words() {
    let server = Server::shared();
    let schema = json!({"name": "x", "schema": {"type": "objekt"}});
    for (more, words) in [
        (json!({"response_format": "json"}), "string \"json\", expected an object"),
        (json!({"tools": ["weather"]}), "string \"weather\", expected an object"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": schema}}),
            "the form of the answer is none that can be compiled (Invalid type: objekt), expected a JSON schema",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "messages have a part of type \"image_url\", expected \"text\"",
        ),
    ] {
        let mut body = json!({"messages": question()});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let param = more.as_object().unwrap().keys().next().unwrap().clone();
        let message = server.chat(body).is_refused(400, Some(&param));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn contradictions_in_a_chat_are_named() {
    let server = Server::shared();
    let tool = json!({"type": "function", "function": {"name": "f"}});
    for (more, param) in [
        (json!({"messages": []}), "messages"),
        (json!({"messages": null}), "messages"),
        (json!({"messages": [{"role": "king", "content": "x"}]}), "messages"),
        (json!({"messages": [{"role": "user", "content": 7}]}), "messages"),
        (json!({"messages": [{"role": "user"}]}), "messages"),
        (json!({"messages": [{"role": "system", "content": null}]}), "messages"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "messages"),
        (json!({"messages": [{"role": "user", "content": "x ".repeat(2_000)}]}), "messages"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": 5, "max_completion_tokens": 6}), "max_completion_tokens"),
        (json!({"max_completion_tokens": 100_000}), "max_completion_tokens"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"tool_choice": "auto"}), "tool_choice"),
        (json!({"tools": [tool], "tool_choice": "maybe"}), "tool_choice"),
        (
            json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
            "tool_choice",
        ),
        (json!({"tools": [{"type": "retrieval"}]}), "tools"),
        (json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}), "tools"),
        (json!({"tools": [tool, tool]}), "tools"),
        (
            json!({"tools": vec![json!({"type": "function", "function": {"name": "f"}}); 129]}),
            "tools",
        ),
        (
            json!({"tools": [tool], "tool_choice": "required", "structured_outputs": {"regex": "a"}}),
            "tools",
        ),
        (json!({"response_format": {"type": "xml"}}), "response_format"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format"),
        (json!({"chat_template_kwargs": {"messages": []}}), "chat_template_kwargs"),
        (json!({"chat_template_kwargs": {"add_generation_prompt": false}}), "chat_template_kwargs"),
        (json!({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}), "chat_template_kwargs"),
        (json!({"prompt": "x"}), "prompt"),
    ] {
        let mut body = json!({"messages": question()});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.chat(body).is_refused(400, Some(param));
    }
    server.wait_until_idle();
}

#[test]
fn what_is_no_request_is_refused_in_the_same_envelope() {
    let server = Server::shared();
    let json = [("content-type", "application/json")];
    for body in ["", "{", "[]", "7", "{\"prompt\": \"\u{0}", "null"] {
        server.post_with("/v1/completions", body, &json).is_refused(400, None);
    }
    let text = server.post_with("/v1/completions", "{}", &[("content-type", "text/plain")]);
    assert!(text.is_refused(415, None).contains("text/plain, expected application/json"));
    server.get("/v1/completions").is_refused(405, None);
    // Whatever it is sent: there is nothing here to send it to.
    server.post_with("/version", "", &[]).is_refused(405, None);
    server.get("/v1/nothing").is_refused(404, None);
    let other = server.complete(json!({"model": "gpt", "prompt": STORY}));
    assert!(other.is_refused(404, Some("model")).contains("target"));
    server.get("/v1/models/gpt").is_refused(404, Some("model"));
    let unreadable = server.get("/v1/models/%ff").is_refused(404, Some("model"));
    assert_eq!(unreadable, "model is not UTF-8, expected \"target\"");
}

#[test]
fn bodies_and_headers_that_are_too_large_are_not_read() {
    use std::io::{Read, Write};
    let server = Server::shared();
    let huge = json!({"prompt": "x".repeat(5 << 20)});
    server.complete(huge).is_refused(413, None);
    // Without a length, as much is read as may come, and no more.
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    let head = "host: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked";
    write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    while stream.write_all(chunk.as_bytes()).is_ok() {}
    drop(stream);
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    let line = format!("x-much: {}\r\n", "y".repeat(1_000));
    let mut sent = write!(stream, "GET /version HTTP/1.1\r\nhost: x\r\n");
    for _ in 0..1_000 {
        sent = sent.and_then(|()| stream.write_all(line.as_bytes()));
    }
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    assert!(!said.contains(" 200 "), "{said}");
    assert_eq!(server.get("/version").status, 200);
}

#[test]
fn what_is_expected_is_said_in_terms_of_json() {
    let server = Server::shared();
    for (parameter, value, said) in [
        (
            "max_tokens",
            json!("5"),
            "max_tokens: invalid type: string \"5\", expected a whole number, 0 or more",
        ),
        ("top_k", json!(1.5), "top_k: invalid type: floating point `1.5`, expected a whole number"),
        (
            "temperature",
            json!("hot"),
            "temperature: invalid type: string \"hot\", expected a number",
        ),
        ("stop_token_ids", json!(7), "stop_token_ids: invalid type: integer `7`, expected a list"),
        ("logit_bias", json!(7), "logit_bias: invalid type: integer `7`, expected an object"),
        ("stop", json!([1]), "stop: expected a string or a list of strings"),
    ] {
        let mut body = json!({"prompt": STORY});
        body[parameter] = value;
        assert_eq!(server.complete(body).is_refused(400, Some(parameter)), said);
    }
}

#[test]
fn a_body_that_breaks_off_is_said_to() {
    use std::io::{Read, Write};
    let server = Server::shared();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json";
    for (framed, body) in
        [("content-length: 100", "{"), ("transfer-encoding: chunked", "no number\r\n")]
    {
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        write!(stream, "{head}\r\n{framed}\r\n\r\n{body}").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 400 "), "{framed}: {said}");
        assert!(said.contains("could not be read to its end"), "{framed}: {said}");
    }
}

#[test]
fn the_prompt_s_log_probabilities_are_capped() {
    let server = Server::start(|options| options.queue = 4, &[]);
    let prompt = vec![100; 2_049];
    let refused =
        server.complete(json!({"prompt": prompt, "echo": true, "logprobs": 1, "max_tokens": 0}));
    refused.is_refused(400, Some("logprobs"));
    // The same without them is too long for the model, and not for the rule above.
    let refused = server.complete(json!({"prompt": vec![100; 2_049], "max_tokens": 0}));
    refused.is_refused(400, Some("prompt"));
}

#[test]
fn more_than_the_queue_holds_is_refused_and_nothing_of_it_runs() {
    let server = Server::start(
        |options| {
            options.queue = 4;
            options.running = 2;
        },
        &[],
    );
    // Nobody need try again what can never be taken.
    let ask = |more: Value| {
        let mut body = json!({"prompt": STORY, "max_tokens": 50});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.complete(body)
    };
    ask(json!({"n": 100})).is_refused(400, Some("n"));
    ask(json!({"prompt": vec![STORY; 7]})).is_refused(400, Some("prompt"));
    // What could be taken at another time, they may.
    let long = || EngineRequest::new(vec![5; 4], 400);
    let waiting: Vec<_> = (0..3).map(|_| server.engine.submit(long()).unwrap()).collect();
    let refused = ask(json!({"n": 6}));
    refused.is_refused(429, None);
    assert_eq!(refused.json()["error"]["code"], "queue_full");
    server.wait_until("none of them runs", |server| server.engine.state().running > 0);
    drop(waiting);
    server.wait_until_idle();
    assert_eq!(server.complete(json!({"prompt": STORY, "n": 2, "max_tokens": 5})).status, 200);
}

#[test]
fn whoever_need_not_wait_is_not_refused_for_a_short_queue() {
    let server = Server::start(|options| (options.queue, options.running) = (1, 8), &[]);
    let ask = |n: usize| server.complete(json!({"prompt": STORY, "max_tokens": 20, "n": n}));
    assert_eq!(ask(2).status, 200);
    // Eight run and one waits.
    assert_eq!(ask(9).status, 200);
    let message = ask(10).is_refused(400, Some("n"));
    assert!(message.contains("at most 9, as many as may run and wait"), "{message}");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(1).status)).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), 200);
        }
    });
}

#[test]
fn one_refusal_does_not_hide_another() {
    // A request with several mistakes is refused for one of them, whatever their order.
    let server = Server::shared();
    let refused = server.complete(json!({"n": "x", "temperature": "y", "prompt": 1.5}));
    let error: Value = refused.json()["error"].clone();
    assert!(["n", "temperature", "prompt"].contains(&error["param"].as_str().unwrap()));
}
