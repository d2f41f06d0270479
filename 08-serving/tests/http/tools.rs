//! Functions that a model may call.

use super::server::{Server, question};
use serde_json::{Value, json};

fn tools() -> Value {
    json!([
        {"type": "function", "function": {
            "name": "weather", "description": "tells the weather",
            "parameters": {
                "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
            },
        }},
        {"type": "function", "function": {"name": "now"}},
    ])
}

fn check(call: &Value) {
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    match call["function"]["name"].as_str().unwrap() {
        "weather" => {
            assert!(["Rome", "Oslo"].contains(&arguments["city"].as_str().unwrap()));
            assert_eq!(arguments.as_object().unwrap().len(), 1, "nothing that nobody named");
        }
        "now" => assert_eq!(arguments, json!({})),
        other => panic!("{other}"),
    }
    assert_eq!(call["type"], "function");
    let id = call["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
}

#[test]
fn a_demanded_call_conforms_whole_and_streamed() {
    let server = Server::shared();
    let named = json!({"type": "function", "function": {"name": "weather"}});
    for (choice, finish) in [(json!("required"), "tool_calls"), (named, "stop")] {
        for seed in 0..4 {
            let mut body = json!({
                "messages": question(), "tools": tools(), "tool_choice": choice, "seed": seed,
            });
            let whole = server.chat(body.clone());
            assert_eq!(whole.status, 200, "{}", whole.text);
            let whole = &whole.json()["choices"][0];
            assert_eq!(whole["finish_reason"], finish, "{whole}");
            assert!(whole["message"]["content"].is_null());
            let call = &whole["message"]["tool_calls"][0];
            check(call);
            body["stream"] = json!(true);
            let events = server.chat(body).events();
            let calls = events.iter().filter_map(|event| {
                event["choices"][0]["delta"]["tool_calls"].as_array()?.first().cloned()
            });
            let calls: Vec<Value> = calls.collect();
            assert_eq!(calls.len(), 1);
            assert_eq!(calls[0]["function"], call["function"]);
            assert_eq!(calls[0]["index"], 0);
        }
    }
}

#[test]
fn a_model_that_may_call_and_does_not_just_answers() {
    let server = Server::shared();
    let body = json!({"messages": question(), "temperature": 0});
    let plain = server.chat(body.clone()).json();
    for choice in [json!(null), json!("auto"), json!("none")] {
        let mut with = body.clone();
        with["tools"] = tools();
        with["tool_choice"] = choice;
        let answer = server.chat(with).json();
        // The embedded model's template does not write tools down.
        assert_eq!(answer["choices"][0]["message"], plain["choices"][0]["message"]);
    }
}

#[test]
fn a_conversation_with_calls_in_it_goes_on() {
    let server = Server::shared();
    let messages = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}},
        ]},
        {"role": "tool", "tool_call_id": "call-1", "content": "sunny"},
    ]);
    let answer = server.chat(json!({"messages": messages, "tools": tools(), "max_tokens": 5}));
    assert_eq!(answer.status, 200, "{}", answer.text);
}
