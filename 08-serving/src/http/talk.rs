//! An answer in a conversation, as it is asked for: what chat completions and responses have in common.

use super::App;
use super::auth::Tenant;
use super::conversation::Conversation;
use super::prepare::{Wishes, Work};
use crate::api::ApiError;
use crate::api::calling::Calling;
use crate::api::chat::ChatRequest;
use crate::api::completions::Asked;
use crate::text::{THOUGHTS, Thinking};
use model_files::Ends;
use serde_json::Map;

mod turn;

pub(super) use turn::{Turn, Turned, stop_reason};

/// What is asked of the engine, and what the answers are read with.
pub(super) struct Talk {
    pub(super) work: Work,
    /// One for each answer.
    pub(super) turns: Vec<Turn>,
    /// Whether tokens' log-probabilities are told.
    pub(super) tells_logprobs: bool,
}

impl Talk {
    /// Of a request for answers in a conversation.
    ///
    /// # Errors
    /// 400, naming the parameter that is wrong.
    pub(super) fn of(
        app: &App,
        tenant: Tenant,
        mut request: ChatRequest,
    ) -> Result<Self, ApiError> {
        let calling = Calling::new(request.tools.take(), request.tool_choice.take())?;
        if !calling.demanded.is_empty() {
            // They are for text. Half a call is none, and would look like an answer that is done.
            request.generation.stop = None;
            request.generation.stop_token_ids = None;
        }
        let prompt = prompt(app, &request, &calling)?;
        let likeliest = request.likeliest()?;
        let thinking = thinking(app, &request, &prompt)?;
        let one_call = request.parallel_tool_calls == Some(false);
        let around = |(param, form)| {
            let form = app.dialect.around(form, thinking, &calling, one_call);
            Ok::<_, ApiError>((param, form.checked(param)?))
        };
        let form = request.form(&calling)?.map(around).transpose()?;
        let marks = app.dialect.marks(&calling);
        let work = app.prepare(Wishes {
            generation: &request.generation,
            tenant,
            param: "messages",
            prompts: vec![prompt],
            most_tokens: request.most_tokens()?,
            most_tokens_param: request.most_tokens_param(),
            takes_what_fits: request.takes_what_fits,
            likeliest,
            echoed: None,
            form,
            marks: marks.iter().map(|mark| mark.token).collect(),
        })?;
        let hidden = if work.style.special_written { Vec::new() } else { marks };
        let hidden: Vec<_> = hidden.iter().map(|mark| mark.text).collect();
        let turn = |_| Turn::new(&calling, one_call, thinking, hidden.clone());
        let turns = (0..work.choices).map(turn).collect();
        Ok(Talk { work, turns, tells_logprobs: likeliest.is_some() })
    }
}

/// How many tokens the conversation of a request has, as the model is to see it.
///
/// # Errors
/// 400, naming the parameter that is wrong.
pub(super) fn prompt_tokens(app: &App, request: &ChatRequest) -> Result<usize, ApiError> {
    let calling = Calling::new(request.tools.clone(), request.tool_choice.clone())?;
    Ok(prompt(app, request, &calling)?.tokens.len())
}

/// The conversation as the model is to see it.
fn prompt(app: &App, request: &ChatRequest, calling: &Calling) -> Result<Asked, ApiError> {
    let effort = request.reasoning_effort.iter();
    let mut values: Map<_, _> =
        effort.map(|effort| ("reasoning_effort".to_owned(), effort.as_str().into())).collect();
    values.extend(request.chat_template_kwargs.clone().unwrap_or_default());
    let conversation = Conversation {
        messages: request.messages.as_deref(),
        tools: &calling.tools,
        values,
        add_generation_prompt: request.add_generation_prompt,
        continue_final_message: request.continue_final_message,
    };
    Ok(Asked { text: String::new(), tokens: conversation.tokens(app)? })
}

/// Tokens that a mark of thoughts and the white space after it take, at most.
const MARK_TOKENS: usize = 32;

/// What the prompt leaves open of the model's thinking.
fn thinking(app: &App, request: &ChatRequest, prompt: &Asked) -> Result<Thinking, ApiError> {
    if !app.dialect.thinks {
        return Ok(Thinking::Over);
    }
    if let (Ends::InLastMessage, Some(last)) =
        (request.ends()?, request.messages.iter().flatten().last())
    {
        // What the assistant has begun goes on as what it is.
        let said = last.text()?;
        let (open, close) = THOUGHTS;
        let is_open = said.trim_start().starts_with(open) && !said.contains(close);
        return Ok(if is_open { Thinking::UnderWay } else { Thinking::Over });
    }
    let end = &prompt.tokens[prompt.tokens.len().saturating_sub(MARK_TOKENS)..];
    let end = app.tokenizer.decode_with_special(end).map_err(ApiError::failed)?;
    Ok(app.dialect.thinking(&end))
}
