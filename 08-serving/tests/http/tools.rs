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
            // What is for text does not hold for a call: strings that end it, and its form.
            let mut body = json!({
                "messages": question(), "tools": tools(), "tool_choice": choice, "seed": seed,
                "stop": ["}", "\""], "response_format": {"type": "json_object"},
                "return_token_ids": true,
            });
            let whole = server.chat(body.clone());
            assert_eq!(whole.status, 200, "{}", whole.text);
            let whole = &whole.json()["choices"][0];
            assert_eq!(whole["finish_reason"], finish, "{whole}");
            assert!(whole["message"]["content"].is_null());
            let call = &whole["message"]["tool_calls"][0];
            check(call);
            // Nor tokens that end it: here the third of this very call.
            let mut cut = body.clone();
            cut["stop_token_ids"] = json!([whole["token_ids"][2]]);
            let again = server.chat(cut).json();
            let again = &again["choices"][0]["message"]["tool_calls"][0];
            assert_eq!(again["function"], call["function"]);
            body["stream"] = json!(true);
            let events = server.chat(body.clone()).events();
            let deltas = events.iter().filter_map(|event| {
                event["choices"][0]["delta"]["tool_calls"].as_array()?.first().cloned()
            });
            let deltas: Vec<Value> = deltas.collect();
            let [first, more @ ..] = &deltas[..] else { panic!("no call: {events:?}") };
            assert_eq!(first["function"]["name"], call["function"]["name"]);
            assert!(first["id"].is_string() && first["type"] == "function", "{first}");
            assert!(more.iter().all(|delta| delta.get("id").is_none()), "{more:?}");
            let told = |delta: &Value| delta["function"]["arguments"].as_str().unwrap().to_owned();
            let arguments: String = deltas.iter().map(told).collect();
            assert_eq!(arguments, call["function"]["arguments"].as_str().unwrap());
            assert!(
                more.len() > 1 || arguments == "{}",
                "they come while they are made: {deltas:?}"
            );
            assert!(deltas.iter().all(|delta| delta["index"] == 0));
            // Cut off, it is a call still, as far as it came.
            body["stream"] = json!(false);
            body["max_tokens"] = json!(whole["token_ids"].as_array().unwrap().len() - 2);
            let cut = &server.chat(body).json()["choices"][0];
            assert_eq!(cut["finish_reason"], "length");
            assert!(cut["message"]["content"].as_str().is_none_or(str::is_empty), "{cut}");
            let told = cut["message"]["tool_calls"][0]["function"]["arguments"].as_str();
            assert!(told.map_or(arguments == "{}", |told| arguments.starts_with(told)), "{cut}");
        }
    }
}

#[test]
fn a_model_is_told_of_all_functions_and_may_call_those_that_are_allowed() {
    let server = Server::shared();
    let allowed = |mode: &str, names: &[&str]| {
        let tool = |name: &&str| json!({"type": "function", "function": {"name": name}});
        let tools: Vec<Value> = names.iter().map(tool).collect();
        json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
    };
    let ask_of = |server: &Server, choice: Value, more: Value| {
        let mut body = json!({"messages": question(), "tools": tools(), "tool_choice": choice,
            "max_tokens": 100, "return_token_ids": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.chat(body)
    };
    let ask = |choice: Value, more: Value| ask_of(server, choice, more);
    let telling = Server::speaking("{% for tool in tools %}{{ tool.function.name }} {% endfor %}");
    let prompt = |choice: Value| {
        ask_of(&telling, choice, json!({})).json()["prompt_token_ids"].as_array().unwrap().clone()
    };
    let all = prompt(json!("auto"));
    assert!(all.len() > 2);
    for mode in ["auto", "required"] {
        assert_eq!(prompt(allowed(mode, &["now"])), all);
    }
    for seed in 0..4 {
        let answer = ask(allowed("required", &["now"]), json!({"seed": seed})).json();
        let choice = &answer["choices"][0];
        assert_eq!(choice["message"]["tool_calls"][0]["function"]["name"], "now", "{choice}");
        assert_eq!(choice["finish_reason"], "tool_calls");
    }
    // What it calls by itself is a call if it may, and text if not.
    for (name, calls) in [("now", 1), ("weather", 0)] {
        let said = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
        let forced = json!({"structured_outputs": {"choice": [said]}});
        let message = ask(allowed("auto", &[name]), forced).json()["choices"][0]["message"].clone();
        let found = message.get("tool_calls").map_or(0, |calls| calls.as_array().unwrap().len());
        assert_eq!(found, calls, "{message}");
        assert_eq!(message["content"].is_null(), calls == 1, "{message}");
    }
    for names in [&["other"][..], &[]] {
        let refused = ask(allowed("auto", names), json!({}));
        refused.is_refused(400, Some("tool_choice"));
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
        with["tool_choice"] = choice.clone();
        let answer = server.chat(with).json();
        // The embedded model's template does not write tools down, so they stand in what is asked.
        let tokens = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
        match choice == "none" {
            true => assert_eq!(answer["choices"], plain["choices"]),
            false => assert!(tokens(&answer) > tokens(&plain) + 50, "{answer}"),
        }
        assert!(answer["choices"][0]["message"]["content"].is_string(), "{answer}");
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

/// The function and the arguments of the call that must be made.
#[track_caller]
fn demanded(server: &Server, parameters: &[Value]) -> (String, Value) {
    let tool = |(i, parameters): (usize, &Value)| json!({"type": "function", "function": {"name": format!("f.{i}"), "parameters": parameters}});
    let tools: Vec<Value> = parameters.iter().enumerate().map(tool).collect();
    let answer = server.chat(json!({
        "messages": question(), "tools": tools, "tool_choice": "required", "seed": 1, "max_tokens": 200,
    }));
    assert_eq!(answer.status, 200, "{parameters:?}: {}", answer.text);
    let choice = &answer.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{parameters:?}: {choice}");
    let called = &choice["message"]["tool_calls"][0]["function"];
    let arguments = serde_json::from_str(called["arguments"].as_str().unwrap()).unwrap();
    (called["name"].as_str().unwrap().to_owned(), arguments)
}

#[test]
fn parameters_may_refer_to_their_own_parts() {
    // Its template tells the functions' names alone: the model's context is short.
    let server = &Server::speaking(
        "{% for tool in tools %}{{ tool.function.name }} {% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    let city = |name: &str| {
        json!({"type": "object", "properties": {"n": {"const": name}}, "required": ["n"],
        "additionalProperties": false})
    };
    let of = |reference: &str| json!({"type": "object", "properties": {"c": {"$ref": reference}}, "required": ["c"]});
    let with = |mut schema: Value, word: &str, value: Value| {
        schema[word] = value;
        schema
    };
    let nested = with(of("#/$defs/City"), "$defs", json!({"City": city("Rome")}));
    for parameters in [
        nested.clone(),
        with(of("#/definitions/City"), "definitions", json!({"City": city("Rome")})),
        // As zod writes them.
        with(
            with(of("#/definitions/City"), "definitions", json!({"City": city("Rome")})),
            "$schema",
            json!("http://json-schema.org/draft-07/schema#"),
        ),
        with(nested.clone(), "$id", json!("https://example.com/city.json")),
        json!({"type": "object", "properties": {"d": city("Rome"), "c": {"$ref": "#/properties/d"}},
            "required": ["c"]}),
        json!({"$ref": "#/$defs/All", "$defs": {"All": with(of("#/$defs/City"), "additionalProperties", json!(false)),
            "City": city("Rome")}}),
    ] {
        let (_, arguments) = demanded(server, std::slice::from_ref(&parameters));
        assert_eq!(arguments["c"], json!({"n": "Rome"}), "{parameters}");
    }
    // Two functions mean different things by the same name.
    let other = with(of("#/$defs/City"), "$defs", json!({"City": city("Oslo")}));
    let (name, arguments) = demanded(server, &[nested, other]);
    let expected = if name == "f.0" { "Rome" } else { "Oslo" };
    assert_eq!(arguments["c"]["n"], expected);
    // A tree of itself.
    let tree = json!({"type": "object", "properties": {"left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["left"], "maxProperties": 1});
    let body = json!({
        "messages": question(), "tools": [{"type": "function", "function": {"name": "f", "parameters": tree}}],
        "tool_choice": "required", "max_tokens": 4,
    });
    assert_eq!(server.chat(body).status, 200);
}

#[test]
fn arguments_are_an_object_s_whatever_the_parameters_leave_open() {
    let server = Server::shared();
    assert_eq!(demanded(server, &[json!({})]).1, json!({}));
    let open = json!({"properties": {"a": {"enum": [1, 2]}}, "required": ["a"]});
    let nullable =
        json!({"type": ["null", "object"], "properties": {"a": {"const": 1}}, "required": ["a"]});
    for parameters in [open, nullable] {
        let arguments = demanded(server, std::slice::from_ref(&parameters)).1;
        assert!([json!(1), json!(2)].contains(&arguments["a"]), "{parameters}: {arguments}");
    }
    let tool = |parameters: Value| json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    for (parameters, words) in [
        (json!({"type": "array"}), "of type \"array\", expected \"object\""),
        (json!(true), "expected an object"),
    ] {
        let body = json!({"messages": question(), "tools": tool(parameters)});
        let message = server.chat(body).is_refused(400, Some("tools"));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn calls_are_found_however_a_model_writes_them() {
    let server = Server::shared();
    let call = "{\"name\": \"now\", \"arguments\": {}}";
    let llama = call.replace("arguments", "parameters");
    for (said, calls, content) in [
        (format!("[TOOL_CALLS] [{call}]"), 1, json!(null)),
        (format!(" [{call}, {call}]"), 2, json!(null)),
        (format!("Well. [TOOL_CALLS] [{call}]"), 1, json!("Well. ")),
        (format!("<tool_call>[{call}]</tool_call>"), 1, json!(null)),
        (format!("<|python_tag|>{llama}"), 1, json!(null)),
        ("[1] as they say".to_owned(), 0, json!("[1] as they say")),
    ] {
        let mut body = json!({
            "messages": question(), "tools": tools(), "structured_outputs": {"choice": [said]}, "max_tokens": 100,
        });
        let choice = &server.chat(body.clone()).json()["choices"][0];
        let found = choice["message"]["tool_calls"].as_array().map_or(0, Vec::len);
        assert_eq!((found, &choice["message"]["content"]), (calls, &content), "{said}: {choice}");
        body["stream"] = json!(true);
        let events = server.chat(body).events();
        let deltas = || events.iter().map(|event| &event["choices"][0]["delta"]);
        let text: String = deltas().filter_map(|delta| delta["content"].as_str()).collect();
        assert_eq!(text, content.as_str().unwrap_or_default(), "{said}");
        let begun = deltas().flat_map(|delta| delta["tool_calls"].as_array().into_iter().flatten());
        let streamed = begun.filter(|call| call["id"].is_string()).count();
        assert_eq!(streamed, calls, "{said}");
    }
}

/// As Hermes has it.
const HERMES: &str = "{{ tools }}{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}\
    {% for call in m.tool_calls or [] %}\
    {{ '<tool_call>\\n' + call.function | tojson + '\\n</tool_call>' }}{% endfor %}<|end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>\n{% endif %}";

#[test]
fn tokens_of_a_conversation_with_tools_are_those_that_its_answer_is_given_to() {
    let server = Server::speaking(&format!("{{{{ mood }}}}{HERMES}"));
    let plain = json!({"messages": question()});
    let mut told = plain.clone();
    told["tools"] = tools();
    told["chat_template_kwargs"] = json!({"mood": "merry"});
    let count = |body: &Value| server.post("/tokenize", body).json()["count"].as_u64().unwrap();
    for body in [&plain, &told] {
        let mut asked = body.clone();
        asked["max_tokens"] = json!(1);
        assert_eq!(server.chat(asked).json()["usage"]["prompt_tokens"], count(body), "{body}");
    }
    assert!(count(&told) > count(&plain) + 50, "the model is told of them");
    told["tools"] = json!([{"type": "function", "function": {"name": "a b"}}]);
    server.post("/tokenize", &told).is_refused(400, Some("tools"));
}

#[test]
fn an_answer_that_is_held_to_a_form_may_be_a_call() {
    let server = Server::speaking(HERMES);
    let tokens =
        server.post("/tokenize", &json!({"prompt": "<tool_call>"})).json()["tokens"].clone();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
        "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    // How much it wants to call.
    for (bias, calls) in [(100, true), (-100, false)] {
        let body = json!({
            "messages": question(), "tools": tools(), "response_format": format, "parallel_tool_calls": false,
            "logit_bias": {tokens[0].to_string(): bias}, "max_tokens": 100, "seed": 1,
        });
        let answer = server.chat(body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let choice = &answer.json()["choices"][0];
        match calls {
            true => {
                assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
                assert!(choice["message"]["content"].is_null());
                check(&choice["message"]["tool_calls"][0]);
            }
            false => {
                let said = choice["message"]["content"].as_str().unwrap();
                let said: Value = serde_json::from_str(said).unwrap();
                assert!(said["ok"].is_boolean(), "{choice}");
            }
        }
    }
    // Where it must not call, it cannot.
    let body = json!({
        "messages": question(), "tools": tools(), "tool_choice": "none", "response_format": format,
        "logit_bias": {tokens[0].to_string(): 100}, "max_tokens": 100,
    });
    let choice = server.chat(body).json()["choices"][0].clone();
    assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
}
