//! Parameters of a request as the engine takes them, each checked.

use super::*;
use crate::text::Style;
use model_files::SamplingDefaults;
use naive_decode::{Error, Sampling};

/// Largest penalty either way, as OpenAI has it.
const MOST_PENALTY: f32 = 2.0;

/// Largest bias either way, as OpenAI has it.
const MOST_BIAS: f32 = 100.0;

impl Generation {
    /// The sampling parameters but for the seed, of which each answer has its own ([`Generation::first_seed`]); `defaults`
    /// for those that are not given. `vocabulary`: ids are below it.
    ///
    /// # Errors
    /// 400, naming the first parameter that is out of its range.
    pub fn sampling(
        &self,
        defaults: &SamplingDefaults,
        vocabulary: usize,
    ) -> Result<Sampling, ApiError> {
        for (name, penalty) in [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ] {
            if let Some(penalty) = penalty.filter(|p| p.is_nan() || p.abs() > MOST_PENALTY) {
                return Err(ApiError::value(name, penalty, "a number from -2 to 2"));
            }
        }
        let top_k = match self.top_k.or(defaults.top_k) {
            None | Some(-1 | 0) => None,
            Some(k) => Some(usize::try_from(k).map_err(|_| {
                ApiError::value("top_k", k, "at least 1, or 0 or -1 to keep every token")
            })?),
        };
        let repetition_penalty = self.repetition_penalty.or(defaults.repetition_penalty);
        let sampling = Sampling {
            temperature: self.temperature.or(defaults.temperature).unwrap_or(1.0),
            top_k,
            top_p: self.top_p.or(defaults.top_p).unwrap_or(1.0),
            min_p: self.min_p.or(defaults.min_p).unwrap_or(0.0),
            repetition_penalty: repetition_penalty.unwrap_or(1.0),
            presence_penalty: self.presence_penalty.unwrap_or(0.0),
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0),
            logit_bias: self.biases(vocabulary)?,
            ..Sampling::default()
        };
        sampling.validate().map_err(|error| match &error {
            // What it is about is the parameter's name.
            Error::Invalid { what, .. } => ApiError::parameter(what, error.to_string()),
            other => ApiError::parameter("temperature", other.to_string()),
        })?;
        Ok(sampling)
    }

    /// The seed of the first answer to a prompt. One that nobody chose is another each time: two prompts that are the
    /// same are not to have the same answers.
    pub fn first_seed(&self) -> u64 {
        self.seed.map_or_else(fresh_seed, |seed| seed as u64)
    }

    fn biases(&self, vocabulary: usize) -> Result<Vec<(u32, f32)>, ApiError> {
        let Some(biases) = &self.logit_bias else { return Ok(Vec::new()) };
        at_most("logit_bias", biases.len(), MOST_BIASES, "tokens")?;
        let refused =
            |found: String, expected: &str| ApiError::value("logit_bias", found, expected);
        let one = |(token, &bias): (&String, &f32)| {
            let id = token.parse().ok().filter(|id: &u32| (*id as usize) < vocabulary);
            let Some(id) = id else {
                let expected = format!("ids below the vocabulary's {vocabulary}, as strings");
                return Err(refused(format!("for token {token:?}"), &expected));
            };
            match bias.abs() <= MOST_BIAS {
                true => Ok((id, bias)),
                false => Err(refused(bias.to_string(), "numbers from -100 to 100")),
            }
        };
        biases.iter().map(one).collect()
    }

    /// How the answers are written.
    ///
    /// # Errors
    /// 400: too many stop strings, too long ones, or empty ones.
    pub fn style(&self) -> Result<Style, ApiError> {
        let stops = self.stop.clone().map_or_else(Vec::new, OneOrMany::into_vec);
        at_most("stop", stops.len(), MOST_STOPS, "strings")?;
        if let Some(stop) = stops.iter().find(|stop| stop.len() > MOST_STOP_BYTES) {
            let expected = format!("at most {MOST_STOP_BYTES}");
            return Err(ApiError::value("stop", format!("{} bytes long", stop.len()), &expected));
        }
        if stops.iter().any(String::is_empty) {
            return Err(ApiError::value("stop", "\"\"", "strings of at least one character"));
        }
        Ok(Style {
            stops,
            stop_included: self.include_stop_str_in_output.unwrap_or(false),
            special_written: self.special_written(),
            marks: Vec::new(),
            min_tokens: self.min_tokens.unwrap_or(0),
        })
    }

    /// Whether tokens that text is written without are part of it.
    pub fn special_written(&self) -> bool {
        !self.skip_special_tokens.unwrap_or(true)
    }

    /// Tokens that end an answer: the model's own, unless told to ignore them, and the request's.
    ///
    /// # Errors
    /// 400: too many, or ids that the vocabulary lacks.
    pub fn end_tokens(&self, own: &[u32], vocabulary: usize) -> Result<Vec<u32>, ApiError> {
        let asked = self.stop_token_ids.as_deref().unwrap_or_default();
        at_most("stop_token_ids", asked.len(), MOST_STOP_TOKENS, "tokens")?;
        known("stop_token_ids", asked, vocabulary)?;
        let own = if self.ignore_eos.unwrap_or(false) { &[] } else { own };
        Ok([own, asked].concat())
    }

    /// How many answers.
    ///
    /// # Errors
    /// 400: none, or more than there may be.
    pub fn choices(&self) -> Result<usize, ApiError> {
        let n = self.n.unwrap_or(1);
        match (1..=MOST_CHOICES).contains(&n) {
            true => Ok(n),
            false => Err(ApiError::value("n", n, &format!("from 1 to {MOST_CHOICES}"))),
        }
    }

    /// How many of the likeliest tokens to tell in the place of each of the prompt's; none if nothing of them.
    ///
    /// # Errors
    /// 400: more than there may be, or some of an answer that is streamed.
    pub fn likeliest_of_prompt(&self) -> Result<Option<usize>, ApiError> {
        const PARAM: &str = "prompt_logprobs";
        match self.prompt_logprobs {
            Some(top) if top > MOST_LOGPROBS => {
                Err(ApiError::value(PARAM, top, &format!("at most {MOST_LOGPROBS}")))
            }
            Some(top) if self.stream.unwrap_or(false) => {
                let message = format!(
                    "{PARAM} is {top} although stream is true: a stream has no place for them"
                );
                Err(ApiError::parameter(PARAM, message))
            }
            top => Ok(top),
        }
    }

    /// Whether to stream.
    ///
    /// # Errors
    /// 400: options of a stream where there is none.
    pub fn streaming(&self) -> Result<bool, ApiError> {
        let stream = self.stream.unwrap_or(false);
        match self.stream_options.is_some() && !stream {
            true => Err(ApiError::parameter(
                "stream_options",
                "stream_options are given although stream is not true",
            )),
            false => Ok(stream),
        }
    }
}

/// A list that is no longer than it may be.
///
/// # Errors
/// 400.
pub fn at_most(param: &str, found: usize, most: usize, of: &str) -> Result<(), ApiError> {
    match found <= most {
        true => Ok(()),
        false => {
            let found = format!("{found} {of}");
            Err(ApiError::value(param, format!("a list of {found}"), &format!("at most {most}")))
        }
    }
}

/// Tokens that the vocabulary has.
///
/// # Errors
/// 400.
pub fn known(param: &str, tokens: &[u32], vocabulary: usize) -> Result<(), ApiError> {
    match tokens.iter().find(|&&token| token as usize >= vocabulary) {
        None => Ok(()),
        Some(token) => {
            let expected = format!("ids below the vocabulary's {vocabulary}");
            Err(ApiError::value(param, format!("a list with {token} in it"), &expected))
        }
    }
}
