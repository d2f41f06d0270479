//! How many experts there are, and in which layers; read from DeepSeek's `config.json`, or filled in by whoever reads another.

use naive_decode::{Error, Result, read_json};
use serde::Deserialize;

/// How a row's affinity to an expert is computed from the router's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// Softmax over all experts; a group is as good as its best expert (DeepSeek-V2).
    Softmax,
    /// A sigmoid each. To choose, and only for that, a learned bias is added, which evens out the
    /// load without a loss of its own; a group is as good as its two best experts (DeepSeek-V3).
    Sigmoid,
}

/// Sizes and rules of a model's experts. Names are the config's.
///
/// Invariants, checked on reading and once more before a model is put together: no size is zero,
/// `n_group` divides `n_routed_experts`, `topk_group` groups exist and hold `num_experts_per_tok`
/// experts.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertsConfig {
    /// Experts to pick from.
    pub n_routed_experts: usize,
    /// Experts that a row is sent to.
    pub num_experts_per_tok: usize,
    /// Experts that every row goes through.
    pub n_shared_experts: usize,
    /// Width of one expert.
    pub moe_intermediate_size: usize,
    /// Layers at the beginning that have a plain feed-forward.
    pub first_k_dense_replace: usize,
    /// Of the layers after those, the ones whose number is a multiple of this have experts.
    pub moe_layer_freq: usize,
    /// Groups that the experts form, neighbours together; 1 if groups do not matter.
    pub n_group: usize,
    /// Groups that a row's experts may come from.
    pub topk_group: usize,
    /// What affinities are.
    pub scoring: Scoring,
    /// Whether the affinities of the chosen are divided by their sum.
    pub norm_topk_prob: bool,
    /// Factor on every weight afterwards.
    pub routed_scaling_factor: f32,
}

/// `config.json` as it stands.
#[derive(Deserialize)]
struct Raw {
    n_routed_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    n_shared_experts: Option<usize>,
    moe_intermediate_size: Option<usize>,
    first_k_dense_replace: Option<usize>,
    moe_layer_freq: Option<usize>,
    n_group: Option<usize>,
    topk_group: Option<usize>,
    topk_method: Option<String>,
    scoring_func: Option<String>,
    norm_topk_prob: Option<bool>,
    routed_scaling_factor: Option<f32>,
}

impl ExpertsConfig {
    /// Reads the experts of a `config.json`, if the model has some. `is_v3` says whose rules hold for
    /// what is left out: DeepSeek-V3's, or V2's. Numbers have defaults in V2 only. Those of V3 would
    /// be its largest model's, which no config leaves out and no other model means.
    ///
    /// # Errors
    /// Malformed JSON, a rule that this crate does not have, a number that is missing, or sizes that
    /// contradict each other.
    pub fn from_json(json: &[u8], is_v3: bool) -> Result<Option<Self>> {
        let raw: Raw = read_json("experts of the config", json)?;
        let Some(n_routed_experts) = raw.n_routed_experts else { return Ok(None) };
        let needed = |field: &str, value: Option<usize>| said(field, value, None);
        let usually = |size: usize| (!is_v3).then_some(size);
        let (method, score) = if is_v3 { ("noaux_tc", "sigmoid") } else { ("greedy", "softmax") };
        let method = raw.topk_method.as_deref().unwrap_or(method);
        let score = raw.scoring_func.as_deref().unwrap_or(score);
        let scoring = match (method, score) {
            ("greedy" | "group_limited_greedy", "softmax") => Scoring::Softmax,
            ("noaux_tc", "sigmoid") => Scoring::Sigmoid,
            _ => {
                let what = "topk_method with scoring_func";
                let expected =
                    "greedy or group_limited_greedy with softmax, or noaux_tc with sigmoid";
                return Err(Error::invalid(what, format!("{method} with {score}"), expected));
            }
        };
        // The greedy method does not look at groups, whatever the config says of them.
        let groups = |field: &str, value: Option<usize>| match method {
            "greedy" => Ok(1),
            _ => said(field, value, usually(1)),
        };
        let config = ExpertsConfig {
            n_routed_experts,
            num_experts_per_tok: needed("num_experts_per_tok", raw.num_experts_per_tok)?,
            n_shared_experts: said("n_shared_experts", raw.n_shared_experts, usually(0))?,
            moe_intermediate_size: needed("moe_intermediate_size", raw.moe_intermediate_size)?,
            first_k_dense_replace: said(
                "first_k_dense_replace",
                raw.first_k_dense_replace,
                usually(0),
            )?,
            moe_layer_freq: raw.moe_layer_freq.unwrap_or(1),
            n_group: groups("n_group", raw.n_group)?,
            topk_group: groups("topk_group", raw.topk_group)?,
            scoring,
            norm_topk_prob: raw.norm_topk_prob.unwrap_or(is_v3),
            routed_scaling_factor: said(
                "routed_scaling_factor",
                raw.routed_scaling_factor,
                (!is_v3).then_some(1.0),
            )?,
        };
        // V2's own code passes the factor over where it norms, others' code does both.
        let both = config.norm_topk_prob && config.routed_scaling_factor != 1.0;
        if scoring == Scoring::Softmax && both {
            let (what, found) = ("routed_scaling_factor", config.routed_scaling_factor);
            let expected = "1 where norm_topk_prob is true: programs differ in what both are";
            return Err(Error::invalid(what, found, expected));
        }
        config.check()?;
        Ok(Some(config))
    }

    /// Whether a layer has experts.
    pub fn in_layer(&self, layer: usize) -> bool {
        layer >= self.first_k_dense_replace && layer.is_multiple_of(self.moe_layer_freq)
    }

    /// Whether the invariants hold.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self) -> Result<()> {
        let between = |field: &str, found: usize, low: usize, high: usize| match found {
            found if (low..=high).contains(&found) => Ok(()),
            found => Err(Error::invalid(field, found, format!("between {low} and {high}"))),
        };
        // Far above any model there is; products of two stay within 64 bits.
        let most = 1 << 24;
        between("n_routed_experts", self.n_routed_experts, 1, most)?;
        between("moe_intermediate_size", self.moe_intermediate_size, 1, most)?;
        between("n_shared_experts", self.n_shared_experts, 0, most)?;
        between("moe_layer_freq", self.moe_layer_freq, 1, most)?;
        if self.n_group == 0 || !self.n_routed_experts.is_multiple_of(self.n_group) {
            let expected = format!("a divisor of n_routed_experts, {}", self.n_routed_experts);
            return Err(Error::invalid("n_group", self.n_group, expected));
        }
        between("topk_group", self.topk_group, 1, self.n_group)?;
        let choice = self.n_routed_experts / self.n_group * self.topk_group;
        between("num_experts_per_tok", self.num_experts_per_tok, 1, choice)?;
        if !self.routed_scaling_factor.is_finite() {
            let found = self.routed_scaling_factor;
            return Err(Error::invalid("routed_scaling_factor", found, "a finite number"));
        }
        Ok(())
    }
}

/// What the config says of a field, or what is usual.
///
/// # Errors
/// If it says nothing, and nothing is.
fn said<T>(field: &str, value: Option<T>, usual: Option<T>) -> Result<T> {
    let expected = "a number: the model has experts";
    value.or(usual).ok_or_else(|| Error::invalid(field, "missing", expected))
}
