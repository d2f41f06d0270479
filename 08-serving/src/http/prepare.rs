//! From a request to what the engine is asked.

use super::App;
use super::auth::Tenant;
use super::pieces::refusal;
use crate::api::completions::Asked;
use crate::api::formats::Form;
use crate::api::{ApiError, Generation, MOST_CHOICES, MOST_PROMPT_LOGPROBS};
use crate::engine::{Constraint, EngineRequest};
use crate::text::Style;
use naive_decode::Sampling;
use std::sync::Arc;

/// What a request asks for, besides [`Generation`].
pub(super) struct Wishes<'a> {
    pub(super) generation: &'a Generation,
    pub(super) tenant: Tenant,
    /// The parameter that the prompts are from.
    pub(super) param: &'static str,
    pub(super) prompts: Vec<Asked>,
    /// Most tokens of an answer; none if as many as fit.
    pub(super) most_tokens: Option<usize>,
    /// The parameter that says so.
    pub(super) most_tokens_param: &'static str,
    /// Whether as many as fit will do where that is fewer.
    pub(super) takes_what_fits: bool,
    /// How many likeliest tokens to tell, if any log-probabilities.
    pub(super) likeliest: Option<usize>,
    /// The same of the prompt's tokens, if it is told again with them.
    pub(super) echoed: Option<usize>,
    /// What answers are held to, and the parameter that says so.
    pub(super) form: Option<(&'static str, Form)>,
    /// Special tokens that are written out for whoever reads the answers, though not for the client.
    pub(super) marks: Vec<u32>,
}

/// Everything that is needed to answer.
pub(super) struct Work {
    pub(super) prompts: Vec<Arc<Asked>>,
    /// Answers to each prompt.
    pub(super) choices: usize,
    /// One for each answer, those to one prompt side by side.
    pub(super) requests: Vec<EngineRequest>,
    pub(super) style: Arc<Style>,
    /// Tokens that end answers, and those of them that the request named.
    pub(super) end_tokens: Arc<[u32]>,
    pub(super) named: Arc<[u32]>,
    /// The parameter that the prompts are from, and the one that says what answers are held to, if any does.
    pub(super) param: &'static str,
    pub(super) form: Option<&'static str>,
    /// The parameter that says which tokens answers are not to have, if any does.
    pub(super) rules: Option<&'static str>,
}

impl App {
    /// Checks a request and makes the engine's requests of it, without the moment at which they end.
    ///
    /// # Errors
    /// 400, naming the parameter that is wrong; 404 for a model that is not here.
    pub(super) fn prepare(&self, wishes: Wishes) -> Result<Work, ApiError> {
        let Wishes { generation, tenant, prompts, likeliest, echoed, .. } = wishes;
        let vocabulary = self.limits().vocabulary;
        let sampling = generation.sampling(&self.sampling, vocabulary)?;
        let priority = self.priority(generation.priority)?;
        let style = Style { marks: wishes.marks, ..generation.style()? };
        let choices = generation.choices()?;
        let answers = choices * prompts.len();
        if answers > MOST_CHOICES {
            let expected = format!("at most {MOST_CHOICES} answers to all prompts together");
            return Err(ApiError::value("n", format!("asking for {answers} answers"), &expected));
        }
        let of_prompt = generation.likeliest_of_prompt()?;
        let longest = prompts.iter().map(|asked| asked.tokens.len()).max().unwrap_or(0);
        if longest > MOST_PROMPT_LOGPROBS {
            let expected = format!("a prompt of at most {MOST_PROMPT_LOGPROBS}");
            if echoed.is_some() {
                let found = format!("with echo and a prompt of {longest} tokens");
                return Err(ApiError::value("logprobs", found, &expected));
            }
            if of_prompt.is_some() {
                let found = format!("with a prompt of {longest} tokens");
                return Err(ApiError::value("prompt_logprobs", found, &expected));
            }
        }
        let rules = generation.rules(&self.tokenizer, vocabulary)?.map(Arc::new);
        let end_tokens = generation.end_tokens(&self.end_tokens, vocabulary)?;
        let named = generation.stop_token_ids.clone().unwrap_or_default();
        if wishes.form.is_some() && generation.ignore_eos.unwrap_or(false) {
            let message = "ignore_eos is true although the answer is held to a form, which ends";
            return Err(ApiError::parameter("ignore_eos", message));
        }
        let salt = tenant.salt(generation.cache_salt.as_deref());
        let mut requests = Vec::with_capacity(answers);
        for asked in &prompts {
            // The last token of an answer is never run.
            let room = (self.limits().context + 1).saturating_sub(asked.tokens.len()).max(1);
            let most = match wishes.most_tokens {
                Some(most) if wishes.takes_what_fits => most.min(room),
                most => most.unwrap_or(room),
            };
            // Each answer has a copy of its prompt: what is refused for its length is not copied before.
            let length = self.limits().check_length(asked.tokens.len(), most);
            length.map_err(|refused| match asked.tokens.len() > self.limits().context {
                true => refusal(refused, wishes.param),
                false => refusal(refused, wishes.most_tokens_param),
            })?;
            let min_tokens = style.min_tokens;
            if min_tokens > most {
                let expected = format!("at most {most}, as many tokens as there may be");
                return Err(ApiError::value("min_tokens", min_tokens, &expected));
            }
            let first_seed = generation.first_seed();
            for choice in 0..choices as u64 {
                let seed = first_seed.wrapping_add(choice);
                // What is known of a prompt is the same for all answers to it: one finds it out.
                let of_prompt = of_prompt.filter(|_| choice == 0);
                requests.push(EngineRequest {
                    sampling: Sampling { seed, ..sampling.clone() },
                    min_tokens,
                    end_tokens: end_tokens.clone(),
                    priority,
                    salt,
                    logprobs: likeliest,
                    prompt_logprobs: echoed.max(of_prompt),
                    constraint: self.constraint(wishes.form.as_ref())?,
                    rules: rules.clone(),
                    ..EngineRequest::new(asked.tokens.clone(), most)
                });
            }
        }
        Ok(Work {
            prompts: prompts.into_iter().map(Arc::new).collect(),
            choices,
            requests,
            style: Arc::new(style),
            end_tokens: end_tokens.into(),
            named: named.into(),
            param: wishes.param,
            form: wishes.form.map(|(param, _)| param),
            rules: rules.map(|_| generation.rules_param()),
        })
    }

    fn constraint(
        &self,
        form: Option<&(&'static str, Form)>,
    ) -> Result<Option<Box<dyn Constraint>>, ApiError> {
        let Some((param, form)) = form else { return Ok(None) };
        let constraint = self.grammars.constraint(form);
        let constraint = constraint.map_err(|problem| ApiError::caused_by(param, &problem))?;
        Ok(Some(Box::new(constraint)))
    }
}
