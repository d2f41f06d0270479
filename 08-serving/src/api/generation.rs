//! What all ways of asking for text have in common.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::ApiError;
use super::formats::{Form, StructuredOutputs};
use super::read::without_nulls;

/// Parameters of either way of asking. Each may be left out or null.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct Generation {
    /// Which model; there is one.
    pub model: Option<String>,
    /// Send the answer as it comes, as server-sent events.
    pub stream: Option<bool>,
    /// How to stream; only with `stream`.
    pub stream_options: Option<StreamOptions>,
    /// Most tokens to generate. Chat: as many as fit if not given; completions: 16.
    pub max_tokens: Option<usize>,
    /// Tokens before which nothing ends the answer, unless it is held to a form and the form is whole.
    pub min_tokens: Option<usize>,
    /// Scores are divided by it; 0 takes the likeliest token. At least 0. If not given, what the model's own files say,
    /// and 1 if they say nothing; so with `top_p`, `top_k`, `min_p` and `repetition_penalty`, which then do nothing.
    #[schema(minimum = 0)]
    pub temperature: Option<f32>,
    /// The fewest likeliest tokens that reach this probability stay. Above 0, at most 1.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    /// Only this many of the likeliest tokens stay; 0 and -1 keep all.
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    /// Tokens less likely than this fraction of the likeliest go. From 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f32>,
    /// Answers to each prompt. At least 1.
    #[schema(minimum = 1, maximum = 128)]
    pub n: Option<usize>,
    /// Strings that end the answer; not where a call is demanded, which ends by itself.
    pub stop: Option<OneOrMany>,
    /// Tokens that end the answer.
    pub stop_token_ids: Option<Vec<u32>>,
    /// Whether the string that ended the answer is part of it.
    pub include_stop_str_in_output: Option<bool>,
    /// Go on where the model would end.
    pub ignore_eos: Option<bool>,
    /// Whether special tokens are left out of the text; they are if not given.
    pub skip_special_tokens: Option<bool>,
    /// The same seed gives the same answer, whatever else runs. Without one, each answer has another.
    pub seed: Option<i64>,
    /// Subtracted from a token's score each time it was generated. From -2 to 2.
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f32>,
    /// Subtracted from the score of every token generated. From -2 to 2.
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f32>,
    /// Scores of all tokens so far are divided by it. From 0.01 to 100.
    #[schema(minimum = 0.01, maximum = 100)]
    pub repetition_penalty: Option<f32>,
    /// Added to the scores of single tokens, by their ids. From -100 to 100.
    pub logit_bias: Option<BTreeMap<String, f32>>,
    /// The only tokens that the answer may have, by their ids. Without the model's end tokens among them it goes on to `max_tokens`,
    /// unless it is held to a form and the form is whole.
    #[schema(min_items = 1)]
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Words that the answer is not to have, at its beginning or after a space: the last token of one does not follow its
    /// others. Other tokens may spell the same.
    #[schema(max_items = 1024)]
    pub bad_words: Option<Vec<String>>,
    /// Forms that the answer is held to.
    #[serde(default, deserialize_with = "without_nulls")]
    pub structured_outputs: Option<StructuredOutputs>,
    /// Who may share cached prompts: those with the same salt and the same API key.
    pub cache_salt: Option<String>,
    /// Lower goes first; 0 if not given. Another one only where the server lets requests go before others.
    pub priority: Option<i32>,
    /// Tell log-probabilities of the prompt's tokens, and those of this many of the likeliest in the place of each; not with
    /// `stream`. The whole prompt is read then, known or not.
    #[schema(maximum = 20)]
    pub prompt_logprobs: Option<usize>,
    /// Whether the tokens of prompt and answer are told by their ids: all of them, those of a stop string included.
    pub return_token_ids: Option<bool>,
    /// Who asks, as the client sees it; not looked at.
    pub user: Option<String>,
    /// The client's own notes; not looked at.
    pub metadata: Option<Value>,
    /// Whether OpenAI would keep the answer; nothing is kept here.
    pub store: Option<bool>,
    /// How OpenAI would bill and queue the request; here everybody is served alike.
    pub service_tier: Option<String>,
    /// Which cache OpenAI would look in; here prompts find each other by what they say.
    pub prompt_cache_key: Option<String>,
    /// How long OpenAI would keep it; here until the room is needed.
    pub prompt_cache_retention: Option<String>,
    /// Who asks, hashed; not looked at.
    pub safety_identifier: Option<String>,
    /// What answers are made of: text, and nothing else.
    pub modalities: Option<Vec<Modality>>,
}

impl Generation {
    /// Refuses what asks for more than one answer, or for more than is in `answer`, as it is called.
    ///
    /// # Errors
    /// 400: several answers, tokens' ids, or log-probabilities of the prompt.
    pub(super) fn check_one_answer(&self, answer: &str) -> Result<(), ApiError> {
        if let Some(n) = self.n.filter(|&n| n != 1) {
            return Err(ApiError::value("n", n, &format!("1: {answer} is one answer")));
        }
        if self.return_token_ids == Some(true) {
            let expected = format!("false: {answer} has no place for them");
            return Err(ApiError::value("return_token_ids", true, &expected));
        }
        if let Some(most) = self.prompt_logprobs {
            let expected = format!("none: {answer} has no place for them");
            return Err(ApiError::value("prompt_logprobs", most, &expected));
        }
        Ok(())
    }

    /// What `structured_outputs` hold the answer to.
    ///
    /// # Errors
    /// 400: none of the forms, or several.
    pub(super) fn structured_form(&self) -> Result<Option<Form>, ApiError> {
        self.structured_outputs.as_ref().map(StructuredOutputs::form).transpose()
    }
}

/// How to stream.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamOptions {
    /// Whether a last event tells what the request came to; if not given, where every event does.
    pub include_usage: Option<bool>,
    /// Whether every event does, as in vLLM: none where `include_usage` is false.
    pub continuous_usage_stats: Option<bool>,
    /// Whether OpenAI would hide how long pieces are; here they are as long as they are.
    pub include_obfuscation: Option<bool>,
}

/// What an answer may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// Text.
    Text,
}

/// A text, or a list of texts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMany {
    /// One.
    One(String),
    /// A list.
    Many(Vec<String>),
}

impl OneOrMany {
    /// The list, of one if it was one.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}
