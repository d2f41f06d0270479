//! What a model thinks before it answers.

use super::server::{Server, question};
use embedded_models::TARGET;
use model_files::{ChatTemplate, ModelFiles};
use naive_decode::Tokenizer;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// As Qwen3 has it, but that it opens the thoughts itself, as DeepSeek's do: earlier ones go where they belong.
const THINKING: &str = "{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}\
    {% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}\
    {{ m.content.split('</think>')[-1] + '<|end|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|assistant|>\\n<think>\\n' }}{% endif %}";

/// The id of the token that is `</think>` here.
const CLOSES: &str = "1";

/// Biases that let neither thoughts end nor the answer.
fn endless() -> Value {
    json!({CLOSES: -100, "0": -100, "4": -100})
}

/// A server whose model thinks. The one token that the embedded vocabulary can spare closes thoughts.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut files = ModelFiles::embedded(&TARGET).unwrap();
        let json = String::from_utf8(TARGET.tokenizer.to_vec()).unwrap();
        let json = json.replace("<|system|>", "</think>");
        files.tokenizer = Tokenizer::from_bytes("tokenizer.json", json.as_bytes()).unwrap();
        assert_eq!(
            files.tokenizer.token_id("</think>").map(|id| id.to_string()).as_deref(),
            Some(CLOSES)
        );
        files.chat_template = Some(ChatTemplate::new("template", THINKING, None, None).unwrap());
        Server::start_as(files, |_| {}, |app| app)
    })
}

/// Thoughts and content of each answer of a stream.
fn streamed(server: &Server, mut body: Value, answers: usize) -> Vec<(String, String)> {
    body["stream"] = json!(true);
    let events = server.chat(body).events();
    let of = |index: usize, key: &str| -> String {
        let mine = events.iter().map(|event| &event["choices"][0]).filter(|c| c["index"] == index);
        mine.filter_map(|choice| choice["delta"][key].as_str()).collect()
    };
    (0..answers).map(|index| (of(index, "reasoning_content"), of(index, "content"))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn thoughts_that_never_end_are_no_answer() {
    let server = server();
    let body = json!({
        "messages": question(), "temperature": 0, "max_tokens": 12, "n": 2, "logit_bias": endless(),
    });
    let answer = server.chat(body.clone()).json();
    for index in 0..2 {
        let choice = &answer["choices"][index];
        assert_eq!(choice["finish_reason"], "length", "{choice}");
        assert!(choice["message"]["content"].is_null(), "{choice}");
        let thoughts = text(&choice["message"]["reasoning_content"]);
        assert!(!thoughts.is_empty());
        assert_eq!(streamed(server, body.clone(), 2)[index], (thoughts, String::new()));
    }
    // A stop string ends them, too.
    let thoughts = text(&answer["choices"][0]["message"]["reasoning_content"]);
    let stop: String = thoughts.chars().skip(6).take(4).collect();
    let mut stopped = body;
    stopped["stop"] = json!([stop]);
    let choice = server.chat(stopped).json()["choices"][0].clone();
    assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), &json!(stop)));
    let before = thoughts.split(&stop).next().unwrap().trim_end();
    assert_eq!(text(&choice["message"]["reasoning_content"]), before);
}

#[test]
fn an_answer_of_a_form_comes_after_the_thoughts() {
    let server = server();
    let schema = json!({"type": "object", "properties": {"name": {"enum": ["Ada", "Bob"]}}, "required": ["name"],
        "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let tools = json!([{"type": "function", "function": {"name": "now"}}]);
    let mut thought = 0;
    // The less they are pressed, the later thoughts end.
    for bias in [100, 9, 8, 7, 6] {
        for more in [
            json!({"response_format": format}),
            json!({"tools": tools, "tool_choice": "required", "seed": 2}),
        ] {
            let mut body = json!({"messages": question(), "seed": 1, "max_tokens": 120, "logit_bias": {CLOSES: bias}});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let answer = server.chat(body.clone());
            assert_eq!(answer.status, 200, "{}", answer.text);
            let choice = &answer.json()["choices"][0];
            if choice["finish_reason"] == "length" {
                continue;
            }
            let message = &choice["message"];
            let thoughts = text(&message["reasoning_content"]);
            thought += usize::from(!thoughts.is_empty());
            assert!(!thoughts.contains("</think>"), "{choice}");
            if more["tools"].is_null() {
                let said: Value = serde_json::from_str(&text(&message["content"])).unwrap();
                assert!(["Ada", "Bob"].contains(&said["name"].as_str().unwrap()), "{choice}");
            } else {
                assert_eq!(message["tool_calls"][0]["function"]["name"], "now", "{choice}");
                assert!(message["content"].is_null(), "{choice}");
            }
            assert_eq!(streamed(server, body, 1), [(thoughts, text(&message["content"]))]);
        }
    }
    assert!(thought > 0, "nothing was thought");
}

#[test]
fn a_model_that_does_not_think_answers_as_it_is() {
    // Its own marks would be text.
    let body =
        json!({"messages": question(), "structured_outputs": {"choice": ["<think>a</think>b"]}});
    let message = Server::shared().chat(body).json()["choices"][0]["message"].clone();
    assert_eq!(message["content"], "<think>a</think>b");
    assert!(message.get("reasoning_content").is_none(), "{message}");
}

#[test]
fn earlier_thoughts_reach_the_template() {
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "reasoning_content": "Hm.", "content": "Hello."},
        {"role": "user", "content": "Bye"},
    ]);
    let prompt = server().prompt(&messages, json!({"add_generation_prompt": false}));
    let expected = "<|user|>\nHi<|end|>\n<|assistant|>\n<think>Hm.</think>Hello.<|end|>\n<|user|>\nBye<|end|>\n";
    assert_eq!(prompt, expected);
}

#[test]
fn an_answer_that_goes_on_is_what_it_was() {
    let server = server();
    let go_on = |said: &str| {
        let messages =
            json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": said}]);
        let body = json!({
            "messages": messages, "continue_final_message": true, "max_tokens": 8, "temperature": 0,
            "logit_bias": endless(),
        });
        let message = server.chat(body).json()["choices"][0]["message"].clone();
        (!text(&message["reasoning_content"]).is_empty(), !text(&message["content"]).is_empty())
    };
    assert_eq!(go_on("Hello"), (false, true));
    assert_eq!(go_on("<think>Hm"), (true, false));
    // A mark that is only spoken of.
    assert_eq!(go_on("The mark <think> means"), (false, true));
}

#[test]
fn how_long_to_think_is_told_to_the_template() {
    let server = Server::speaking("{{ reasoning_effort | default('as ever') }}.");
    let prompt = |more: Value| {
        let mut body = json!({"messages": question(), "max_tokens": 1, "return_token_ids": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let tokens = server.chat(body).json()["prompt_token_ids"].clone();
        let text = server.post("/detokenize", &json!({"tokens": tokens})).json()["prompt"].clone();
        text.as_str().unwrap().to_owned()
    };
    assert_eq!(prompt(json!({})), "as ever.");
    assert_eq!(prompt(json!({"reasoning_effort": "low"})), "low.");
    let both =
        json!({"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "no"}});
    assert_eq!(prompt(both), "no.");
}
