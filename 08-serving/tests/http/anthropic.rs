//! `POST /v1/messages`: what a chat completion says, in Anthropic's words.

use super::forms::HEAVY;
use super::server::{Server, question, with};
use super::thoughts;
use serde_json::{Value, json};

const PATH: &str = "/v1/messages";

fn message(server: &Server, body: &Value) -> Value {
    let answer = server.post(PATH, body);
    assert_eq!(answer.status, 200, "{body}: {}", answer.text);
    answer.json()
}

/// What Anthropic's clients make of a stream.
#[track_caller]
fn added_up(events: &[Value]) -> Value {
    let [start, rest @ .., end, stop] = events else { panic!("{events:?}") };
    assert_eq!((&start["type"], &stop["type"]), (&json!("message_start"), &json!("message_stop")));
    let mut message = start["message"].clone();
    assert_eq!(message["content"], json!([]));
    assert!(message["stop_reason"].is_null() && message["stop_sequence"].is_null());
    assert_eq!(message["usage"]["output_tokens"], 0);
    let mut blocks: Vec<Value> = Vec::new();
    let (mut is_open, mut json) = (false, String::new());
    for event in rest {
        let kind = event["type"].as_str().unwrap();
        let before = blocks.len() - usize::from(kind != "content_block_start");
        assert_eq!(event["index"], before, "{event}");
        assert_eq!(is_open, kind != "content_block_start", "one after another: {event}");
        match kind {
            "content_block_start" => {
                blocks.push(event["content_block"].clone());
                is_open = true;
            }
            "content_block_delta" => {
                let (block, delta) = (&mut blocks[before], &event["delta"]);
                let (key, of) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", "text"),
                    "thinking_delta" => ("thinking", "thinking"),
                    "input_json_delta" => ("partial_json", "tool_use"),
                    other => panic!("{other}"),
                };
                assert_eq!(block["type"], of);
                let more = delta[key].as_str().unwrap();
                assert!(!more.is_empty());
                match of {
                    "tool_use" => json += more,
                    of => block[of] = json!(block[of].as_str().unwrap().to_owned() + more),
                }
            }
            "content_block_stop" => {
                is_open = false;
                if blocks[before]["type"] == "tool_use" {
                    assert_eq!(blocks[before]["input"], json!({}));
                    let said = std::mem::take(&mut json);
                    blocks[before]["input"] = serde_json::from_str(&said).unwrap_or(json!({}));
                }
            }
            other => panic!("{other}"),
        }
    }
    assert!(!is_open);
    assert_eq!(end["type"], "message_delta");
    message["content"] = Value::Array(blocks);
    message["usage"] = end["usage"].clone();
    with(message, end["delta"].clone())
}

/// A message without what is different each time: names, and what was known of the prompt.
fn without_names(mut message: Value) -> Value {
    message.as_object_mut().unwrap().remove("id");
    for block in message["content"].as_array_mut().unwrap() {
        block.as_object_mut().unwrap().remove("id");
    }
    let usage = &mut message["usage"];
    let known = usage["cache_read_input_tokens"].as_u64().unwrap();
    usage["input_tokens"] = json!(usage["input_tokens"].as_u64().unwrap() + known);
    usage["cache_read_input_tokens"] = json!(0);
    message
}

/// The same whole and streamed; what it is.
#[track_caller]
fn whole_and_streamed(server: &Server, body: &Value) -> Value {
    let whole = message(server, body);
    let streamed = server.post(PATH, &with(body.clone(), json!({"stream": true})));
    let streamed = added_up(&streamed.named_events());
    assert_eq!(without_names(streamed), without_names(whole.clone()), "{body}");
    whole
}

#[test]
fn a_message_says_what_a_chat_completion_says() {
    let server = Server::shared();
    let rules = "Answer in one sentence.";
    let messages = json!([{"role": "system", "content": rules}, question()[0]]);
    for more in [json!({"temperature": 0}), json!({"seed": 3, "top_p": 0.9, "top_k": 40})] {
        let chat = server.chat(with(json!({"messages": messages}), more.clone())).json();
        let block = json!({"type": "text", "text": rules, "cache_control": {"type": "ephemeral"}});
        let asked =
            json!([{"role": "user", "content": [{"type": "text", "text": "Who are you?"}]}]);
        for body in [
            json!({"messages": question(), "system": rules, "max_tokens": 200}),
            json!({"messages": asked, "system": [block], "model": "target", "metadata": {"user_id": "a"},
                "thinking": {"type": "disabled"}, "speed": "standard", "tool_choice": {"type": "auto"}}),
            json!({"messages": messages, "max_tokens": 200, "thinking": {"type": "enabled", "budget_tokens": 99}}),
        ] {
            let message = whole_and_streamed(server, &with(body, more.clone()));
            let text = &chat["choices"][0]["message"]["content"];
            assert_eq!(message["content"], json!([{"type": "text", "text": text}]));
            assert_eq!(
                (&message["type"], &message["role"]),
                (&json!("message"), &json!("assistant"))
            );
            assert_eq!(
                (&message["model"], &message["stop_reason"]),
                (&json!("target"), &json!("end_turn"))
            );
            assert!(message["id"].as_str().unwrap().starts_with("msg_"));
            let [usage, other] = [&message["usage"], &chat["usage"]];
            let read =
                ["input_tokens", "cache_read_input_tokens"].map(|key| usage[key].as_u64().unwrap());
            assert_eq!(read[0] + read[1], other["prompt_tokens"].as_u64().unwrap());
            assert_eq!(usage["output_tokens"], other["completion_tokens"]);
            assert_eq!(usage["output_tokens_details"]["thinking_tokens"], 0);
        }
    }
    server.wait_until_idle();
}

#[test]
fn what_is_known_of_a_conversation_is_told_apart() {
    let server = Server::start(|_| {}, &[]);
    let long = json!([{"role": "user", "content": "Who are you? ".repeat(40)}]);
    let body = json!({"messages": long, "max_tokens": 1});
    let usage = [(); 2].map(|()| message(&server, &body)["usage"].clone());
    let all = server.post("/v1/messages/count_tokens", &body).json()["input_tokens"].clone();
    assert_eq!(
        (&usage[0]["input_tokens"], &usage[0]["cache_read_input_tokens"]),
        (&all, &json!(0))
    );
    let [unknown, known] =
        ["input_tokens", "cache_read_input_tokens"].map(|key| usage[1][key].as_u64().unwrap());
    assert!(known > 0 && unknown > 0, "{}", usage[1]);
    assert_eq!(json!(known + unknown), all);
}

/// Claude Code's rules begin with a line that is another each time.
#[test]
fn a_line_for_anthropic_alone_is_not_read() {
    let tokens = |system: Value| {
        let body = json!({"messages": question(), "system": system});
        Server::shared().post("/v1/messages/count_tokens", &body).json()["input_tokens"].clone()
    };
    let line = "x-anthropic-billing-header: cc_version=2.1.36.0d9; cc_entrypoint=cli; cch=fa690;";
    let block = |text: &str| json!({"type": "text", "text": text});
    let plain = tokens(json!("Be brief."));
    assert!(plain.is_u64());
    assert_eq!(tokens(json!([block(line), block("Be brief.")])), plain);
    assert_eq!(tokens(json!(format!("{line}\nBe brief."))), plain);
    assert_eq!(tokens(json!([block(line)])), tokens(Value::Null));
    // Only where it is the first.
    assert_ne!(tokens(json!([block("Be brief."), block(line)])), plain);
}

#[test]
fn an_answer_says_how_it_ended() {
    let server = Server::shared();
    let body = json!({"messages": question(), "temperature": 0});
    let cut = whole_and_streamed(server, &with(body.clone(), json!({"max_tokens": 3})));
    assert_eq!(
        (&cut["stop_reason"], &cut["usage"]["output_tokens"]),
        (&json!("max_tokens"), &json!(3))
    );
    let text = message(server, &body)["content"][0]["text"].as_str().unwrap().to_owned();
    let stop = text.split(' ').nth(2).unwrap();
    let stopped =
        whole_and_streamed(server, &with(body.clone(), json!({"stop_sequences": ["zzz", stop]})));
    assert_eq!(
        (&stopped["stop_reason"], &stopped["stop_sequence"]),
        (&json!("stop_sequence"), &json!(stop))
    );
    assert!(!stopped["content"][0]["text"].as_str().unwrap().contains(stop));
    // Clients ask for as much as Anthropic's models would write: here it ends where the room does.
    for most in [json!({"max_tokens": 32_000}), json!({})] {
        let endless = with(
            with(
                body.clone(),
                json!({"ignore_eos": true, "messages": [{
            "role": "user", "content": "a ".repeat(480)}]}),
            ),
            most,
        );
        let ended = whole_and_streamed(server, &endless);
        assert_eq!(ended["stop_reason"], "model_context_window_exceeded");
    }
    let silent =
        whole_and_streamed(server, &with(body, json!({"allowed_token_ids": [4], "max_tokens": 5})));
    assert_eq!((&silent["content"], &silent["stop_reason"]), (&json!([]), &json!("end_turn")));
}

#[test]
fn blocks_are_read_as_messages_are() {
    let server = Server::shared();
    let tools = json!([{"name": "now", "input_schema": {"type": "object", "properties": {}}, "type": "custom"}]);
    let called =
        |id: &str| json!({"type": "tool_use", "id": id, "name": "now", "input": {"zone": "Rome"}});
    let text = |text: &str| json!({"type": "text", "text": text});
    let gave = |id: &str, content: Value| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    let blocks = json!([
        {"role": "user", "content": [text("What"), text("time?")]},
        {"role": "user", "content": [text("Well?"), text("Now.")]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "redacted_thinking", "data": "x"}, text("I"), text("look."), called("a"), called("b")]},
        {"role": "user", "content": [gave("a", json!("noon")), gave("b", json!([text("one"), text("two")])),
            {"type": "tool_result", "tool_use_id": "c", "is_error": true}, text("And?")]},
        {"role": "assistant", "content": "It is"},
        {"role": "assistant", "content": "noon."},
        {"role": "user", "content": "Thanks."},
    ]);
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "now", "arguments": {"zone": "Rome"}}});
    let back = |id: &str, text: &str| json!({"role": "tool", "content": text, "tool_call_id": id});
    let messages = json!([
        {"role": "user", "content": "What\ntime?\n\nWell?\nNow."},
        {"role": "assistant", "content": "I\nlook.", "reasoning_content": "Hm.", "tool_calls": [call("a"), call("b")]},
        back("a", "noon"), back("b", "one\ntwo"), back("c", ""),
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "It is\n\nnoon."},
        {"role": "user", "content": "Thanks."},
    ]);
    let functions = json!([{"type": "function", "function": {"name": "now", "parameters": tools[0]["input_schema"]}}]);
    for server in [server, thoughts::server()] {
        let more = json!({"temperature": 0, "max_tokens": 20});
        let chat = with(json!({"messages": messages, "tools": functions}), more.clone());
        let chat = server.chat(chat).json();
        let body = with(json!({"messages": blocks, "tools": tools}), more);
        let said = whole_and_streamed(server, &body);
        let usage = &said["usage"];
        let read =
            ["input_tokens", "cache_read_input_tokens"].map(|key| usage[key].as_u64().unwrap());
        assert_eq!(json!(read[0] + read[1]), chat["usage"]["prompt_tokens"]);
        assert_eq!(
            server.post("/v1/messages/count_tokens", &body).json(),
            json!({"input_tokens": read[0] + read[1]})
        );
        let answer = &chat["choices"][0]["message"];
        let part = &said["content"][0];
        let text = if part["type"] == "thinking" {
            &answer["reasoning_content"]
        } else {
            &answer["content"]
        };
        assert_eq!(part.get("thinking").unwrap_or(&part["text"]), text);
    }
}

#[test]
fn an_answer_goes_on_with_what_the_assistant_has_begun() {
    let server = Server::shared();
    let begun = |content: Value| json!([question()[0], {"role": "assistant", "content": content}]);
    let more = json!({"temperature": 0, "max_tokens": 12});
    let chat = json!({"messages": begun(json!("I am a")), "continue_final_message": true});
    let chat = server.chat(with(chat, more.clone())).json();
    for content in [json!("I am a"), json!([{"type": "text", "text": "I am a"}])] {
        let body = with(json!({"messages": begun(content)}), more.clone());
        let text = &whole_and_streamed(server, &body)["content"][0]["text"];
        assert_eq!(*text, chat["choices"][0]["message"]["content"]);
    }
    let whole = message(server, &with(json!({"messages": question()}), more.clone()));
    for content in [json!(""), json!([])] {
        let body = with(json!({"messages": begun(content)}), more.clone());
        assert_eq!(message(server, &body)["content"], whole["content"]);
    }
}

fn tools() -> Value {
    json!([
        {"name": "weather", "description": "tells the weather", "strict": true, "input_schema": {
            "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
            "additionalProperties": false}},
        {"name": "now", "input_schema": {"type": "object"}, "eager_input_streaming": true},
    ])
}

#[test]
fn calls_are_blocks() {
    let server = Server::shared();
    let body = json!({"messages": [{"role": "user", "content": "Weather?"}], "tools": tools(), "seed": 1,
        "max_tokens": 100});
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "weather"})] {
        let said = whole_and_streamed(server, &with(body.clone(), json!({"tool_choice": choice})));
        assert_eq!(said["stop_reason"], "tool_use");
        let [call] = said["content"].as_array().unwrap().as_slice() else { panic!("{said}") };
        assert_eq!(call["type"], "tool_use");
        if choice["name"] == "weather" {
            assert_eq!(call["name"], "weather");
            assert!(["Rome", "Oslo"].contains(&call["input"]["city"].as_str().unwrap()));
        }
        // The answer goes back as it is, and what was called gives something back.
        let given = json!([{"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}]);
        let messages = json!([question()[0], {"role": "assistant", "content": said["content"]},
            {"role": "user", "content": given}]);
        message(server, &json!({"messages": messages, "tools": tools(), "max_tokens": 5}));
    }
    // One that is cut off has no arguments yet.
    let cut = json!({"tool_choice": {"type": "tool", "name": "weather"}, "max_tokens": 16});
    let cut = whole_and_streamed(server, &with(body.clone(), cut));
    assert_eq!(cut["stop_reason"], "max_tokens");
    assert!(
        cut["content"].as_array().unwrap().iter().all(|call| call["input"] == json!({})),
        "{cut}"
    );
    // Calls that the model makes by itself, and what it says around them.
    let call = "{\"name\": \"now\", \"arguments\": {}}";
    let said = format!("Well. [TOOL_CALLS] [{call}, {call}]");
    let held = with(body.clone(), json!({"structured_outputs": {"choice": [said]}}));
    let kinds = |message: &Value| {
        let blocks = message["content"].as_array().unwrap().iter();
        blocks.map(|block| block["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let both = whole_and_streamed(server, &held);
    assert_eq!(kinds(&both), ["text", "tool_use", "tool_use"]);
    assert_eq!(both["stop_reason"], "tool_use");
    let one = json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
    assert_eq!(kinds(&whole_and_streamed(server, &with(held.clone(), one))), ["text", "tool_use"]);
    let none = json!({"tool_choice": {"type": "none"}});
    let none = whole_and_streamed(server, &with(held, none));
    assert_eq!((kinds(&none), &none["stop_reason"]), (vec!["text".to_owned()], &json!("end_turn")));
    let said = format!("<tool_call>{call}</tool_call>\nand more");
    let after =
        whole_and_streamed(server, &with(body, json!({"structured_outputs": {"choice": [said]}})));
    assert_eq!(kinds(&after), ["tool_use", "text"]);
}

#[test]
fn thoughts_are_a_block_of_their_own() {
    let server = thoughts::server();
    let body = json!({"messages": question(), "seed": 1, "max_tokens": 120, "tools": tools(),
        "tool_choice": {"type": "tool", "name": "now"}});
    let thought = |bias: i32| {
        let said =
            whole_and_streamed(server, &with(body.clone(), json!({"logit_bias": {"1": bias}})));
        let [thoughts, call] = said["content"].as_array().unwrap().as_slice() else { return false };
        assert_eq!((&thoughts["type"], &call["type"]), (&json!("thinking"), &json!("tool_use")));
        assert!(!thoughts["thinking"].as_str().unwrap().is_empty() && thoughts["signature"] == "");
        let usage = &said["usage"];
        let thought = usage["output_tokens_details"]["thinking_tokens"].as_u64().unwrap();
        assert!(thought > 0 && thought < usage["output_tokens"].as_u64().unwrap(), "{said}");
        true
    };
    assert!([9, 8, 7, 6].into_iter().any(thought), "nothing was thought");
}

#[test]
fn an_answer_is_held_to_its_form() {
    let server = Server::shared();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
        "additionalProperties": false});
    let config = |schema: &Value| json!({"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}}});
    let body = json!({"messages": question(), "temperature": 0, "max_tokens": 200});
    let said = whole_and_streamed(server, &with(body.clone(), config(&schema)));
    let text = said["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["ok"].is_boolean(), "{text}");
    // One that turns out to be too much: whole it is refused, and a stream ends with that.
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": format!("^{HEAVY}$")}},
        "required": ["a"], "additionalProperties": false});
    let body = with(body, config(&schema));
    let refused = server.post(PATH, &body);
    let told = refused.is_refused(400, Some("output_config"));
    let events = server.post(PATH, &with(body, json!({"stream": true}))).named_events();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["error"]["message"]), (&json!("error"), &json!(told)));
    assert_eq!(*last, refused.json());
}

#[test]
fn what_a_message_cannot_be_is_refused_in_kind() {
    let server = Server::shared();
    let block =
        |role: &str, block: Value| json!({"messages": [{"role": role, "content": [block]}]});
    for (more, param, words) in [
        (json!({"messages": null}), "messages", "missing"),
        (json!({"messages": []}), "messages", "at least one message"),
        (json!({"messages": [{"role": "tool", "content": "a"}]}), "messages", "assistant"),
        (json!({"messages": [{"role": "user", "content": ""}]}), "messages", "says nothing"),
        (json!({"messages": [{"role": "user", "content": 5}]}), "messages", "list of blocks"),
        (
            json!({"messages": [{"role": "user", "content": "a ".repeat(600)}]}),
            "messages",
            "prompt is too long: ",
        ),
        (block("user", json!({"type": "image", "source": {}})), "messages", "\"image\""),
        (block("user", json!({"type": "text"})), "messages", "without text"),
        (
            block("user", json!({"type": "tool_use", "id": "a", "name": "now", "input": {}})),
            "messages",
            "not the assistant's",
        ),
        (
            block("user", json!({"type": "tool_result", "content": "a"})),
            "messages",
            "without tool_use_id",
        ),
        (
            block("assistant", json!({"type": "tool_result", "tool_use_id": "a"})),
            "messages",
            "not the user's",
        ),
        (block("assistant", json!({"type": "tool_use", "name": "now"})), "messages", "without id"),
        (
            block("assistant", json!({"type": "thinking", "thinking": "Hm."})),
            "messages",
            "goes on with",
        ),
        (json!({"system": [{"type": "image"}]}), "system", "\"image\""),
        (json!({"stop": "a"}), "stop", "stop_sequences in its place"),
        (json!({"stop_sequences": [""]}), "stop_sequences", "at least one character"),
        (json!({"n": 2}), "n", "one answer"),
        (json!({"return_token_ids": true}), "return_token_ids", "no place"),
        (json!({"prompt_logprobs": 1}), "prompt_logprobs", "no place"),
        (json!({"max_tokens": 0}), "max_tokens", "at least 1"),
        (
            json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            "tools",
            "Anthropic's own",
        ),
        (json!({"tool_choice": {"type": "any"}}), "tool_choice", "without tools"),
        (
            json!({"tools": tools(), "tool_choice": {"type": "tool", "name": "x"}}),
            "tool_choice",
            "one of the tools",
        ),
        (json!({"thinking": {"type": "deep"}}), "thinking", "deep"),
        (json!({"messsages": 1}), "messsages", "no parameter"),
    ] {
        let body = with(json!({"messages": question()}), more);
        let counted = server.post("/v1/messages/count_tokens", &body);
        for answer in [Some(server.post(PATH, &body)), (counted.status != 200).then_some(counted)] {
            let Some(answer) = answer else { continue };
            let message = answer.is_refused(400, Some(param));
            assert!(message.contains(words), "{body}: {message}");
            let told = answer.json();
            assert_eq!(
                (&told["type"], &told["error"]["type"]),
                (&json!("error"), &json!("invalid_request_error"))
            );
        }
    }
    for (path, body, status, kind) in [
        (PATH, json!({"messages": question(), "model": "x"}), 404, "not_found_error"),
        ("/v1/messages/batches", json!({}), 404, "not_found_error"),
    ] {
        let answer = server.post(path, &body);
        assert_eq!(
            (answer.status, &answer.json()["error"]["type"]),
            (status, &json!(kind)),
            "{path}"
        );
        assert_eq!(answer.json()["type"], "error");
    }
    assert_eq!(server.get(PATH).json()["error"]["type"], "invalid_request_error");
    // Other paths have OpenAI's envelope.
    for path in ["/v1/messagess", "/v1/chat/completions"] {
        assert!(server.post(path, &json!({})).json().get("type").is_none(), "{path}");
    }
}

#[test]
fn a_key_comes_as_anthropics_clients_send_it() {
    let server = Server::start(|_| {}, &["ada"]);
    let body = json!({"messages": question(), "max_tokens": 1}).to_string();
    let post = |key: &[(&str, &str)]| {
        server.post_with(PATH, &body, &[key, &[("content-type", "application/json")]].concat())
    };
    assert_eq!(post(&[("x-api-key", "ada"), ("anthropic-version", "2023-06-01")]).status, 200);
    for key in
        [&[][..], &[("x-api-key", "eve")], &[("authorization", "Bearer eve"), ("x-api-key", "ada")]]
    {
        let refused = post(key);
        refused.is_refused(401, None);
        assert_eq!(refused.json()["error"]["type"], "authentication_error");
    }
}
