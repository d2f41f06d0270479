//! Chat templates: what is written down, to the letter.

use embedded_models::{TARGET, tales};
use model_files::{ChatTemplate, Ends, Extras, Message, ModelFiles};
use serde_json::json;

fn render(source: &str, messages: &[Message], prompt: bool) -> naive_decode::Result<String> {
    let tokens = ["<s>", "</s>"].map(|token| Some(token.to_owned()));
    let [beginning, end] = tokens;
    ChatTemplate::new("template", source, beginning, end)?.render(messages, prompt)
}

fn conversation(turns: &[(&str, &str)]) -> Vec<Message> {
    turns.iter().map(|(role, content)| Message::new(*role, *content)).collect()
}

/// A training text as the messages that it is made of.
pub(crate) fn messages_of(text: &str) -> Vec<Message> {
    let turns = text.split_terminator("<|end|>\n").map(|turn| {
        let (role, content) = turn.strip_prefix("<|").unwrap().split_once("|>\n").unwrap();
        Message::new(role, content)
    });
    turns.collect()
}

#[test]
fn the_embedded_template_writes_what_the_family_was_trained_on() {
    let files = ModelFiles::embedded(&TARGET).unwrap();
    let template = files.chat_template.unwrap();
    let mut systems = 0;
    for seed in 0..100 {
        let text = tales::chat(seed).text;
        let messages = messages_of(&text);
        systems += usize::from(messages[0].role == "system");
        assert_eq!(template.render(&messages, false).unwrap(), text);
        let answered = messages.len() - 1;
        let prompt = template.render(&messages[..answered], true).unwrap();
        assert!(text.starts_with(&prompt) && prompt.ends_with("<|assistant|>\n"), "{prompt}");
    }
    assert!(systems > 0, "no chat had a system message");
    let end = files.tokenizer.token_id("<|end|>");
    assert_eq!(template.end_of_turn(&files.tokenizer), end);
    assert!(files.config.end_tokens.contains(&end.unwrap()));
}

/// As SmolLM2 and Qwen write: ChatML, a system message of its own where there is none.
const CHATML: &str = "{% for message in messages %}\
    {% if loop.first and message['role'] != 'system' %}\
    {{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}\
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

#[test]
fn a_template_that_has_a_place_for_tools_says_so() {
    // As Llama 3.1 and Hermes do it; and two that only seem to.
    let llama = "{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}\
        {%- if not tools is defined %}{%- set tools = none %}{%- endif %}{{ messages[0].content }}";
    let hermes =
        "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{{ messages[0].content }}";
    let own = "{% set tools = [] %}{{ tools | length }}{{ messages[0].content }}";
    let named = "{{ messages[0].tools }} tools";
    for (source, expected) in
        [(llama, true), (hermes, true), (own, false), (named, false), (CHATML, false)]
    {
        let template = ChatTemplate::new("template", source, None, None).unwrap();
        assert_eq!(template.writes_tools(), expected, "{source}");
    }
}

#[test]
fn a_template_sees_the_messages_before_and_after() {
    // As Hermes opens and closes a run of tools' answers.
    let source = "{% for message in messages %}\
        {% if loop.previtem is not defined or loop.previtem.role != message.role %}<{{ message.role }}>{% endif %}\
        {{ message.content }}\
        {% if loop.last or loop.nextitem.role != message.role %}</{{ message.role }}>{% endif %}{% endfor %}";
    let template = ChatTemplate::new("template", source, None, None).unwrap();
    let asked = conversation(&[("user", "a"), ("tool", "b"), ("tool", "c"), ("user", "d")]);
    let text = template.render(&asked, false).unwrap();
    assert_eq!(text, "<user>a</user><tool>bc</tool><user>d</user>");
}

#[test]
fn chatml() {
    let asked = conversation(&[("user", "Hi")]);
    let system = "<|im_start|>system\nYou help.<|im_end|>\n";
    let turn = "<|im_start|>user\nHi<|im_end|>\n";
    let prompt = "<|im_start|>assistant\n";
    assert_eq!(render(CHATML, &asked, true).unwrap(), format!("{system}{turn}{prompt}"));
    assert_eq!(render(CHATML, &asked, false).unwrap(), format!("{system}{turn}"));
    let own = conversation(&[("system", "Be brief."), ("user", "Hi"), ("assistant", "Hi.")]);
    let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
        <|im_start|>assistant\nHi.<|im_end|>\n";
    assert_eq!(render(CHATML, &own, false).unwrap(), expected);
}

/// As Llama 3 writes: blocks on lines of their own, names set, text trimmed, the date told.
const LLAMA_3: &str = "{{- bos_token }}
{%- if date_string is not defined %}
    {%- set date_string = strftime_now('%d %b %Y') %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}
    {{- 'Environment: ipython\\n' }}
{%- endif %}
{{- 'Today: ' + date_string + '\\n' + system + '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
";

#[test]
fn llama_3() {
    let messages = conversation(&[("system", " Be brief.\n"), ("user", "  Hi ")]);
    let text = render(LLAMA_3, &messages, true).unwrap();
    let (before, rest) = text.split_once("Today: ").unwrap();
    assert_eq!(before, "<s><|start_header_id|>system<|end_header_id|>\n\n");
    let (date, after) = rest.split_once('\n').unwrap();
    assert!(date.len() == 11 && date[7..].parse::<u32>().unwrap() > 2024, "{date}");
    assert_eq!(
        after,
        "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\n"
    );
}

/// As Mistral writes: turns that must alternate, Python's string methods, the end after answers
/// only.
const MISTRAL: &str = "{{ bos_token }}{% for message in messages %}\
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
    {{ raise_exception('Turns must alternate user/assistant') }}{% endif %}\
    {% if message['role'] == 'user' %}{{ '[INST] ' + message['content'].strip() + ' [/INST]' }}\
    {% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}\
    {% else %}{{ raise_exception('Only user and assistant speak') }}{% endif %}{% endfor %}";

#[test]
fn mistral() {
    let good = conversation(&[("user", " Hi "), ("assistant", "Hello."), ("user", "Bye")]);
    let expected = "<s>[INST] Hi [/INST] Hello.</s>[INST] Bye [/INST]";
    assert_eq!(render(MISTRAL, &good, true).unwrap(), expected);
    let said = render(MISTRAL, &good[1..], true).unwrap_err().to_string();
    for word in ["template", "Turns must alternate"] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn blocks_on_lines_of_their_own_leave_nothing_behind() {
    let source = "{% for m in messages %}\n    {% if m.role == 'user' %}\n{{ m.content }}\n    \
                  {% endif %}\n{% endfor %}\n";
    assert_eq!(render(source, &conversation(&[("user", "Hi")]), true).unwrap(), "Hi\n");
}

#[test]
fn marks_for_training_write_nothing() {
    let marked = "{% for m in messages %}[{%- generation -%} {{ m.content }}\n\
                  {%- endgeneration %}]{% endfor %} {% raw %}{% generation{% endraw %}";
    let text = render(marked, &conversation(&[("user", "Hi")]), true).unwrap();
    assert_eq!(text, "[Hi] {% generation");
}

#[test]
fn values_are_written_as_pythons_json() {
    let said = |source: &str| {
        let message = json!({"role": "user", "tool": {"a": [1, "<é>'"], "b": null}});
        let template = ChatTemplate::new("template", source, None, None).unwrap();
        template.render(&[message], false).unwrap()
    };
    assert_eq!(said("{{ messages[0].tool | tojson }}"), r#"{"a": [1, "<é>'"], "b": null}"#);
    let indented = "{\n  \"a\": [\n    1,\n    \"<é>'\"\n  ],\n  \"b\": null\n}";
    assert_eq!(said("{{ messages[0].tool | tojson(indent=2) }}"), indented);
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let endless = "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}";
    let said = render(endless, &[], false).unwrap_err().to_string();
    assert!(said.contains("fuel"), "{said}");
    let deep = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    assert!(render(deep, &[], false).is_err());
}

#[test]
fn a_template_indents_as_far_as_a_text_may_be() {
    assert_eq!(render("{{ 'a\\nb'|indent(3) }}", &[], false).unwrap(), "a\n   b");
    for wide in ["'a'|indent(9223372036854775807)", "'a'|indent(width=9223372036854775807)"] {
        let said = render(&format!("{{{{ {wide} }}}}"), &[], false).unwrap_err().to_string();
        assert!(said.contains("expected at most 1000"), "{said}");
    }
}

#[test]
fn filters_that_fill_up_to_any_number_are_not_there() {
    for filter in ["batch", "slice"] {
        let source = format!("{{{{ 'ab'|list|{filter}(2)|length }}}}");
        let said = render(&source, &[], false).unwrap_err().to_string();
        assert!(said.contains("unknown filter") && said.contains(filter), "{said}");
    }
}

#[test]
fn a_template_longer_than_any_is_refused() {
    let most = 1 << 20;
    assert!(render(&"x".repeat(most), &[], false).is_ok());
    let said = render(&"x".repeat(most + 1), &[], false).unwrap_err().to_string();
    for word in ["template", "1048577 bytes", "at most 1048576"] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn templates_and_tokens_are_found_in_every_form_of_tokenizer_config() {
    let read = |json: serde_json::Value, own: Option<(&str, &str)>| {
        ChatTemplate::from_tokenizer_config(
            "tokenizer_config.json",
            json.to_string().as_bytes(),
            own,
        )
    };
    let written = |template: Option<ChatTemplate>| {
        template.unwrap().render(&conversation(&[]), false).unwrap()
    };
    let source = "[{{ bos_token }}|{{ eos_token }}]";
    let plain = json!({"chat_template": source, "bos_token": "<a>", "eos_token": "<b>"});
    assert_eq!(written(read(plain.clone(), None).unwrap()), "[<a>|<b>]");
    let described = json!({
        "chat_template": [
            {"name": "tool_use", "template": "x"},
            {"name": "default", "template": source},
        ],
        "bos_token": null,
        "eos_token": {"content": "<b>", "lstrip": false},
    });
    assert_eq!(written(read(described, None).unwrap()), "[|<b>]");
    // The one for tools is run where there are tools.
    let several = |tool_use: &str| {
        let named = [("tool_use", tool_use), ("default", source)];
        let named = named.map(|(name, template)| json!({"name": name, "template": template}));
        read(json!({"chat_template": named}), None)
    };
    let template =
        several("{{ tools | tojson }}{{ messages[0].tool_calls or '' }}").unwrap().unwrap();
    assert!(
        template.writes_tools() && template.writes_calls(true) && !template.writes_calls(false)
    );
    let tokenizer = ModelFiles::embedded(&TARGET).unwrap().tokenizer;
    let text = |tools: Option<Vec<serde_json::Value>>| {
        let extras = Extras { tools, ..Extras::default() };
        let tokens = template.encode_with(
            &tokenizer,
            &conversation(&[("user", "a")]),
            &extras,
            Ends::AfterMessages,
        );
        tokenizer.decode(&tokens.unwrap()).unwrap()
    };
    assert_eq!((text(None), text(Some(vec![json!(7)]))), ("[|]".into(), "[7]".into()));
    let said = several("{% if %}").unwrap_err().to_string();
    assert!(said.contains("tokenizer_config.json: chat template (line 1)"), "{said}");
    let own = Some(("chat_template.jinja", "own {{ eos_token }}"));
    assert_eq!(written(read(plain, own).unwrap()), "own <b>");
    assert!(read(json!({"bos_token": "<a>"}), None).unwrap().is_none());
    let said = read(json!({"chat_template": [{"name": "rag", "template": "x"}]}), None);
    let said = said.unwrap_err().to_string();
    assert!(said.contains("rag") && said.contains("\"default\""), "{said}");
    let said = read(json!({"chat_template": 7}), None).unwrap_err().to_string();
    assert!(said.contains("tokenizer_config.json"), "{said}");
}
