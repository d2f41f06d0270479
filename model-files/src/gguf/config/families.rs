//! What single families keep in GGUF's metadata, as their `config.json` has it.

use super::super::dialect::Dialect;
use super::super::metadata::Metadata;
use naive_decode::{Error, Result};
use serde_json::{Map, Value, json};

/// Adds the fields of the family that the file is of.
///
/// # Errors
/// If one is missing or is no number, or if the file has experts and its family has none here.
pub(super) fn add(
    metadata: &Metadata,
    dialect: &Dialect,
    longrope: Longrope,
    fields: &mut Map<String, Value>,
) -> Result<()> {
    let family = Family { metadata, dialect };
    // Zero says that there is no window. That is not the same as nothing, for which a family may have its own.
    if let Some(window) = fields.get_mut("sliding_window").filter(|it| it.as_u64() == Some(0)) {
        *window = Value::Null;
    }
    match dialect.name {
        "deepseek2" => return family.add_latents_and_experts(fields),
        "qwen3moe" => return family.add_experts(fields),
        _ => {}
    }
    let key = dialect.key("expert_count");
    if let Some(experts) = metadata.integer(&key)?.filter(|&n| n > 0) {
        let expected = "none: of this family, mixtures of experts are not read";
        return Err(metadata.mismatch(&key, &experts.to_string(), expected));
    }
    match dialect.name {
        // One name for two families, of which one has windows.
        "llama" if fields.get("sliding_window").is_some_and(|window| !window.is_null()) => {
            fields.insert("architectures".into(), json!(["MistralForCausalLM"]));
            Ok(())
        }
        "phi3" => family.add_longrope(longrope, fields),
        "granite" => family.add_factors(fields),
        // One name for two families here, too.
        "olmo2" if fields.get("sliding_window").is_some_and(|window| !window.is_null()) => {
            fields.insert("architectures".into(), json!(["Olmo3ForCausalLM"]));
            family.add_pattern(fields)
        }
        "gemma2" | "gemma3" => family.add_gemma(fields),
        _ => Ok(()),
    }
}

/// Phi-3's divisors of RoPE's frequencies, for short texts and for long ones.
#[derive(Clone, Copy)]
pub(super) struct Longrope<'a> {
    pub(super) short: Option<&'a [f32]>,
    pub(super) long: Option<&'a [f32]>,
}

struct Family<'a> {
    metadata: &'a Metadata<'a>,
    dialect: &'a Dialect,
}

impl Family<'_> {
    fn integer(&self, part: &str) -> Result<Option<u64>> {
        self.metadata.integer(&self.dialect.key(part))
    }

    fn needed(&self, part: &str) -> Result<u64> {
        let missing = || self.metadata.missing(&self.dialect.key(part), "a whole number");
        self.integer(part)?.ok_or_else(missing)
    }

    fn float(&self, part: &str) -> Result<Option<f64>> {
        self.metadata.float(&self.dialect.key(part))
    }

    /// Phi-3's stretching, whose divisors are tensors.
    fn add_longrope(&self, longrope: Longrope, fields: &mut Map<String, Value>) -> Result<()> {
        let Some(short) = longrope.short else { return Ok(()) };
        let mut scaling = Map::new();
        scaling.insert("rope_type".into(), "longrope".into());
        scaling.insert("short_factor".into(), json!(short));
        if let Some(long) = longrope.long {
            scaling.insert("long_factor".into(), json!(long));
        }
        if let Some(magnitude) = self.float(super::ATTENTION_FACTOR)? {
            scaling.insert("attention_factor".into(), magnitude.into());
        }
        let trained = self.needed("rope.scaling.original_context_length")?;
        fields.insert("original_max_position_embeddings".into(), trained.into());
        fields.insert("rope_scaling".into(), scaling.into());
        Ok(())
    }

    /// Caps, bases and the factor on scores. The last is not in the file: it follows from the
    /// model's size, as in Gemma's own code. What the file leaves out is as in llama.cpp, not as in a `config.json`.
    fn add_gemma(&self, fields: &mut Map<String, Value>) -> Result<()> {
        for part in ["attn_logit_softcapping", "final_logit_softcapping"] {
            // As with windows: zero says that there is none.
            if let Some(cap) = self.float(part)? {
                fields.insert(part.into(), json!((cap != 0.0).then_some(cap)));
            }
        }
        if let Some(theta) = self.float("rope.freq_base_swa")? {
            fields.insert("rope_local_base_freq".into(), theta.into());
        }
        let [heads, width, layers] =
            ["attention.head_count", "embedding_length", "block_count"].map(|it| self.needed(it));
        let (heads, width, layers) = (heads?, width?, layers?);
        let share = width / heads.max(1);
        let head_dim = fields.entry("head_dim").or_insert(share.into()).clone();
        fields.entry("num_key_value_heads").or_insert(heads.into());
        // The 27B of each.
        let largest = if self.dialect.name == "gemma2" { 46 } else { 62 };
        let scalar = if layers == largest { share.into() } else { head_dim };
        fields.insert("query_pre_attn_scalar".into(), scalar);
        if self.dialect.name == "gemma3" {
            fields.entry("sliding_window").or_insert(Value::Null);
        }
        self.add_pattern(fields)?;
        fields.insert("hidden_activation".into(), "gelu_pytorch_tanh".into());
        Ok(())
    }

    /// Which layers have a window, if there is one: all but every so-manieth, or as a list of them says.
    fn add_pattern(&self, fields: &mut Map<String, Value>) -> Result<()> {
        if fields.get("sliding_window").is_some_and(Value::is_null) {
            return Ok(());
        }
        let key = self.dialect.key("attention.sliding_window_pattern");
        if let Some(slides) = self.metadata.flags(&key)? {
            let kind = |slides: bool| if slides { "sliding_attention" } else { "full_attention" };
            let kinds: Vec<_> = slides.into_iter().map(kind).collect();
            fields.insert("layer_types".into(), kinds.into());
        } else if let Some(pattern) = self.metadata.integer(&key)? {
            fields.insert("sliding_window_pattern".into(), pattern.into());
        }
        Ok(())
    }

    /// Granite's factors. What the file leaves out, or has as 0, is as in llama.cpp: none, and scores as Llama's.
    ///
    /// # Errors
    /// If queries and keys are not turned, as in models of the family that are not attention alone.
    fn add_factors(&self, fields: &mut Map<String, Value>) -> Result<()> {
        for (part, field) in [
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
            ("attention.scale", "attention_multiplier"),
            ("logit_scale", "logits_scaling"),
        ] {
            if let Some(factor) = self.float(part)?.filter(|&factor| factor != 0.0) {
                fields.insert(field.into(), factor.into());
            }
        }
        if !fields.contains_key("attention_multiplier") {
            let (heads, width) =
                (self.needed("attention.head_count")?, self.needed("embedding_length")?);
            let head_dim = fields.get("head_dim").and_then(Value::as_u64);
            let head_dim = head_dim.unwrap_or(width / heads.max(1));
            let scale = 1.0 / (head_dim as f32).sqrt();
            fields.insert("attention_multiplier".into(), f64::from(scale).into());
        }
        let key = self.dialect.key("rope.scaling.finetuned");
        match self.metadata.flag(&key)? {
            Some(false) => {
                let expected = "true: in this family it says whether there is RoPE, and models without are not read";
                Err(self.metadata.mismatch(&key, "false", expected))
            }
            _ => Ok(()),
        }
    }

    /// Qwen3's experts, whose weights for a row are always made to come to one.
    fn add_experts(&self, fields: &mut Map<String, Value>) -> Result<()> {
        for (part, field) in [
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
        ] {
            fields.insert(field.into(), self.needed(part)?.into());
        }
        fields.insert("norm_topk_prob".into(), true.into());
        Ok(())
    }

    /// DeepSeek-V2's and V3's widths, experts and stretching.
    fn add_latents_and_experts(&self, fields: &mut Map<String, Value>) -> Result<()> {
        // Where the file speaks of the absorbed form's one head, another key has what we ask for.
        let width = |absorbed: &str, explicit: &str| match self.integer(absorbed)? {
            Some(width) => Ok(width),
            None => self.needed(explicit),
        };
        let rope = self.needed("rope.dimension_count")?;
        let key = width("attention.key_length_mla", "attention.key_length")?;
        let value = width("attention.value_length_mla", "attention.value_length")?;
        let Some(nope) = key.checked_sub(rope) else {
            let problem = format!("keys are {key} wide, expected at least RoPE's {rope}");
            return Err(Error::file(self.metadata.file, problem));
        };
        let heads = self.needed("attention.head_count")?;
        fields.remove("head_dim");
        fields.remove("partial_rotary_factor");
        let mut put = |field: &str, value: Value| drop(fields.insert(field.into(), value));
        put("num_key_value_heads", heads.into());
        put("qk_rope_head_dim", rope.into());
        put("qk_nope_head_dim", nope.into());
        put("v_head_dim", value.into());
        put("kv_lora_rank", self.needed("attention.kv_lora_rank")?.into());
        // What llama.cpp takes where a file does not say.
        for (field, usual) in [
            ("first_k_dense_replace", 0.into()),
            ("n_shared_experts", 0.into()),
            ("n_group", 1.into()),
            ("topk_group", 1.into()),
            ("routed_scaling_factor", 1.0.into()),
        ] {
            put(field, usual);
        }
        for (part, field) in [
            ("attention.q_lora_rank", "q_lora_rank"),
            ("leading_dense_block_count", "first_k_dense_replace"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_shared_count", "n_shared_experts"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_group_count", "n_group"),
            ("expert_group_used_count", "topk_group"),
        ] {
            if let Some(size) = self.integer(part)? {
                put(field, size.into());
            }
        }
        if let Some(experts) = self.integer("expert_count")?.filter(|&experts| experts > 0) {
            put("n_routed_experts", experts.into());
        }
        if let Some(factor) = self.float("expert_weights_scale")?.filter(|&factor| factor != 0.0) {
            put("routed_scaling_factor", factor.into());
        }
        let normed = self.metadata.flag(&self.dialect.key("expert_weights_norm"))?;
        put("norm_topk_prob", normed.unwrap_or(false).into());
        let grouped = self.integer("expert_group_count")?.is_some_and(|groups| groups > 1);
        let key = self.dialect.key("expert_gating_func");
        let (name, method, score) = match self.metadata.integer(&key)? {
            // 0 and nothing are what files of V2 have.
            None | Some(0 | 1) if grouped => ("V2", "group_limited_greedy", "softmax"),
            None | Some(0 | 1) => ("V2", "greedy", "softmax"),
            Some(2) => ("V3", "noaux_tc", "sigmoid"),
            Some(other) => {
                let expected = "1 (softmax) or 2 (sigmoid)";
                return Err(self.metadata.mismatch(&key, &other.to_string(), expected));
            }
        };
        put("architectures", json!([format!("Deepseek{name}ForCausalLM")]));
        put("topk_method", method.into());
        put("scoring_func", score.into());
        // A tenth of `mscale_all_dim`, which equals `mscale` in all that DeepSeek published.
        let multiplier = self.float("rope.scaling.yarn_log_multiplier")?;
        if let (Some(multiplier), Some(scaling)) =
            (multiplier, fields.get_mut("rope_scaling").and_then(Value::as_object_mut))
        {
            // f32 in the file: 0.0707 is to be 0.707 again.
            let mscale = (multiplier * 1e7).round() / 1e6;
            scaling.insert("mscale".into(), mscale.into());
            scaling.insert("mscale_all_dim".into(), mscale.into());
        }
        Ok(())
    }
}
