//! Conversations as the model reads them, and answers that go on with their last message.

use super::server::{Server, question};
use serde_json::{Value, json};

fn assistant(said: &str) -> Value {
    json!([{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": said}])
}

#[test]
fn parts_of_a_message_are_lines_of_it() {
    let server = Server::shared();
    let part = |text: &str| json!({"type": "text", "text": text});
    let parts = json!([{"role": "user", "content": [part("one"), part("two")]}]);
    let whole = json!([{"role": "user", "content": "one\ntwo"}]);
    assert_eq!(server.prompt(&parts, json!({})), server.prompt(&whole, json!({})));
    // An assistant may have declined to say something, as OpenAI's clients send it back. Nobody else may.
    let mut declined = assistant("");
    declined[1]["content"] = json!([{"type": "refusal", "refusal": "No."}]);
    assert_eq!(server.prompt(&declined, json!({})), server.prompt(&assistant("No."), json!({})));
    declined[1]["role"] = json!("user");
    server.chat(json!({"messages": declined})).is_refused(400, Some("messages"));
}

#[test]
fn an_answer_goes_on_with_the_last_message() {
    let server = Server::shared();
    for more in [
        json!({"continue_final_message": true}),
        json!({"continue_final_message": true, "add_generation_prompt": false}),
    ] {
        // White space at its end is what was said, too, where the template does not trim it.
        for said in ["I am a", "I am ", "I <|end|> <|en"] {
            let prompt = server.prompt(&assistant(said), more.clone());
            assert!(prompt.ends_with(&format!("<|assistant|>\n{said}")), "{prompt:?}");
        }
        let tokenized = json!({"messages": assistant("I am a"), "continue_final_message": true});
        let tokens = server.post("/tokenize", &tokenized).json()["tokens"].clone();
        let text = server.text(json!({"prompt": tokens, "max_tokens": 12, "temperature": 0}));
        let mut body = json!({"messages": assistant("I am a"), "max_tokens": 12, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = server.chat(body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.json()["choices"][0]["message"]["content"], text.as_str());
    }
}

#[test]
fn a_template_that_trims_messages_trims_the_one_that_goes_on() {
    let template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim + '<|end|>' }}{% endfor %}";
    let server = Server::speaking(template);
    let goes_on = json!({"continue_final_message": true});
    for said in ["I am a \n", " I am a"] {
        let prompt = server.prompt(&assistant(said), goes_on.clone());
        assert!(prompt.ends_with("<|end|><|assistant|>I am a"), "{prompt:?}");
    }
    // One that does not write it down has nothing to go on with.
    let server = Server::speaking("{% for m in messages %}{{ m.role }}{% endfor %}");
    let body = json!({"messages": assistant("I am"), "continue_final_message": true});
    let message = server.chat(body).is_refused(400, Some("messages"));
    assert!(message.contains("does not write the last message"), "{message}");
}

#[test]
fn a_conversation_may_be_left_where_it_is() {
    let server = Server::shared();
    let prompt = |more: Value| server.prompt(&question(), more);
    let (with, without) = (prompt(json!({})), prompt(json!({"add_generation_prompt": false})));
    assert_eq!(with, prompt(json!({"add_generation_prompt": true})));
    assert_eq!(with.strip_prefix(&*without), Some("<|assistant|>\n"));
    let count = |more: Value| {
        let mut body = json!({"messages": question(), "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.chat(body).json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(count(json!({})), count(json!({"add_generation_prompt": false})) + 2);
}

#[test]
fn what_cannot_go_on_is_refused() {
    let server = Server::shared();
    let calls = json!([{"role": "assistant", "tool_calls": [{"function": {"name": "now"}}]}]);
    for (messages, more, words) in [
        (assistant("I am"), json!({"add_generation_prompt": true}), "both true"),
        (question(), json!({}), "the assistant's"),
        (calls, json!({}), "say something"),
    ] {
        let mut body = json!({"messages": messages, "continue_final_message": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        for path in ["/v1/chat/completions", "/tokenize"] {
            let refused = server.post(path, &body);
            let message = refused.is_refused(400, Some("continue_final_message"));
            assert!(message.contains(words), "{message}");
        }
    }
    // Where nothing was said, that is what is wrong.
    for path in ["/v1/chat/completions", "/tokenize"] {
        let body = json!({"messages": [], "continue_final_message": true});
        server.post(path, &body).is_refused(400, Some("messages"));
    }
    server.chat(json!({"continue_final_message": true})).is_refused(400, Some("messages"));
}

/// As Llama 3.1 has it: whether there are calls is whether there is a list of them, and arguments are an object's.
const CALLS: &str = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if 'tool_calls' in m %}\
    {% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}\
    {% for name, value in m.tool_calls[0].function.arguments | items %}{{ name }}={{ value }};{% endfor %}\
    {% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}";

#[test]
fn calls_of_earlier_turns_may_be_written_in_several_ways() {
    let server = Server::speaking(CALLS);
    let call = |function: Value| {
        let calls = json!([{"id": "1", "type": "function", "function": function}]);
        let messages = json!([{"role": "assistant", "content": "said", "tool_calls": calls}]);
        server.prompt(&messages, json!({}))
    };
    for (arguments, written) in [
        (json!("{\"city\": \"Rome\"}"), "city=Rome;"),
        (json!({"city": "Rome"}), "city=Rome;"),
        (json!({}), ""),
        (json!(""), ""),
        (json!(" "), ""),
        (json!("null"), ""),
        (json!(null), ""),
    ] {
        let prompt = call(json!({"name": "weather", "arguments": arguments}));
        assert_eq!(prompt, format!("<|assistant|>{written}<|end|>"), "{arguments}");
    }
    assert_eq!(call(json!({"name": "weather"})), "<|assistant|><|end|>");
    // None at all is no list.
    let messages = json!([{"role": "assistant", "content": "said", "tool_calls": []}]);
    assert_eq!(server.prompt(&messages, json!({})), "<|assistant|>said<|end|>");
    for arguments in [json!(7), json!(["Rome"])] {
        let calls = json!([{"function": {"name": "weather", "arguments": arguments}}]);
        let body = json!({"messages": [{"role": "assistant", "tool_calls": calls}]});
        let message = server.chat(body).is_refused(400, Some("messages"));
        assert!(message.contains("arguments are no object"), "{message}");
    }
}
