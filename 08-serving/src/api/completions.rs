//! A completion, as it is asked for.

use super::formats::{Form, ResponseFormat, one_form};
use super::messages::Prompt;
use super::read::without_nulls;
use super::{
    ApiError, Generation, MOST_LOGPROBS, MOST_PROMPT_LOGPROBS_TOLD, MOST_PROMPTS, OneOrMany,
};
use naive_decode::Tokenizer;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Tokens to generate if nobody says, as OpenAI has it.
const TOKENS: usize = 16;

/// The body of `POST /v1/completions`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct CompletionRequest {
    /// What to continue: a text, tokens, or a list of either.
    #[schema(required = true, nullable = false)]
    pub prompt: Option<Prompt>,
    /// Whether the prompt is part of the answer.
    pub echo: Option<bool>,
    /// Tell tokens' log-probabilities, and those of this many of the likeliest.
    #[schema(maximum = 20)]
    pub logprobs: Option<usize>,
    /// Answers to choose from; as many as `n`, for nothing is chosen here.
    pub best_of: Option<usize>,
    /// A form that the answer is held to, as in chat completions.
    #[serde(default, deserialize_with = "without_nulls")]
    pub response_format: Option<ResponseFormat>,
    /// What chat completions and completions have in common.
    #[serde(flatten)]
    pub generation: Generation,
    /// What nobody knows.
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl CompletionRequest {
    /// Tokens of each prompt, and its text as it was given; of one that came as tokens, as an answer would be written.
    ///
    /// # Errors
    /// 400: no prompt, an empty one, too many, or tokens that the vocabulary lacks.
    pub fn prompts(
        &self,
        tokenizer: &Tokenizer,
        vocabulary: usize,
    ) -> Result<Vec<Asked>, ApiError> {
        let special_written = self.generation.special_written();
        let write = |tokens: &[u32]| match special_written {
            true => tokenizer.decode_with_special(tokens),
            false => tokenizer.decode(tokens),
        };
        asked("prompt", self.prompt.clone(), MOST_PROMPTS, (tokenizer, vocabulary), &write)
    }

    /// Most tokens to generate.
    pub fn most_tokens(&self) -> usize {
        self.generation.max_tokens.unwrap_or(TOKENS)
    }

    /// How many of the likeliest tokens to tell with each; none if no log-probabilities at all.
    ///
    /// # Errors
    /// 400: more than there may be.
    pub fn likeliest(&self) -> Result<Option<usize>, ApiError> {
        match self.logprobs {
            Some(top) if top > MOST_LOGPROBS => {
                Err(ApiError::value("logprobs", top, &format!("at most {MOST_LOGPROBS}")))
            }
            top => Ok(top),
        }
    }

    /// Checks that no answers are asked for that would be thrown away.
    ///
    /// # Errors
    /// 400: more answers to choose from than answers, or fewer.
    pub fn check_best_of(&self) -> Result<(), ApiError> {
        let n = self.generation.n.unwrap_or(1);
        match self.best_of {
            Some(best_of) if best_of != n => {
                let expected = format!("{n}, as many as n: answers are not chosen from here");
                Err(ApiError::value("best_of", best_of, &expected))
            }
            _ => Ok(()),
        }
    }

    /// Checks that not too much is told of prompts: each answer has it.
    ///
    /// # Errors
    /// 400: it is too much.
    pub fn check_told(&self, prompts: &[Asked]) -> Result<(), ApiError> {
        let answers = self.generation.n.unwrap_or(1);
        let tokens = prompts.iter().map(|asked| asked.tokens.len()).sum::<usize>();
        let told = tokens.saturating_mul(answers);
        match self.generation.prompt_logprobs.is_some() && told > MOST_PROMPT_LOGPROBS_TOLD {
            false => Ok(()),
            true => {
                let found = format!("given, and is told of {told} tokens in all answers together");
                let expected = format!("at most {MOST_PROMPT_LOGPROBS_TOLD}");
                Err(ApiError::value("prompt_logprobs", found, &expected))
            }
        }
    }

    /// What the answer is held to, and the parameter that says so.
    ///
    /// # Errors
    /// 400: no form, or several.
    pub fn form(&self) -> Result<Option<(&'static str, Form)>, ApiError> {
        one_form([
            ("response_format", self.response_format.as_ref().and_then(ResponseFormat::form)),
            ("structured_outputs", self.generation.structured_form()?),
        ])
    }
}

/// Tokens of each of the prompts that the parameter `param` gives, `most` of them at most, and their texts. Of those that came as
/// tokens `write` makes texts.
///
/// # Errors
/// 400: none, an empty one, too many, or tokens that the vocabulary lacks.
pub fn asked(
    param: &'static str,
    prompt: Option<Prompt>,
    most: usize,
    (tokenizer, vocabulary): (&Tokenizer, usize),
    write: &dyn Fn(&[u32]) -> naive_decode::Result<String>,
) -> Result<Vec<Asked>, ApiError> {
    let of_text = |text: String| -> Result<Asked, ApiError> {
        let tokens = tokenizer.encode_with_special(&text);
        let tokens = tokens.map_err(|error| ApiError::caused_by(param, &error))?;
        Ok(Asked { text, tokens })
    };
    let of_tokens = |tokens: Vec<u32>| -> Result<Asked, ApiError> {
        super::known(param, &tokens, vocabulary)?;
        let text = write(&tokens).map_err(|error| ApiError::caused_by(param, &error))?;
        Ok(Asked { text, tokens })
    };
    let all: Vec<Asked> = match prompt {
        None => return Err(ApiError::parameter(param, format!("{param} is missing"))),
        Some(Prompt::Texts(OneOrMany::One(text))) => vec![of_text(text)?],
        Some(Prompt::Texts(OneOrMany::Many(texts))) => {
            super::at_most(param, texts.len(), most, "texts")?;
            texts.into_iter().map(of_text).collect::<Result<_, _>>()?
        }
        Some(Prompt::Tokens(tokens)) => vec![of_tokens(tokens)?],
        Some(Prompt::ManyTokens(many)) => {
            super::at_most(param, many.len(), most, "texts")?;
            many.into_iter().map(of_tokens).collect::<Result<_, _>>()?
        }
    };
    match all.is_empty() || all.iter().any(|asked| asked.tokens.is_empty()) {
        true => Err(ApiError::value(param, "empty", "at least one token of text")),
        false => Ok(all),
    }
}

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// As text, for echoing.
    pub text: String,
    /// As tokens.
    pub tokens: Vec<u32>,
}
