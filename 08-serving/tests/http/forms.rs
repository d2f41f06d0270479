//! Answers held to a form.

use super::server::{STORY, Server, question};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[test]
fn an_answer_conforms_to_its_schema() {
    let server = Server::shared();
    let schema = json!({
        "type": "object",
        "properties": {"name": {"enum": ["Ada", "Bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"], "additionalProperties": false,
    });
    for seed in 0..8 {
        let format =
            json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema}});
        let body = json!({"messages": question(), "seed": seed, "response_format": format, "max_tokens": 200});
        let answer = server.chat(body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let choice = &answer.json()["choices"][0];
        let text = choice["message"]["content"].as_str().unwrap();
        let said: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(["Ada", "Bob"].contains(&said["name"].as_str().unwrap()), "{text}");
        assert!((0..=99).contains(&said["age"].as_i64().unwrap()), "{text}");
    }
}

#[test]
fn expressions_choices_and_grammars_hold_too() {
    let server = Server::shared();
    let say = |outputs: Value| {
        server.text(
            json!({"prompt": STORY, "structured_outputs": outputs, "max_tokens": 60, "seed": 5}),
        )
    };
    let digits = say(json!({"regex": "[0-9]{3}-[0-9]{2}"}));
    assert!(digits.len() == 6 && digits.as_bytes()[3] == b'-', "{digits}");
    assert!(["yes\n\"sir\"", "no"].contains(&&*say(json!({"choice": ["yes\n\"sir\"", "no"]}))));
    let sum = say(json!({"grammar": "start: n \"+\" n\nn: \"1\" | \"2\""}));
    assert!(["1+1", "1+2", "2+1", "2+2"].contains(&&*sum), "{sum}");
    let object = server.text(json!({
        "prompt": STORY, "structured_outputs": {"json": {"const": {"a": [1, null]}}}, "max_tokens": 60,
    }));
    assert_eq!(serde_json::from_str::<Value>(&object).unwrap(), json!({"a": [1, null]}));
    // A completion may be held to what a conversation may be held to, and to one form.
    let schema =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": {"b": 2}}}});
    let mut body = json!({"prompt": STORY, "response_format": schema, "max_tokens": 60});
    assert_eq!(serde_json::from_str::<Value>(&server.text(body.clone())).unwrap(), json!({"b": 2}));
    body["structured_outputs"] = json!({"regex": "[0-9]"});
    server.complete(body).is_refused(400, Some("structured_outputs"));
    let gbnf = json!({"grammar": "root ::= \"yes\" | \"no\""});
    let text = server.text(json!({"prompt": STORY, "structured_outputs": gbnf}));
    assert!(["yes", "no"].contains(&text.as_str()), "{text}");
    let gbnf = json!({"grammar": "root ::= \"yes\" | other"});
    let refused = server.complete(json!({"prompt": STORY, "structured_outputs": gbnf}));
    let message = refused.is_refused(400, Some("structured_outputs"));
    assert!(message.contains("GBNF") && message.contains("line 1: other has no rule"), "{message}");
    // It is longer in the other notation.
    for (letters, words) in [
        (66_000, "GBNF is 66011 bytes long, expected at most 65536"),
        (20_000, "in Lark's notation, a character a terminal, expected at most 65536"),
    ] {
        let gbnf = json!({"grammar": format!("root ::= \"{}\"", "a".repeat(letters))});
        let refused = server.complete(json!({"prompt": STORY, "structured_outputs": gbnf}));
        let message = refused.is_refused(400, Some("structured_outputs"));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_form_that_is_whole_ends_whatever_the_least_number_of_tokens() {
    let server = Server::shared();
    for (outputs, least) in [(json!({"choice": ["yes"]}), 40), (json!({"regex": "[0-9]{4}"}), 20)] {
        let body = json!({
            "prompt": STORY, "structured_outputs": outputs, "min_tokens": least, "max_tokens": 40,
        });
        let answer = server.complete(body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let choice = &answer.json()["choices"][0];
        assert_eq!(choice["finish_reason"], "stop", "{choice}");
        assert_eq!(choice["text"].as_str().unwrap().len(), if least == 40 { 3 } else { 4 });
    }
    // Where the form can go on, it does.
    let body = json!({
        "prompt": STORY, "structured_outputs": {"regex": "[0-9]*"}, "min_tokens": 12, "max_tokens": 40,
    });
    let usage = server.complete(body).json()["usage"]["completion_tokens"].as_u64().unwrap();
    assert!(usage >= 12, "{usage}");
}

#[test]
fn forms_that_cannot_be_compiled_are_refused_and_the_engine_lives() {
    let server = Server::shared();
    let deep = (0..60)
        .fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    for (outputs, may_be_compiled) in [
        (json!({"json": {"type": "nothing"}}), false),
        (json!({"json": "{"}), false),
        (json!({"json": {"type": "string", "pattern": "("}}), false),
        (json!({"json": {"$ref": "#/nowhere"}}), false),
        (json!({"json": {"$ref": "https://example.com/schema"}}), false),
        (json!({"regex": "("}), false),
        (json!({"regex": "a{1000000000}"}), true),
        (json!({"grammar": "start: nothing"}), false),
        (json!({"grammar": ""}), false),
        (json!({"choice": []}), false),
        (json!({"json": {"x": "y".repeat(70_000)}}), false),
        (json!({"regex": "(a+)+b"}), true),
        (json!({"regex": "((((a*)*)*)*)*c"}), true),
        (json!({"regex": "(a|aa){1,200}(a|aa){1,200}"}), true),
        (json!({"json": {"$ref": "#"}}), true),
        (
            json!({"json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}}),
            true,
        ),
        (json!({"json": deep}), true),
        (
            json!({"json": {"type": "array", "minItems": 100_000, "items": {"type": "integer"}}}),
            true,
        ),
        // Rules of which each leads to the next take stack, as brackets in brackets do.
        (json!({"grammar": rules(4_000, "start", "r")}), true),
        (json!({"grammar": rules(3_000, "start: T0\nT0", "T")}), true),
        (json!({"json": references(1_500, |next| next)}), true),
        (
            json!({"json": references(900, |next| json!({"type": "object", "properties": {"a": next}}))}),
            true,
        ),
    ] {
        let begun = Instant::now();
        let body = json!({"prompt": STORY, "structured_outputs": outputs, "max_tokens": 4});
        let answer = server.complete(body);
        let said = &answer.text[..answer.text.len().min(300)];
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}: {said}", begun.elapsed());
        match answer.status {
            400 => {
                let message = answer.is_refused(400, Some("structured_outputs"));
                assert!(!message.contains("verbose"), "{message}");
            }
            200 => assert!(may_be_compiled, "{outputs}: {said}"),
            other => panic!("{other}: {said}"),
        }
        let alive = server.complete(json!({"prompt": STORY, "max_tokens": 1}));
        assert_eq!(alive.status, 200, "after {outputs}: {}", alive.text);
    }
}

/// Lark's rules, each of which is the next.
fn rules(count: usize, start: &str, name: &str) -> String {
    let first = format!("{start}: {name}1\n");
    let each = (1..count).map(|i| format!("{name}{i}: {name}{}\n", i + 1));
    let last = format!("{name}{count}: \"a\"\n");
    std::iter::once(first).chain(each).chain([last]).collect()
}

/// A schema of definitions, each of which has the next in it somehow.
fn references(count: usize, within: impl Fn(Value) -> Value) -> Value {
    let next = |i: usize| json!({"$ref": format!("#/$defs/{i}")});
    let each = (0..count).map(|i| (i.to_string(), within(next(i + 1))));
    let all: serde_json::Map<_, _> =
        each.chain([(count.to_string(), json!({"type": "string"}))]).collect();
    json!({"$defs": all, "$ref": "#/$defs/0"})
}

/// Tokens of many answers are chosen on several threads, whose stacks are small: forms are compiled elsewhere.
#[test]
fn many_answers_may_have_deep_forms() {
    let server = Server::start(|options| options.running = 100, &[]);
    // The way down is gone again for each letter.
    let grammar = format!("start: r1 r1 r1 r1 r1 r1\n{}", rules(3_000, "begin", "r"));
    let body = json!({
        "prompt": STORY, "structured_outputs": {"grammar": grammar}, "n": 100, "max_tokens": 10,
    });
    let answer = server.complete(body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    for choice in answer.json()["choices"].as_array().unwrap() {
        assert_eq!(choice["text"], "aaaaaa");
    }
}

/// One answer's step may take some seconds. A hundred answers' must not take a hundred times as long.
#[test]
fn answers_held_to_one_form_share_the_time_that_following_it_may_take() {
    let server = Server::shared();
    let complete = |rules: usize, answers: usize| {
        // Each rule may be nothing, so at the beginning all of them may be at their ends already.
        let each = (1..rules).map(|i| format!("r{i}: r{}?\n", i + 1)).collect::<String>();
        let grammar = format!("start: r1 \"a\" r1 r1\n{each}r{rules}: \"b\"\n");
        let form = json!({"grammar": grammar});
        let begun = Instant::now();
        let answer = server.complete(json!({
            "prompt": STORY, "structured_outputs": form, "n": answers, "max_tokens": 10,
        }));
        (answer, begun.elapsed())
    };
    // A form that is slow on this machine: one answer of some five tokens takes longer than a step may.
    let is_slow = |&rules: &usize| complete(rules, 1).1 > Duration::from_secs(3);
    let rules = [1_000, 2_000, 3_000].into_iter().find(is_slow).unwrap_or(3_000);
    let (answer, took) = complete(rules, 100);
    // Optimised, it may be quick enough.
    if answer.status != 200 {
        let refused = answer.is_refused(400, Some("structured_outputs"));
        assert!(refused.contains("a token takes more than"), "{refused}");
    }
    assert!(took < Duration::from_secs(40), "{rules} rules: {took:?}");
    let alive = server.complete(json!({"prompt": STORY, "max_tokens": 1}));
    assert_eq!(alive.status, 200, "{}", alive.text);
}

#[test]
fn a_form_that_nothing_can_begin_is_refused() {
    let server = Server::shared();
    for outputs in [
        json!({"json": {"$ref": "#"}}),
        json!({"json": {"anyOf": [{"$ref": "#"}]}}),
        json!({"grammar": "start: a\na: b\nb: a\n"}),
    ] {
        let body = json!({"prompt": STORY, "structured_outputs": outputs, "max_tokens": 4});
        server.complete(body).is_refused(400, Some("structured_outputs"));
    }
}

/// Compiles, and soon has more ways to go on than are looked at, whatever is written.
pub(crate) const HEAVY: &str = "(([^z]{1,60}){1,60}){1,60}z";

#[test]
fn a_form_that_is_too_much_in_mid_answer_is_refused_too() {
    let server = Server::shared();
    let schema = json!({
        "type": "object", "properties": {"a": {"type": "string", "pattern": format!("^{HEAVY}$")}},
        "required": ["a"], "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let completion = json!({"prompt": STORY, "structured_outputs": {"regex": HEAVY}});
    let chat = json!({"messages": question(), "response_format": format});
    for (path, mut body, param) in [
        ("/v1/completions", completion, "structured_outputs"),
        ("/v1/chat/completions", chat, "response_format"),
    ] {
        body["temperature"] = json!(0);
        body["max_tokens"] = json!(200);
        let whole = server.post(path, &body);
        let message = whole.is_refused(400, Some(param));
        assert!(message.contains("is too much to follow here"), "{message}");
        assert!(!message.contains("verbose"), "{message}");
        let error = &whole.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        // What was written is sent before.
        body["stream"] = json!(true);
        let streamed = server.post(path, &body);
        assert_eq!(streamed.status, 200, "{}", streamed.text);
        assert_eq!(streamed.events().last().unwrap()["error"], *error);
    }
}

#[test]
fn large_forms_are_followed() {
    let server = Server::shared();
    // Other properties are let, too.
    let object = |name: usize, count: usize| {
        let property = |i: usize| (format!("field_{name}_{i}"), json!({"type": "string"}));
        let properties: serde_json::Map<_, _> = (0..count).map(property).collect();
        json!({"type": "object", "properties": properties})
    };
    let any: Vec<Value> = (0..24).map(|name| object(name, 20)).collect();
    for schema in [json!({"anyOf": any}), object(0, 500)] {
        let outputs = json!({"json": schema});
        let text =
            server.text(json!({"prompt": STORY, "structured_outputs": outputs, "max_tokens": 8}));
        assert!(text.starts_with('{'), "{text}");
    }
    let labels: Vec<String> = (0..2_100).map(|i| format!("label-{i}")).collect();
    let outputs = json!({"choice": labels});
    let text = server.text(json!({"prompt": STORY, "structured_outputs": outputs}));
    assert!(labels.contains(&text), "{text}");
}

#[test]
fn a_form_that_takes_too_long_for_a_token_is_refused() {
    let server = Server::shared();
    // An array in an array is any of these in any of these.
    let arrays = vec![json!({"type": "array", "items": {"$ref": "#"}}); 1_000];
    let outputs = json!({"json": {"anyOf": arrays}});
    let begun = Instant::now();
    let answer = server.complete(json!({"prompt": STORY, "structured_outputs": outputs}));
    let message = answer.is_refused(400, Some("structured_outputs"));
    assert!(message.contains("a token takes more than"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn compiled_forms_are_kept_up_to_a_number() {
    let server = Server::start(|_| {}, &[]);
    for number in 0..200 {
        let outputs = json!({"regex": format!("a{number}")});
        let body = json!({"prompt": STORY, "structured_outputs": outputs, "max_tokens": 1});
        assert_eq!(server.complete(body).status, 200);
    }
    assert_eq!(server.app.kept_forms(), 32);
}

#[test]
fn an_object_may_be_of_a_schema() {
    let server = Server::shared();
    let schema = json!({"type": "object", "properties": {"name": {"enum": ["Ada", "Bob"]}}, "required": ["name"],
        "additionalProperties": false});
    for more in [json!({"schema": schema}), json!({"schema": schema, "json_schema": null})] {
        let mut format = json!({"type": "json_object"});
        format.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer =
            server.chat(json!({"messages": question(), "response_format": format, "seed": 3}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let said = answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert!(["Ada", "Bob"].contains(&said["name"].as_str().unwrap()), "{said}");
    }
    let text = json!({"type": "text", "json_schema": null});
    let answer =
        server.chat(json!({"messages": question(), "response_format": text, "max_tokens": 1}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    for (format, name) in [
        (json!({"type": "text", "schema": schema}), "schema"),
        (json!({"type": "json_object", "shema": schema}), "shema"),
        (json!({"type": "json_object", "json_schema": {"schema": schema}}), "json_schema"),
        (json!({"type": "json_schema", "json_schema": {"schema": schema, "stric": true}}), "stric"),
    ] {
        let answer = server.chat(json!({"messages": question(), "response_format": format}));
        let message = answer.is_refused(400, Some("response_format"));
        assert!(message.contains(&format!("unknown field `{name}`")), "{message}");
    }
    // What clients send along is taken.
    let named = json!({"name": "x", "description": "y", "strict": true, "schema": schema});
    let format = json!({"type": "json_schema", "json_schema": named});
    assert_eq!(server.chat(json!({"messages": question(), "response_format": format})).status, 200);
}

#[test]
fn parts_of_a_schema_that_are_not_understood_are_passed_over_unless_it_is_strict() {
    let server = Server::shared();
    let parts = json!({
        "A": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false},
        "B": {"type": "object", "properties": {"b": {"const": 2}}, "additionalProperties": false},
    });
    // Whichever way is taken, the answer is of that way.
    let either = json!({"$defs": parts, "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]});
    for (schema, is_understood) in [
        (
            json!({"type": "array", "items": {"const": 1}, "uniqueItems": true, "maxItems": 2}),
            false,
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "^a"}, "additionalProperties": {"const": 1},
            "properties": {"ab": {"const": 1}}, "required": ["ab"], "maxProperties": 1}),
            false,
        ),
        (json!({"type": "string", "format": "binary", "maxLength": 3}), false),
        (either, true),
    ] {
        let ask = |strict: Value| {
            let named = json!({"name": "x", "schema": schema, "strict": strict});
            let format = json!({"type": "json_schema", "json_schema": named});
            server.chat(json!({
                "messages": question(), "response_format": format, "max_tokens": 100, "seed": 1,
            }))
        };
        for strict in [json!(null), json!(false)] {
            let answer = ask(strict);
            assert_eq!(answer.status, 200, "{schema}: {}", answer.text);
            let said =
                answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
            assert!(serde_json::from_str::<Value>(&said).is_ok(), "{schema}: {said}");
        }
        match is_understood {
            true => assert_eq!(ask(json!(true)).status, 200, "{schema}"),
            false => {
                let message = ask(json!(true)).is_refused(400, Some("response_format"));
                assert!(message.contains("none that can be compiled"), "{message}");
            }
        }
        // Arguments of functions are no different.
        let call = |strict: bool| {
            let parameters = json!({"type": "object", "properties": {"x": schema.get("$defs").map_or(schema.clone(), |_| json!({}))}});
            let function = json!({"name": "f", "parameters": parameters, "strict": strict});
            let tools = json!([{"type": "function", "function": function}]);
            let body = json!({"messages": question(), "tools": tools, "tool_choice": "required", "max_tokens": 1});
            server.chat(body).status
        };
        assert_eq!(
            (call(false), call(true)),
            (200, if is_understood { 200 } else { 400 }),
            "{schema}"
        );
    }
}
