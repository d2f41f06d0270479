//! What the page's controls say, and the deployment that it means.

use crate::engine::policy::{Budget, Continuous, Policy, StaticBatches};
use crate::load::sizes::{Sizes, Spread};
use crate::roofline::{PUBLISHED, published};
use crate::simulator::{
    Card, Deployment, Hardware, KvMethod, PassTime, SimulatedModel, Speculation, Storage, Workload,
};
use crate::{Error, Result};
use serde::Deserialize;
use std::sync::Arc;

/// Requests of a run: enough for a 95th percentile, few enough to run while a control is moved.
const REQUESTS: usize = 200;

/// What the page's controls say.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// A published shape: "llama-3-8b".
    pub model: String,
    /// A card: "h100".
    pub card: String,
    /// How many of them.
    pub cards: usize,
    /// What is kept of a token: "model", "mha", "mla".
    pub kv: String,
    /// Bits of each number of that.
    pub kv_bits: f64,
    /// Bits of a weight.
    pub weight_bits: f64,
    /// "continuous" or "static".
    pub batching: String,
    /// Requests that run at once, at most.
    pub running: usize,
    /// Tokens to guess ahead.
    pub draft: usize,
    /// How often a guess comes true, if all before it did.
    pub acceptance: f64,
    /// What guessing a token takes, as a part of a pass.
    pub draft_cost: f64,
    /// Tokens of a prompt, on average.
    pub prompt_tokens: usize,
    /// Tokens of an answer, on average.
    pub answer_tokens: usize,
    /// Requests that come in a second.
    pub per_second: f64,
}

impl Settings {
    /// The deployment.
    ///
    /// # Errors
    /// Names that are not known, or numbers that nothing can be computed with.
    pub(crate) fn deployment(&self) -> Result<Deployment> {
        let known = || PUBLISHED.map(|model| model.name).join(", ");
        let found = published(&self.model)
            .ok_or_else(|| Error::invalid("the model", format!("\"{}\"", self.model), known()))?;
        let method: KvMethod = self.kv.parse()?;
        let storage =
            Storage { weight_bits: self.weight_bits, method, window: None, kv_bits: self.kv_bits };
        let windows = vec![found.window; found.shape.layers];
        let parameters = found.shape.parameters();
        let model = SimulatedModel::new(
            found.name,
            &found.shape,
            parameters,
            &windows,
            found.context,
            storage,
        )?;
        let hardware = Hardware::from(Card::named(&self.card)?).times(self.cards)?;
        let policy: Arc<dyn Policy> = match self.batching.as_str() {
            "continuous" => Arc::new(Continuous),
            "static" => Arc::new(StaticBatches),
            other => return Err(Error::invalid("batching", other, "continuous or static")),
        };
        let (draft, acceptance, cost) = (self.draft, self.acceptance, self.draft_cost);
        Ok(Deployment {
            model,
            pass_time: PassTime::Roofline(hardware.machine()),
            hardware,
            policy,
            budget: Budget { rows: 512.max(self.running), running: self.running },
            block: 16,
            pool_tokens: None,
            speculation: Speculation { draft, acceptance, cost },
        })
    }

    /// What comes in.
    ///
    /// # Errors
    /// Numbers that make no load.
    pub(crate) fn workload(&self, longest: usize) -> Result<Workload> {
        let sizes = Sizes {
            requests: REQUESTS,
            per_second: Some(self.per_second),
            prompt_tokens: self.prompt_tokens,
            answer_tokens: self.answer_tokens,
            spread: Spread::Exponential,
            seed: 1,
        };
        Ok(Workload { sizes: sizes.draw(longest)?, clients: None, seed: 1 })
    }

    /// Mean lengths of prompt and answer.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        (self.prompt_tokens, self.answer_tokens)
    }
}
