//! The `config.json` of Gemma 2 and 3.

use super::super::Architecture;
use super::super::fields::Fields;
use super::Gemma;
use naive_decode::Result;
use serde_json::{Value, json};

/// Gemma 3's base of RoPE where a layer sees everything, and where it has a window.
const GLOBAL_THETA: f64 = 1_000_000.0;
const LOCAL_THETA: f64 = 10_000.0;

/// Of so many layers, the last sees everything.
const PATTERN_2: usize = 2;
const PATTERN_3: usize = 6;

/// Gemma 2. What its config leaves out is as in Hugging Face's `Gemma2Config`, where `null` says that there is no cap
/// or no window.
///
/// # Errors
/// Whatever does not go together.
pub(in super::super) fn read_2(fields: &Fields) -> Result<Architecture> {
    let whole = fields.clone().or_usual([
        ("attn_logit_softcapping", json!(50.0)),
        ("final_logit_softcapping", json!(30.0)),
    ]);
    read(whole, PATTERN_2, None, "")
}

/// Gemma 3.
///
/// # Errors
/// Whatever does not go together.
pub(in super::super) fn read_3(fields: &Fields) -> Result<Architecture> {
    read_3_named(fields, "")
}

/// The half of a Gemma 3 that reads and writes; the half that sees is left alone.
///
/// # Errors
/// Whatever does not go together.
pub(in super::super) fn read_text_of_3(fields: &Fields) -> Result<Architecture> {
    let mut text = fields.inside("text_config")?;
    if let (None, Some(ends)) = (text.value("eos_token_id"), fields.value("eos_token_id")) {
        text = text.with("eos_token_id", ends.clone());
    }
    read_3_named(&text, "language_model.")
}

/// What a config leaves out is as in Hugging Face's `Gemma3TextConfig`.
fn read_3_named(fields: &Fields, prefix: &'static str) -> Result<Architecture> {
    let fields = &fields.clone().or_usual([
        ("vocab_size", json!(262_208)),
        ("max_position_embeddings", json!(131_072)),
        ("rms_norm_eps", json!(1e-6)),
    ]);
    let pattern = fields.count("sliding_window_pattern")?.unwrap_or(PATTERN_3);
    let (mut rest, newer) = fields.clone().rope_by_kind()?;
    let local = fields.positive("rope_local_base_freq")?.or(newer);
    let told = rest.value("rope_parameters").is_some_and(|it| it.get("rope_theta").is_some());
    if !told && rest.value("rope_theta").is_none() {
        rest = rest.with("rope_theta", GLOBAL_THETA);
    }
    let rest = trained_before(rest, "rope_scaling")?;
    let rest = trained_before(rest, "rope_parameters")?;
    read(rest, pattern, Some(local.unwrap_or(LOCAL_THETA)), prefix)
}

/// The length that Gemma 3 has was interpolated to: its config names it where Llama's name the length
/// before. So what the stretching in `place` began with is said, if it is not.
fn trained_before(fields: Fields, place: &str) -> Result<Fields> {
    const TRAINED: &str = "original_max_position_embeddings";
    let reached = fields.count("max_position_embeddings")?;
    let scaling = fields.value(place).and_then(Value::as_object).filter(|scaling| {
        let kind = scaling.get("rope_type").or_else(|| scaling.get("type"));
        kind.is_some_and(|kind| kind == "linear") && !scaling.contains_key(TRAINED)
    });
    let factor = scaling.and_then(|it| it.get("factor")?.as_f64()).filter(|&it| it >= 1.0);
    let (Some(scaling), Some(factor), Some(reached)) = (scaling, factor, reached) else {
        return Ok(fields);
    };
    let mut scaling = scaling.clone();
    scaling.insert(TRAINED.into(), (reached as f64 / factor).ceil().into());
    Ok(fields.with(place, scaling))
}

fn read(
    fields: Fields,
    pattern: usize,
    local_theta: Option<f64>,
    prefix: &'static str,
) -> Result<Architecture> {
    // The same in both classes of Hugging Face's.
    let fields = fields.or_usual([
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(4)),
        ("head_dim", json!(256)),
        ("query_pre_attn_scalar", json!(256)),
        ("sliding_window", json!(4096)),
    ]);
    // Two names of one thing, of which the newer counts.
    let newer = fields.value("hidden_activation").is_some();
    let gate = if newer { "hidden_activation" } else { "hidden_act" };
    let known = [None, Some("gelu_pytorch_tanh")];
    if !known.contains(&fields.value(gate).map(|it| it.as_str().unwrap_or_default())) {
        return Err(fields.refusal(gate, "gelu_pytorch_tanh"));
    }
    let score_cap = fields.positive("attn_logit_softcapping")?;
    let logit_cap = fields.positive("final_logit_softcapping")?;
    let scalar = fields.positive("query_pre_attn_scalar")?;
    let mut rest =
        fields.without(&["hidden_act", "use_sliding_window"]).or_window_but_every(pattern)?;
    if rest.value("tie_word_embeddings").is_none() {
        rest = rest.with("tie_word_embeddings", Value::Bool(true));
    }
    let shape = rest.as_windowed()?;
    let scalar = scalar.unwrap_or(shape.base.head_dim as f64);
    let family = Gemma {
        windows: shape.windows,
        scale: (1.0 / scalar.sqrt()) as f32,
        score_cap: score_cap.map(|cap| cap as f32),
        logit_cap: logit_cap.map(|cap| cap as f32),
        local_theta,
        prefix,
    };
    Ok(Architecture { config: shape.base, family: Box::new(family) })
}
