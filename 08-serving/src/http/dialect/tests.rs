//! How a model writes, as its template shows, and the forms that leave it room to.

use super::calls::{Calls, PARAMETERS, shown};
use super::*;
use crate::api::calling::ARGUMENTS;
use crate::api::formats::Form;
use crate::engine::Constraint;
use crate::http::Grammars;
use embedded_models::TARGET;
use serde_json::{Value, json};

/// The embedded vocabulary with some more tokens, which are special or ordinary ones.
pub(in crate::http) fn tokenizer(more: &[&str], special: bool) -> Tokenizer {
    let mut json: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
    let first = Tokenizer::from_bytes("tokenizer.json", TARGET.tokenizer).unwrap().vocab_size();
    for (i, token) in more.iter().enumerate() {
        json["added_tokens"].as_array_mut().unwrap().push(json!({
            "id": first + i, "content": token, "special": special,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        }));
    }
    Tokenizer::from_bytes("tokenizer.json", json.to_string().as_bytes()).unwrap()
}

fn template(source: &str) -> ChatTemplate {
    let end = Some("<|end|>".to_owned());
    ChatTemplate::new("template", source, None, end).unwrap()
}

/// As Qwen writes.
const QWEN: &str = "{% if tools %}{{ '<|system|>' + tools | tojson + '<|end|>' }}{% endif %}\
    {% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}\
    {% for call in m.tool_calls or [] %}\
    {{ '<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}\
    {{ (call.function.arguments | tojson) + '}\\n</tool_call>' }}{% endfor %}<|end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>\n{% endif %}";

/// As Mistral-7B-Instruct-v0.3 writes.
const MISTRAL: &str = "{% for m in messages %}{% if m.role == 'user' %}\
    {% if loop.last and tools %}{{ '[AVAILABLE_TOOLS]' + tools | tojson }}{% endif %}\
    {{ '[INST] ' + m.content + '[/INST]' }}{% elif m.tool_calls is defined %}{{ '[TOOL_CALLS] [' }}\
    {% for call in m.tool_calls %}{{ (call.function | tojson)[:-1] }}\
    {% if call.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}\
    {{ ', \"id\": \"' + call.id + '\"}' }}{{ ']' + eos_token if loop.last else ', ' }}{% endfor %}\
    {% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}";

/// As Llama 3 writes.
const LLAMA_3: &str = "{% if tools is not none %}{{ '<|system|>' + tools | tojson + '<|end|>' }}\
    {% endif %}{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}{% if 'tool_calls' in m %}\
    {% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}\
    {% set call = m.tool_calls[0].function %}\
    {{ '{\"name\": \"' + call.name + '\", \"parameters\": ' + call.arguments | tojson + '}' }}\
    {% else %}{{ m.content }}{% endif %}<|end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>\n{% endif %}";

/// As a model that thinks and calls as Llama 3 does.
const THINKING: &str = "{{ tools }}{% for m in messages %}{{ m.content }}{% for call in m.tool_calls or [] %}\
    {{ '<think>\\n\\n</think>\\n\\n' }}{{ call.function | tojson }}{% endfor %}{% endfor %}";

/// In a way that nobody here knows.
const OTHER: &str = "{{ tools }}{% for m in messages %}{{ m.content }}{% for call in m.tool_calls or [] %}\
    {{ '<function=' + call.function.name + '>' + call.function.arguments | tojson }}{% endfor %}{% endfor %}";

/// Calls that it has no place for.
const NONE: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

fn dialect(source: &str, tokenizer: &Tokenizer) -> Dialect {
    Dialect::of(Some(&template(source)), tokenizer)
}

#[test]
fn a_template_shows_how_its_model_calls() {
    let marks = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>"];
    for (more, special) in [(&marks[..0], true), (&marks[..], true), (&marks[..], false)] {
        let tokenizer = tokenizer(more, special);
        let calls = |source| dialect(source, &tokenizer).calls;
        let of = |marked, is_list, arguments| Some(Calls { marked, is_list, arguments });
        assert_eq!(calls(QWEN), of(Some(&MARKED[0]), false, ARGUMENTS));
        assert_eq!(calls(MISTRAL), of(Some(&MARKED[1]), true, ARGUMENTS));
        assert_eq!(calls(LLAMA_3), of(None, false, PARAMETERS));
        assert_eq!(calls(THINKING), of(None, false, ARGUMENTS));
        assert_eq!((calls(OTHER), calls(NONE)), (None, None));
        // Somebody may want to know that.
        assert!(shown(&template(OTHER), &tokenizer, &[]).is_some());
        assert_eq!(shown(&template(NONE), &tokenizer, &[]), None);
    }
}

pub(in crate::http) fn with_grammars(tokenizer: Tokenizer) -> (Tokenizer, Grammars) {
    let end = tokenizer.token_id("<|end|>").unwrap();
    let grammars = Grammars::new(&tokenizer, tokenizer.vocab_size(), &[end]).unwrap();
    (tokenizer, grammars)
}

/// Whether an answer in this form may be just that text.
pub(in crate::http) fn may_be(
    (tokenizer, grammars): &(Tokenizer, Grammars),
    form: &Form,
    text: &str,
) -> bool {
    let end = tokenizer.token_id("<|end|>").unwrap();
    let mut constraint = grammars.constraint(form).unwrap();
    let mut may = |token| {
        let may = constraint.mask().unwrap().is_none_or(|set| set.contains(token));
        if may {
            constraint.accept(token).unwrap();
        }
        may
    };
    tokenizer.encode(text).unwrap().into_iter().chain([end]).all(&mut may)
}

fn calling() -> Calling {
    let tools = json!([
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "weather", "parameters": {
            "properties": {"city": {"$ref": "#/$defs/City"}}, "required": ["city"],
            "$defs": {"City": {"enum": ["Rome", "Oslo"]}},
        }}},
    ]);
    Calling::new(serde_json::from_value(tools).unwrap(), None).unwrap()
}

#[test]
fn an_answer_that_is_held_to_a_form_may_be_a_call_instead() {
    let object = || {
        Form::schema(
            &json!({"properties": {"a": {"type": "integer"}}, "type": "object", "required": ["a"]}),
            true,
        )
    };
    let now = "{\"name\": \"now\", \"arguments\": {}}";
    let rome = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}";
    let llama = rome.replace("arguments", "parameters");
    let marks = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]"];
    for (more, special) in [(&marks[..0], true), (&marks[..], true), (&marks[..], false)] {
        let tokenizer = with_grammars(tokenizer(more, special));
        for (source, calls) in [
            (
                QWEN,
                vec![
                    format!("<tool_call>\n{now}\n</tool_call>"),
                    format!("<tool_call>\n{rome}\n</tool_call>\n<tool_call>{now}</tool_call>\n"),
                ],
            ),
            (
                MISTRAL,
                vec![format!("[TOOL_CALLS] [{rome}]"), format!("[TOOL_CALLS][{now}, {rome}]")],
            ),
            (LLAMA_3, vec![llama.clone()]),
            (OTHER, vec![]),
        ] {
            let dialect = dialect(source, &tokenizer.0);
            for answer in
                [object(), Form::Regex("[a-z]+".into()), Form::Lark("start: \"a\"".into())]
            {
                let text = if answer == object() { "{\"a\": 1}" } else { "a" };
                let around = |calling: &Calling, one| {
                    dialect.around(answer.clone(), Thinking::Over, calling, one)
                };
                let form = around(&calling(), false);
                assert!(may_be(&tokenizer, &form, text), "{form:?}");
                assert!(!may_be(&tokenizer, &form, "{\"b\": 1}"), "{form:?}");
                for call in &calls {
                    assert!(may_be(&tokenizer, &form, call), "{call}: {form:?}");
                    let wrong = call.replace("Rome", "Paris").replace("now", "then");
                    assert!(!may_be(&tokenizer, &form, &wrong), "{wrong}: {form:?}");
                    let one = around(&calling(), true);
                    let is_one = call.matches("name").count() == 1;
                    assert_eq!(may_be(&tokenizer, &one, call), is_one, "{call}: {one:?}");
                }
                // Without functions, it is the form.
                assert_eq!(around(&Calling::default(), false), answer);
            }
        }
    }
}

/// As Qwen3 writes: thoughts are left out of earlier answers.
const QWEN_3: &str = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}";

#[test]
fn an_answer_that_is_held_to_a_form_may_be_thought_about_first() {
    let marks = ["<think>", "</think>"];
    for (more, special) in [(&marks[..0], true), (&marks[..], true), (&marks[..], false)] {
        let tokenizer = with_grammars(tokenizer(more, special));
        let dialect = dialect(QWEN_3, &tokenizer.0);
        let may = |thinking, text: &str| {
            let form = Form::schema(&json!({"const": {"a": 1}}), true);
            may_be(&tokenizer, &dialect.around(form, thinking, &Calling::default(), false), text)
        };
        let said = "{\"a\": 1}";
        let opened = format!("<think>\nHm {{ \"é\".\n\n1 < 2.\n</think>\n\n{said}");
        let thought = opened.strip_prefix("<think>\n").unwrap();
        for (thinking, is_silent, is_opened, is_thought) in [
            (Thinking::Over, true, false, false),
            (Thinking::MayCome, true, true, false),
            (Thinking::UnderWay, false, true, true),
        ] {
            assert_eq!(may(thinking, said), is_silent, "{thinking:?}");
            assert_eq!(may(thinking, &opened), is_opened, "{thinking:?}");
            assert_eq!(may(thinking, thought), is_thought, "{thinking:?}");
            assert!(!may(thinking, &opened.replace('a', "b")), "{thinking:?}");
            assert!(!may(thinking, &format!("{opened}</think>{said}")), "{thinking:?}");
            assert!(!may(thinking, "<think>Hm."), "{thinking:?}");
        }
    }
}

#[test]
fn a_prompt_shows_whether_its_model_thinks_already() {
    let tokenizer = tokenizer(&[], true);
    let thinks = dialect(QWEN_3, &tokenizer);
    for (end, expected) in [
        ("<|assistant|>\n", Thinking::MayCome),
        ("<|assistant|>\n<think>\n", Thinking::UnderWay),
        ("<|assistant|>\n<think>\n\n</think>\n\n", Thinking::Over),
        ("<|user|>what is <think>?<|assistant|>", Thinking::MayCome),
    ] {
        assert_eq!(thinks.thinking(end), expected, "{end}");
        assert_eq!(dialect(QWEN, &tokenizer).thinking(end), Thinking::Over);
    }
}
