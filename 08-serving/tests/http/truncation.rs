//! `truncation: "auto"`: a conversation that is too long begins later.

use super::server::Server;
use serde_json::{Value, json};

fn respond(server: &Server, input: &[Value], more: &Value) -> super::server::Answer {
    let mut body = json!({
        "input": input, "instructions": "Answer in one sentence.", "temperature": 0, "max_output_tokens": 9,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.post("/v1/responses", &body)
}

fn said(role: &str, number: usize) -> Value {
    let text = format!("The {number}. thing that somebody said at the mill was that it was warm.");
    json!({"role": role, "content": text})
}

fn called(kind: &str, id: usize) -> Value {
    match kind {
        "function_call" => {
            json!({"type": kind, "call_id": id.to_string(), "name": "now", "arguments": "{}"})
        }
        _ => json!({"type": kind, "call_id": id.to_string(), "output": "It is noon at the mill."}),
    }
}

/// What is answered to a conversation is what is answered to its end from the first of these items on that fits.
#[track_caller]
fn begins_at_the_first_that_fits(
    server: &Server,
    items: &[Value],
    beginnings: &[usize],
    more: &Value,
) {
    let refused = respond(server, items, more);
    refused.is_refused(400, Some("input"));
    assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
    // Where nobody says how long an answer may be it has a quarter of the context.
    let mut room = more.clone();
    if room.get("max_output_tokens").is_some_and(Value::is_null) {
        room["max_output_tokens"] = json!(128);
    }
    let fits = |&&begin: &&usize| respond(server, &items[begin..], &room).status == 200;
    let begin = *beginnings.iter().find(fits).unwrap();
    assert!(begin > 0 && begin < items.len() - 1, "{begin}");
    let expected = respond(server, &items[begin..], more).json();
    let mut auto = more.clone();
    auto["truncation"] = json!("auto");
    let answer = respond(server, items, &auto);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = answer.json();
    assert_eq!(answer["usage"]["input_tokens"], expected["usage"]["input_tokens"], "{begin}");
    assert_eq!(answer["output"][0]["content"], expected["output"][0]["content"]);
    assert_eq!(
        (&answer["truncation"], &expected["truncation"]),
        (&json!("auto"), &json!("disabled"))
    );
}

#[test]
fn as_few_items_are_left_out_as_will_do() {
    let server = Server::shared();
    let role = |i: usize| if i.is_multiple_of(2) { "user" } else { "assistant" };
    for count in [41, 60, 301] {
        let items: Vec<Value> = (0..count).map(|i| said(role(i), i)).collect();
        // With a question, and no answer without its own.
        let questions: Vec<usize> = (0..count).step_by(2).collect();
        for more in [
            json!({}),
            json!({"max_output_tokens": 200}),
            json!({"max_output_tokens": null, "stop": "."}),
        ] {
            if count != 301 || more["max_output_tokens"] == 200 {
                begins_at_the_first_that_fits(server, &items, &questions, &more);
            }
        }
    }
}

#[test]
fn what_a_function_gave_back_stays_with_its_call() {
    let server = Server::shared();
    let mut items = vec![said("user", 0)];
    let mut beginnings = vec![0];
    for id in (0..30).step_by(2) {
        beginnings.extend([items.len(), items.len() + 4]);
        items.extend([called("function_call", id), called("function_call", id + 1)]);
        items.extend([called("function_call_output", id), called("function_call_output", id + 1)]);
        items.push(said("assistant", id));
    }
    items.push(called("function_call", 99));
    items.push(called("function_call_output", 99));
    beginnings.push(items.len() - 2);
    // No question comes after the first: that is left out, too.
    begins_at_the_first_that_fits(server, &items, &beginnings, &json!({}));
    // A thing that cannot be cut, and is too long.
    let together: Vec<Value> = (0..40)
        .map(|id| called("function_call", id))
        .chain((0..40).map(|id| called("function_call_output", id)))
        .collect();
    respond(server, &together, &json!({"truncation": "auto"})).is_refused(400, Some("input"));
}

#[test]
fn a_template_that_wants_a_question_first_has_one() {
    let strict = "{% for m in messages %}{% if m.role != 'system' %}{% if loop.index0 == 1 and m.role != 'user' %}\
        {{ raise_exception('a conversation begins with a user') }}{% endif %}{% endif %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n\
        {% endfor %}<|assistant|>\n";
    let server = Server::speaking(strict);
    let role = |i: usize| if i.is_multiple_of(2) { "user" } else { "assistant" };
    let items: Vec<Value> = (0..61).map(|i| said(role(i), i)).collect();
    respond(&server, &items[1..9], &json!({})).is_refused(400, Some("input"));
    let answer = respond(&server, &items, &json!({"truncation": "auto"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[test]
fn what_does_not_fit_by_itself_is_refused() {
    let server = Server::shared();
    let long = json!({"role": "user", "content": "a ".repeat(600)});
    for (input, more, param) in [
        (json!([said("user", 0), long]), json!({}), "input"),
        (json!("a ".repeat(600)), json!({}), "input"),
        (
            json!([said("user", 0), said("user", 1)]),
            json!({"max_output_tokens": 513}),
            "max_output_tokens",
        ),
        (json!([long, said("user", 1)]), json!({"instructions": "b ".repeat(600)}), "input"),
    ] {
        let mut body = json!({"input": input, "truncation": "auto"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = server.post("/v1/responses", &body);
        refused.is_refused(400, Some(param));
        assert_eq!(refused.json()["error"]["code"], "context_length_exceeded", "{body}");
    }
    // If it fits no other way, an answer has as much as there is.
    let last = json!({"role": "user", "content": "a ".repeat(440)});
    let more = json!({"truncation": "auto", "max_output_tokens": null});
    let answer = respond(server, &[said("user", 0), said("assistant", 1), last], &more);
    assert_eq!(answer.status, 200, "{}", answer.text);
    // One that fits is as it was, streamed as well.
    let fits = [said("user", 0), said("assistant", 1), said("user", 2)];
    let whole = respond(server, &fits, &json!({})).json();
    let auto = respond(server, &fits, &json!({"truncation": "auto"})).json();
    assert_eq!(auto["usage"]["input_tokens"], whole["usage"]["input_tokens"]);
    let items = [&vec![said("user", 0); 60][..], &fits].concat();
    let stream = respond(server, &items, &json!({"truncation": "auto", "stream": true}));
    assert!(
        stream.text.contains("event: response.completed")
            || stream.text.contains("event: response.incomplete")
    );
    assert!(stream.text.contains("\"truncation\":\"auto\""), "{}", stream.text);
    server.wait_until_idle();
}
