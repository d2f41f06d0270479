//! How a model writes calls, found out from what its chat template makes of one.

use super::Mark;
use crate::api::calling::ARGUMENTS;
use crate::text::{CallFinder, MARKED, Marked, Style, Thinking, ThoughtFinder, Told, Writer};
use model_files::{ChatTemplate, Ends, Extras};
use naive_decode::Tokenizer;
use serde_json::{Value, json};

/// How a model writes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Calls {
    /// What they are marked with, if with anything.
    pub(super) marked: Option<&'static Marked>,
    /// Whether they stand in a list.
    pub(super) is_list: bool,
    /// What a call calls its arguments.
    pub(super) arguments: &'static str,
}

/// Llama 3's word for arguments.
pub(super) const PARAMETERS: &str = "parameters";

/// A function that nobody has.
const PROBE: &str = "probe";

/// What a template makes of an assistant that calls a function; none if it has no place for tools or for calls.
pub(super) fn shown(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    marks: &[Mark],
) -> Option<String> {
    if !template.writes_tools() {
        return None;
    }
    let call = json!({
        "id": "123456789", "type": "function",
        "function": {"name": PROBE, "arguments": {"key": "value"}},
    });
    let messages = [
        json!({"role": "user", "content": "question"}),
        json!({"role": "assistant", "content": "", "tool_calls": [call]}),
    ];
    let tool = json!({"type": "function", "function": {
        "name": PROBE, "description": "tells something",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    }});
    let extras = Extras { tools: Some(vec![tool]), ..Extras::default() };
    let tokens =
        |messages: &[Value], ends| template.encode_with(tokenizer, messages, &extras, ends);
    let before = tokens(&messages[..1], Ends::BeforeAnswer).ok()?;
    let all = tokens(&messages, Ends::AfterMessages).ok()?;
    let same = before.iter().zip(&all).take_while(|(one, other)| one == other).count();
    let style = Style { marks: marks.iter().map(|mark| mark.token).collect(), ..Style::default() };
    let mut writer = Writer::new(tokenizer, &[], &style);
    let mut text = String::new();
    for &token in &all[same..] {
        text += &writer.write(Told { token, logprob: None, top: Vec::new(), offset: 0 }).ok()?.text;
    }
    text += &writer.finish().text;
    text.contains(PROBE).then_some(text)
}

impl Calls {
    /// How a call is written in what a template [shows](shown).
    pub(super) fn in_text(text: &str) -> Option<Self> {
        // A model that thinks is shown to have thought nothing.
        let text = &ThoughtFinder::new(Thinking::MayCome).push(text).answer;
        let mut finder = CallFinder::new(vec![PROBE.to_owned()]);
        let found = finder.push(text).calls().len() + finder.finish().calls().len();
        if found != 1 {
            return None;
        }
        let marked = MARKED.iter().find(|marked| text.contains(marked.open));
        let inside = marked
            .and_then(|marked| text.split_once(marked.open))
            .map_or(&**text, |(_, rest)| rest);
        let is_list = inside.trim_start().starts_with('[');
        let says = |word: &str| inside.contains(&format!("\"{word}\""));
        Some(Calls {
            marked,
            is_list,
            arguments: if says(PARAMETERS) { PARAMETERS } else { ARGUMENTS },
        })
    }
}
