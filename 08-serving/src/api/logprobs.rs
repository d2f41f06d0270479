//! Log-probabilities, in the form of either API.

use super::ApiError;
use super::responses::Echo;
use crate::engine::TokenEvent;
use crate::text::Told;
use naive_decode::Tokenizer;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Those of a chat answer.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct ChatLogprobs {
    /// The answer's tokens.
    pub content: Vec<TokenLogprob>,
}

/// A token, how likely it was, and what was likely in its place.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TokenLogprob {
    /// The token's text; bytes that are no character are U+FFFD in it.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The token's bytes.
    pub bytes: Vec<u8>,
    /// The likeliest tokens, likeliest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>)]
    pub top_logprobs: Option<Vec<TokenLogprob>>,
}

/// Those of a completion: lists side by side.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct CompletionLogprobs {
    /// Texts of the tokens.
    pub tokens: Vec<String>,
    /// Their log-probabilities; none for a prompt's first token, which nothing comes before.
    pub token_logprobs: Vec<Option<f32>>,
    /// The likeliest tokens in their places, and the token itself.
    #[schema(value_type = Vec<Option<Object>>)]
    pub top_logprobs: Vec<Option<Map<String, Value>>>,
    /// Characters of the text before each.
    pub text_offset: Vec<usize>,
}

/// Those of a prompt, in vLLM's form: for each token how likely it was, and what was likely in its place, by ids; null for the
/// first, which nothing comes before. Written once, however many answers tell it.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct PromptLogprobs(Echo);

/// A token of a prompt, or one that was likely in its place.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PromptLogprob {
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Its place among all tokens; the likeliest has 1.
    pub rank: usize,
    /// Its text; bytes that are no character are U+FFFD in it.
    pub decoded_token: String,
}

/// What was likely in one place, the token that is there first.
struct Place(Vec<(u32, PromptLogprob)>);

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, told)| (token, told)))
    }
}

/// Lowest that is sent: JSON has no infinity.
const LOWEST: f32 = -9_999.0;

fn one(tokenizer: &Tokenizer, token: u32, logprob: f32) -> TokenLogprob {
    let bytes = tokenizer.token_bytes(token).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    TokenLogprob { token: text, logprob: logprob.max(LOWEST), bytes, top_logprobs: None }
}

/// The number as it is written for f32, not the longer one for the nearest f64.
fn short(logprob: f32) -> Value {
    logprob.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

impl ChatLogprobs {
    /// Those of some tokens, all of which have them.
    pub fn of(tokenizer: &Tokenizer, tokens: &[Told]) -> Self {
        let told = |told: &Told| {
            let mut of = one(tokenizer, told.token, told.logprob?);
            let top = told.top.iter().map(|&(token, logprob)| one(tokenizer, token, logprob));
            of.top_logprobs = Some(top.collect());
            Some(of)
        };
        ChatLogprobs { content: tokens.iter().filter_map(told).collect() }
    }
}

impl PromptLogprobs {
    /// Those of all tokens of a prompt but the first, with the `most` likeliest in the place of each.
    ///
    /// # Errors
    /// 500 if they cannot be written.
    pub fn of(tokenizer: &Tokenizer, tokens: &[TokenEvent], most: usize) -> Result<Self, ApiError> {
        let told = |token: u32, logprob: f32, rank: usize| {
            let TokenLogprob { token: decoded_token, logprob, .. } = one(tokenizer, token, logprob);
            (token, PromptLogprob { logprob, rank, decoded_token })
        };
        let place = |event: &TokenEvent| {
            let own = event.logprob.zip(event.rank);
            let own = own.map(|(logprob, rank)| told(event.token, logprob, rank));
            let top = (1..).zip(&event.top).take(most);
            let others = top.filter(|(_, (token, _))| *token != event.token);
            let others = others.map(|(rank, &(token, logprob))| told(token, logprob, rank));
            Place(own.into_iter().chain(others).collect())
        };
        let places: Vec<_> =
            std::iter::once(None).chain(tokens.iter().map(place).map(Some)).collect();
        Echo::of(&places).map(PromptLogprobs)
    }
}

impl CompletionLogprobs {
    /// Those of some tokens; the text of the first comes after `before` characters.
    pub fn of(tokenizer: &Tokenizer, tokens: &[Told], before: usize) -> Self {
        let mut all = CompletionLogprobs::default();
        for told in tokens {
            all.tokens.push(one(tokenizer, told.token, 0.0).token);
            all.token_logprobs.push(told.logprob.map(|logprob| logprob.max(LOWEST)));
            let likely = |(token, logprob): (u32, f32)| {
                let of = one(tokenizer, token, logprob);
                (of.token, short(of.logprob))
            };
            // The token itself is always among them: last, so that none of the same text is in its place.
            let all_of = |logprob| told.top.iter().copied().chain([(told.token, logprob)]);
            let top = told.logprob.map(|logprob| all_of(logprob).map(likely).collect());
            all.top_logprobs.push(top);
            all.text_offset.push(before + told.offset);
        }
        all
    }

    /// Puts more after these.
    pub fn extend(&mut self, more: CompletionLogprobs) {
        self.tokens.extend(more.tokens);
        self.token_logprobs.extend(more.token_logprobs);
        self.top_logprobs.extend(more.top_logprobs);
        self.text_offset.extend(more.text_offset);
    }
}
