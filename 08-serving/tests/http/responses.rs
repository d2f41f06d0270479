//! `POST /v1/responses`: what a chat completion says, in other words.

use super::forms::HEAVY;
use super::server::{Answer, Server, question, with};
use super::thoughts;
use serde_json::{Value, json};

fn respond(server: &Server, body: &Value) -> Value {
    let answer = server.post("/v1/responses", body);
    assert_eq!(answer.status, 200, "{body}: {}", answer.text);
    answer.json()
}

/// Events, in the order in which they are numbered.
fn events(answer: &Answer) -> Vec<Value> {
    let events = answer.named_events();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    events
}

/// A response without what is different each time: names, and what was known of the prompt.
fn without_names(mut response: Value) -> Value {
    for key in ["id", "created_at", "completed_at"] {
        response.as_object_mut().unwrap().remove(key);
    }
    for item in response["output"].as_array_mut().unwrap() {
        item.as_object_mut().unwrap().remove("id");
        item.as_object_mut().unwrap().remove("call_id");
    }
    response["usage"]["input_tokens_details"]["cached_tokens"] = json!(0);
    response
}

/// What a client makes of a stream that keeps to what its events say: the last response, whose output is what they add up to.
#[track_caller]
fn added_up(events: &[Value]) -> Value {
    let [created, begun, rest @ .., last] = events else { panic!("{events:?}") };
    for (event, kind) in [(created, "response.created"), (begun, "response.in_progress")] {
        assert_eq!(event["type"], kind);
        assert_eq!(event["response"]["status"], "in_progress");
        assert_eq!(event["response"]["output"], json!([]));
        assert!(event["response"]["usage"].is_null());
    }
    let (mut items, mut text) = (Vec::new(), String::new());
    let (mut id, mut told) = (Value::Null, Vec::new());
    for event in rest {
        assert_eq!(event["output_index"], items.len(), "{event}");
        if let (Some(_), Some(logprobs)) = (event.get("delta"), event.get("logprobs")) {
            told.extend(logprobs.as_array().unwrap().clone());
        }
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => {
                assert_eq!(event["item"]["status"], "in_progress");
                assert!(text.is_empty(), "one after another: {event}");
                id = event["item"]["id"].clone();
            }
            "response.content_part.added" => assert_eq!(event["part"]["text"], ""),
            "response.output_text.delta"
            | "response.reasoning_text.delta"
            | "response.function_call_arguments.delta" => text += event["delta"].as_str().unwrap(),
            "response.output_text.done" | "response.reasoning_text.done" => {
                assert_eq!(event["text"], text);
            }
            "response.content_part.done" => assert_eq!(event["part"]["text"], text),
            "response.function_call_arguments.done" => assert_eq!(event["arguments"], text),
            "response.output_item.done" => {
                let item = &event["item"];
                let said = item.get("arguments").unwrap_or(&item["content"][0]["text"]);
                assert_eq!(*said, text);
                if let Some(all) = item["content"][0]["logprobs"].as_array() {
                    assert_eq!(*all, told, "{event}");
                }
                items.push(item.clone());
                (text, told) = (String::new(), Vec::new());
            }
            other => panic!("{other}"),
        }
        let of = event.get("item_id").unwrap_or(&event["item"]["id"]);
        assert!(*of == id && id.as_str().unwrap().contains('_'), "{event}");
        assert!(event.get("content_index").is_none_or(|at| *at == 0), "{event}");
    }
    let kind = format!("response.{}", last["response"]["status"].as_str().unwrap());
    assert_eq!(last["type"], kind);
    assert_eq!(last["response"]["output"], Value::Array(items));
    last["response"].clone()
}

/// The same whole and streamed; what it is.
#[track_caller]
fn whole_and_streamed(server: &Server, body: &Value) -> Value {
    let whole = respond(server, body);
    let streamed = server.post("/v1/responses", &with(body.clone(), json!({"stream": true})));
    let streamed = added_up(&events(&streamed));
    assert_eq!(without_names(streamed), without_names(whole.clone()), "{body}");
    whole
}

#[test]
fn a_response_says_what_a_chat_completion_says() {
    let server = Server::shared();
    let rules = "Answer in one sentence.";
    let messages = json!([{"role": "system", "content": rules}, question()[0]]);
    for more in [json!({"temperature": 0}), json!({"seed": 3, "top_p": 0.9})] {
        let chat = server.chat(with(json!({"messages": messages}), more.clone())).json();
        for input in [json!("Who are you?"), question()] {
            let body = with(json!({"input": input, "instructions": rules}), more.clone());
            let response = whole_and_streamed(server, &body);
            let said = &response["output"][0];
            assert_eq!(said["content"][0]["text"], chat["choices"][0]["message"]["content"]);
            assert_eq!((&said["type"], &said["role"]), (&json!("message"), &json!("assistant")));
            assert_eq!(response["status"], "completed");
            assert!(response["completed_at"].as_u64() >= response["created_at"].as_u64());
            let [usage, other] = [&response["usage"], &chat["usage"]];
            assert_eq!(usage["input_tokens"], other["prompt_tokens"]);
            assert_eq!(usage["output_tokens"], other["completion_tokens"]);
            assert_eq!(usage["total_tokens"], other["total_tokens"]);
            assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
            assert_eq!(response["instructions"], rules);
            assert_eq!(response["store"], false);
            let asked = more["top_p"].as_f64().unwrap_or(1.0);
            assert!((response["top_p"].as_f64().unwrap() - asked).abs() < 1e-6, "{response}");
        }
    }
    server.wait_until_idle();
}

#[test]
fn log_probabilities_are_told_of_what_is_said() {
    let server = Server::shared();
    let more = json!({"temperature": 0, "top_logprobs": 2});
    let include = json!(["message.output_text.logprobs", "reasoning.encrypted_content"]);
    let body = with(json!({"input": "Who are you?", "include": include}), more.clone());
    let response = whole_and_streamed(server, &body);
    let chat = with(json!({"messages": question(), "logprobs": true}), more);
    let chat = server.chat(chat).json();
    let told = &response["output"][0]["content"][0]["logprobs"];
    assert_eq!(*told, chat["choices"][0]["logprobs"]["content"]);
    assert_eq!(told[0]["top_logprobs"].as_array().unwrap().len(), 2);
    let streamed = server.post("/v1/responses", &with(body, json!({"stream": true})));
    let deltas =
        events(&streamed).into_iter().filter(|e| e["type"] == "response.output_text.delta");
    let deltas: Vec<Value> =
        deltas.flat_map(|e| e["logprobs"].as_array().unwrap().clone()).collect();
    assert_eq!(Value::Array(deltas), *told);
}

#[test]
fn an_answer_that_is_cut_off_is_incomplete() {
    let body = json!({"input": "Who are you?", "temperature": 0, "max_output_tokens": 3});
    let response = whole_and_streamed(Server::shared(), &body);
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(response["usage"]["output_tokens"], 3);
    assert!(response["completed_at"].is_null());
}

fn tools() -> Value {
    json!([
        {"type": "function", "name": "weather", "description": "tells the weather", "strict": true, "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
            "additionalProperties": false}},
        {"type": "function", "name": "now"},
    ])
}

#[test]
fn calls_are_items_and_what_they_give_back_is_read() {
    let server = Server::shared();
    let body = json!({"input": "Weather?", "tools": tools(), "seed": 1});
    let named = json!({"type": "function", "name": "weather"});
    let allowed = json!({"type": "allowed_tools", "mode": "required",
        "tools": [{"type": "function", "name": "weather"}]});
    for choice in [json!("required"), named.clone(), allowed] {
        let response =
            whole_and_streamed(server, &with(body.clone(), json!({"tool_choice": choice})));
        assert_eq!(response["tool_choice"], choice);
        assert_eq!(response["tools"][0]["name"], "weather");
        let [call] = response["output"].as_array().unwrap().as_slice() else {
            panic!("{response}")
        };
        assert_eq!(
            (&call["type"], &call["status"]),
            (&json!("function_call"), &json!("completed"))
        );
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        if choice != "required" {
            assert_eq!(call["name"], "weather");
            assert!(["Rome", "Oslo"].contains(&arguments["city"].as_str().unwrap()));
        }
        // The answer goes back as it is, and what was called gives something back.
        let mut input = vec![question()[0].clone()];
        input.extend(response["output"].as_array().unwrap().clone());
        input.push(
            json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}),
        );
        respond(server, &json!({"input": input, "tools": tools(), "max_output_tokens": 5}));
    }
    // Calls that the model makes by itself, and what it says around them.
    let call = "{\"name\": \"now\", \"arguments\": {}}";
    let said = format!("Well. [TOOL_CALLS] [{call}, {call}]");
    let forced = json!({"structured_outputs": {"choice": [said]}});
    let response = whole_and_streamed(server, &with(body.clone(), forced.clone()));
    let kinds: Vec<_> =
        response["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call"]);
    assert_eq!(response["output"][0]["content"][0]["text"], "Well. ");
    // What follows a call follows it, also where both come at once.
    let said = format!("<tool_call>{call}</tool_call>\nand more");
    let held = json!({"structured_outputs": {"choice": [said]}, "stop": ["</tool_call>\nor"]});
    let response = whole_and_streamed(server, &with(body.clone(), held));
    let items = response["output"].as_array().unwrap();
    let kinds: Vec<_> = items.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["function_call", "message"]);
    assert_eq!(items[1]["content"][0]["text"], "\nand more");
    // Of what is said around them log-probabilities are told, and of nothing else.
    let told = json!({"include": ["message.output_text.logprobs"]});
    let response = whole_and_streamed(server, &with(with(body.clone(), forced.clone()), told));
    let logprobs = response["output"][0]["content"][0]["logprobs"].as_array().unwrap();
    let tokens: String = logprobs.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert!(tokens.starts_with("Well") && !tokens.contains("now"), "{tokens}");
    let one = with(with(body, forced), json!({"parallel_tool_calls": false}));
    assert_eq!(respond(server, &one)["output"].as_array().unwrap().len(), 2);
}

#[test]
fn thoughts_are_an_item_of_their_own() {
    let server = thoughts::server();
    let body = json!({"input": "Who are you?", "seed": 1, "max_output_tokens": 120,
        "tools": tools(), "tool_choice": {"type": "function", "name": "now"}});
    let thought = |bias: i32| {
        let response =
            whole_and_streamed(server, &with(body.clone(), json!({"logit_bias": {"1": bias}})));
        let items = response["output"].as_array().unwrap().clone();
        let [thoughts, call] = items.as_slice() else { return false };
        assert_eq!(
            (&thoughts["type"], &call["type"]),
            (&json!("reasoning"), &json!("function_call"))
        );
        assert_eq!((&thoughts["summary"], &thoughts["status"]), (&json!([]), &json!("completed")));
        let part = &thoughts["content"][0];
        assert_eq!(part["type"], "reasoning_text");
        assert!(!part["text"].as_str().unwrap().is_empty());
        let usage = &response["usage"];
        let thought = usage["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
        // White space, and the mark that closes them, besides.
        let own = server.post("/tokenize", &json!({"prompt": part["text"]})).json()["count"]
            .as_u64()
            .unwrap();
        assert!((own..own + 5).contains(&thought), "{thought} of {own}: {response}");
        assert!(thought + 10 < usage["output_tokens"].as_u64().unwrap(), "{response}");
        true
    };
    assert!([9, 8, 7, 6].into_iter().any(thought), "nothing was thought");
    // What comes after thoughts and is held back at first is told of, all of it.
    let said = "<tool box> is it";
    let body = json!({"input": "Hi", "tools": tools(), "logit_bias": {"1": 9}, "seed": 1, "max_output_tokens": 200,
        "structured_outputs": {"choice": [said]}, "include": ["message.output_text.logprobs"]});
    let response = whole_and_streamed(server, &body);
    let part = &response["output"].as_array().unwrap().last().unwrap()["content"][0];
    assert_eq!(part["text"], said);
    let tokens = part["logprobs"].as_array().unwrap().iter();
    let tokens: String = tokens.map(|token| token["token"].as_str().unwrap()).collect();
    assert!(tokens.trim_start().starts_with(said), "{tokens}");
    let endless = json!({"input": "Hi", "temperature": 0, "max_output_tokens": 12,
        "logit_bias": {"1": -100, "0": -100, "4": -100}});
    let response = whole_and_streamed(server, &endless);
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(response["usage"]["output_tokens_details"]["reasoning_tokens"], 12);
}

#[test]
fn an_answer_is_held_to_its_form() {
    let server = Server::shared();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
        "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "ok", "schema": schema, "strict": true});
    let body = json!({"input": "Are you well?", "temperature": 0, "text": {"format": format, "verbosity": "low"}});
    let response = whole_and_streamed(server, &body);
    let said = response["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(said).unwrap()["ok"].is_boolean(), "{said}");
    assert_eq!(response["text"]["format"], format);
    let object =
        json!({"input": "a", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 2});
    assert!(
        respond(server, &object)["output"][0]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with('{')
    );
    // One that turns out to be too much: whole it is refused, and a stream ends as failed.
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": format!("^{HEAVY}$")}},
        "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "x", "schema": schema});
    let body = json!({"input": "a", "text": {"format": format}, "temperature": 0, "max_output_tokens": 200});
    let message = server.post("/v1/responses", &body).is_refused(400, Some("text"));
    let streamed = server.post("/v1/responses", &with(body, json!({"stream": true})));
    let events = events(&streamed);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["error"], json!({"code": "invalid_prompt", "message": message}));
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
}

#[test]
fn what_a_response_cannot_be_is_refused_by_name() {
    let server = Server::shared();
    for (more, param, words) in [
        (json!({"input": null}), "input", "missing"),
        (json!({"input": []}), "input", "at least one item"),
        (json!({"input": 5}), "input", "expected a text or a list of items"),
        (json!({"input": [{"type": "item_reference", "id": "a"}]}), "input", "item_reference"),
        (json!({"input": "a ".repeat(600)}), "input", "tokens"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id", "whole conversation"),
        (json!({"conversation": "conv_1"}), "conversation", "whole conversation"),
        (json!({"background": true}), "background", "false"),
        (json!({"truncation": "never"}), "truncation", "disabled"),
        (json!({"metadata": "x"}), "metadata", "an object of at most 16 texts"),
        (json!({"metadata": {"a": 1}}), "metadata", "at most 16 texts"),
        (json!({"metadata": {"a": "é".repeat(513)}}), "metadata", "up to 512 characters"),
        (json!({"metadata": {"a".repeat(65): "b"}}), "metadata", "names of up to 64"),
        (
            json!({"metadata": (0..17).map(|i| (i.to_string(), json!("b"))).collect::<serde_json::Map<_, _>>()}),
            "metadata",
            "at most 16",
        ),
        (
            json!({"structured_outputs": {"json_object": true}, "text": {"format": {"type": "json_object"}}}),
            "structured_outputs",
            "to text,",
        ),
        (json!({"n": 2}), "n", "one answer"),
        (json!({"max_tokens": 5}), "max_tokens", "max_output_tokens"),
        (json!({"max_output_tokens": 0}), "max_output_tokens", "max_output_tokens is 0"),
        (json!({"max_output_tokens": 100_000}), "max_output_tokens", "tokens"),
        (json!({"return_token_ids": true}), "return_token_ids", "no place"),
        (json!({"top_logprobs": 2}), "top_logprobs", "include"),
        (
            json!({"top_logprobs": 21, "include": ["message.output_text.logprobs"]}),
            "top_logprobs",
            "20",
        ),
        (json!({"include": ["everything"]}), "include", "everything"),
        (json!({"tools": [{"type": "web_search"}]}), "tools", "web_search"),
        (json!({"tools": [{"type": "function"}]}), "tools", "name"),
        (json!({"tool_choice": "required"}), "tool_choice", "without tools"),
        (
            json!({"tools": tools(), "tool_choice": {"type": "function", "name": "x"}}),
            "tool_choice",
            "x",
        ),
        (json!({"text": {"format": {"type": "xml"}}}), "text", "xml"),
        (json!({"temperature": -1}), "temperature", "-1"),
        (json!({"messages": question()}), "messages", "no parameter"),
        (json!({"stream_options": {"include_obfuscation": false}}), "stream_options", "stream"),
    ] {
        let body = with(json!({"input": "Who are you?"}), more);
        let message = server.post("/v1/responses", &body).is_refused(400, Some(param));
        assert!(message.contains(words), "{body}: {message}");
    }
    server
        .post("/v1/responses", &json!({"input": "a", "model": "x"}))
        .is_refused(404, Some("model"));
    // Clients write what nobody set as null, and what only OpenAI looks at.
    let body = json!({
        "input": "a", "max_output_tokens": 2, "previous_response_id": null, "conversation": null, "background": false,
        "prompt": null, "store": true, "truncation": "auto", "client_metadata": {"a": 1}, "tool_choice": "auto",
        "tools": [], "service_tier": "auto", "metadata": {"a": "b"},
        "prompt_cache_key": "a", "reasoning": {"effort": "low", "summary": "auto"}, "max_tool_calls": 3, "n": 1,
        "text": {"format": {"type": "text"}}, "include": [],
    });
    respond(
        server,
        &json!({"input": "a", "max_output_tokens": 2, "tools": [
        {"type": "function", "name": "now", "output_schema": null, "strict": null}]}),
    );
    let response = respond(server, &body);
    assert_eq!(response["text"]["format"], json!({"type": "text"}));
    assert_eq!(
        (&response["metadata"], &response["reasoning"]["effort"]),
        (&json!({"a": "b"}), &json!("low"))
    );
    server.wait_until_idle();
}
