//! A conversation, written down as the model wants it.

use super::App;
use crate::api::ApiError;
use crate::api::messages::{ChatMessage, ends, for_template};
use crate::api::tools::Tool;
use model_files::Extras;
use serde_json::{Map, Value};

mod telling;

/// What the chat template is given.
pub(super) struct Conversation<'a> {
    /// What was said; none if the request has no such thing.
    pub(super) messages: Option<&'a [ChatMessage]>,
    /// The functions that the model is told of.
    pub(super) tools: &'a [Tool],
    /// Values that the template asks for by name.
    pub(super) values: Map<String, Value>,
    /// Whether it goes up to where the assistant is to speak, or up to the end of what the last message says: see [`ends`].
    pub(super) add_generation_prompt: Option<bool>,
    pub(super) continue_final_message: Option<bool>,
}

impl Conversation<'_> {
    /// Its tokens.
    ///
    /// # Errors
    /// 400: no messages, an end that they have not, or what the template or the tokenizer makes nothing of.
    pub(super) fn tokens(self, app: &App) -> Result<Vec<u32>, ApiError> {
        let Some(template) = &app.template else {
            let message = "this model has no chat template; /v1/completions continues texts";
            return Err(ApiError::parameter("messages", message));
        };
        let Some(messages) = self.messages else {
            return Err(ApiError::parameter("messages", "messages are missing"));
        };
        let written = for_template(messages)?;
        let ends = ends(messages.last(), self.add_generation_prompt, self.continue_final_message)?;
        let tools = self.tools.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
        let tools = tools.map_err(ApiError::failed)?;
        let has_tools = !tools.is_empty();
        let mut written = match template.writes_calls(has_tools) {
            true => written,
            false => telling::spoken(written),
        };
        if has_tools && !template.writes_tools() {
            telling::tell(&mut written, &tools);
        }
        let tools = has_tools.then_some(tools);
        let extras = Extras { tools, values: self.values };
        let tokens = template.encode_with(&app.tokenizer, &written, &extras, ends);
        tokens.map_err(|problem| {
            let param = match &problem {
                naive_decode::Error::Invalid { what, .. } if what.contains("value") => {
                    "chat_template_kwargs"
                }
                _ => "messages",
            };
            ApiError::caused_by(param, &problem)
        })
    }
}
