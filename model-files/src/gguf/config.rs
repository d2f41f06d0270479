//! GGUF's sizes as an [`Architecture`].
//!
//! They are handed to [`Architecture::from_json`] under the names that `config.json` has for them. So
//! every check of sizes against each other is the one that Hugging Face's files go through, and
//! what a file can get wrong is said in the same words.

mod families;

use super::dialect::{Dialect, ROPE_DIVISORS};
use super::metadata::Metadata;
use super::{rope_factors, tokenizer};
use crate::architectures::Architecture;
use kv_cache::RopeScaling;
use naive_decode::{Error, Result};
use serde_json::{Map, Value, json};

/// Whole numbers that must be there: GGUF's key after the architecture's name, and `config.json`'s.
const SIZES: [(&str, &str); 5] = [
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
    ("feed_forward_length", "intermediate_size"),
    ("context_length", "max_position_embeddings"),
];

/// Whole numbers that may be left out.
const OPTIONAL_SIZES: [(&str, &str); 3] = [
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.sliding_window", "sliding_window"),
];

/// Where YaRN's ramp between fast pairs and slow ones begins and ends.
const RAMP: [(&str, &str); 2] =
    [("rope.scaling.yarn_beta_fast", "beta_fast"), ("rope.scaling.yarn_beta_slow", "beta_slow")];

/// Numbers that change nothing as long as they are among these, and what is said of others.
const PLAIN: [(&str, &[f64], &str); 3] = [
    ("rope.scaling.yarn_ext_factor", &[1.0, -1.0], "1, or -1, which says the same"),
    (YARN_FACTOR, &[1.0], "1: RoPE is not stretched as YaRN has it"),
    (ATTENTION_FACTOR, &[1.0], "1: outside longrope and YaRN, no factor on RoPE is read"),
];

/// What the factor of linear scaling was called at first.
const OLD_FACTOR: &str = "rope.scale_linear";

/// Factor on what RoPE turns: longrope's, or what YaRN's is times.
const ATTENTION_FACTOR: &str = "rope.scaling.attn_factor";

/// YaRN's, or what that is times: conversion has one name for two fields of `config.json`.
const YARN_FACTOR: &str = "rope.scaling.yarn_attn_factor";

/// RoPE's base where a file does not say.
const USUAL_BASE: f64 = 10_000.0;

/// What the file's tensors say of the model's shape.
pub(super) struct Found {
    /// Rows of the embedding table, which is as large as the vocabulary.
    pub(super) embedding_rows: Option<usize>,
    /// Whether there is an output head; without one it is tied to the embedding.
    pub(super) has_head: bool,
    /// What RoPE's frequencies are divided by.
    pub(super) rope_divisors: Option<Vec<f32>>,
    /// The same in texts within the length that the model was trained at first.
    pub(super) short_divisors: Option<Vec<f32>>,
    pub(super) long_divisors: Option<Vec<f32>>,
}

/// Reads the sizes of a model whose file is in `dialect`.
///
/// # Errors
/// If one is missing, is no number, or does not go with the others; or for features that its family
/// does not have here.
pub(super) fn from_metadata(
    metadata: &Metadata,
    dialect: &Dialect,
    found: Found,
) -> Result<Architecture> {
    let key = |part: &str| dialect.key(part);
    let mut fields = Map::new();
    fields.insert("architectures".into(), json!([dialect.hugging_face]));
    for (part, field) in SIZES {
        let size = metadata.integer(&key(part))?;
        let size = size.ok_or_else(|| metadata.missing(&key(part), "a whole number"))?;
        fields.insert(field.into(), size.into());
    }
    for (part, field) in OPTIONAL_SIZES {
        if let Some(size) = metadata.integer(&key(part))? {
            fields.insert(field.into(), size.into());
        }
    }
    let rows = found.embedding_rows.ok_or_else(|| {
        Error::file(
            metadata.file,
            "tensor `token_embd.weight` is missing, expected [vocabulary, width]",
        )
    })?;
    fields.insert("vocab_size".into(), rows.into());
    fields.insert("tie_word_embeddings".into(), (!found.has_head).into());
    let epsilon = key("attention.layer_norm_rms_epsilon");
    let value = metadata.float(&epsilon)?;
    let value = value.ok_or_else(|| metadata.missing(&epsilon, "a small number"))?;
    fields.insert("rms_norm_eps".into(), value.into());
    let has_longrope = dialect.name == "phi3" && found.short_divisors.is_some();
    let has_yarn = metadata.text(&key("rope.scaling.type"))? == Some("yarn");
    // DeepSeek's YaRN has factors of its own.
    let has_yarn = has_yarn && dialect.name != "deepseek2";
    check_plain(metadata, dialect, has_longrope, has_yarn)?;
    add_rope(metadata, dialect, found.rope_divisors.as_deref(), &mut fields)?;
    fields.insert("eos_token_id".into(), tokenizer::ends(metadata)?.into());
    let longrope = families::Longrope {
        short: found.short_divisors.as_deref(),
        long: found.long_divisors.as_deref(),
    };
    families::add(metadata, dialect, longrope, &mut fields)?;
    let json = Value::Object(fields).to_string();
    Architecture::from_json(&format!("{}, metadata", metadata.file), json.as_bytes())
}

/// Checks what is not handed on.
///
/// # Errors
/// Numbers of RoPE that nobody would read, so that the model would be another.
fn check_plain(
    metadata: &Metadata,
    dialect: &Dialect,
    has_longrope: bool,
    has_yarn: bool,
) -> Result<()> {
    for (part, plain, expected) in PLAIN {
        let key = dialect.key(part);
        match metadata.float(&key)? {
            Some(_) if (has_longrope || has_yarn) && part == ATTENTION_FACTOR => {}
            Some(_) if has_yarn && part == YARN_FACTOR => {}
            Some(found) if !plain.contains(&found) => {
                return Err(metadata.mismatch(&key, &found.to_string(), expected));
            }
            _ => {}
        }
    }
    Ok(())
}

/// RoPE's base, how much of a head it turns, and what stretches it.
fn add_rope(
    metadata: &Metadata,
    dialect: &Dialect,
    divisors: Option<&[f32]>,
    fields: &mut Map<String, Value>,
) -> Result<()> {
    let key = |part: &str| dialect.key(part);
    let said = metadata.float(&key("rope.freq_base"))?;
    if let Some(theta) = said {
        fields.insert("rope_theta".into(), theta.into());
    }
    let theta = said.unwrap_or(USUAL_BASE);
    let size = |field: &str| fields.get(field).and_then(Value::as_u64);
    let heads = size("num_attention_heads").unwrap_or(0).max(1);
    let head_dim = size("head_dim").or_else(|| Some(size("hidden_size")? / heads)).unwrap_or(0);
    let turned = metadata.integer(&key("rope.dimension_count"))?.unwrap_or(head_dim);
    if turned != head_dim {
        fields.insert("partial_rotary_factor".into(), (turned as f64 / head_dim as f64).into());
    }
    let factor = match metadata.float(&key("rope.scaling.factor"))? {
        None => metadata.float(&key(OLD_FACTOR))?,
        factor => factor,
    };
    let kind = match metadata.text(&key("rope.scaling.type"))? {
        // Files that say no more than a factor are of the time when there was one way to stretch RoPE.
        None => factor.filter(|factor| ![0.0, 1.0].contains(factor)).map(|_| "linear"),
        kind => kind.filter(|&kind| kind != "none"),
    };
    if let Some(kind) = kind {
        let mut scaling = Map::new();
        scaling.insert("rope_type".into(), kind.into());
        if let Some(factor) = factor {
            scaling.insert("factor".into(), factor.into());
        }
        if let Some(trained) = metadata.integer(&key("rope.scaling.original_context_length"))? {
            scaling.insert("original_max_position_embeddings".into(), trained.into());
        }
        for (part, field) in RAMP {
            if let Some(turns) = metadata.float(&key(part))? {
                scaling.insert(field.into(), turns.into());
            }
        }
        if kind == "yarn" && dialect.name != "deepseek2" {
            let times = yarn_factor(metadata, dialect, factor.unwrap_or(1.0))?;
            scaling.extend(times.map(|times| ("attn_factor".into(), times.into())));
        }
        fields.insert("rope_scaling".into(), scaling.into());
    }
    if let Some(divisors) = divisors
        && let Some(scaling) = rope_factors::scaling(metadata.file, divisors, theta)?
    {
        if let Some(kind) = kind {
            let expected =
                format!("none beside tensor `{ROPE_DIVISORS}`, which stretches RoPE, too");
            return Err(metadata.mismatch(&key("rope.scaling.type"), kind, &expected));
        }
        fields.insert("rope_scaling".into(), scaling);
    }
    Ok(())
}

/// What YaRN's factor on queries and keys is times, if the file has something to say of it.
///
/// # Errors
/// A number that may be that or the whole factor, and is neither for certain.
fn yarn_factor(metadata: &Metadata, dialect: &Dialect, factor: f64) -> Result<Option<f64>> {
    let times = metadata.float(&dialect.key(ATTENTION_FACTOR))?.filter(|&times| times != 1.0);
    let key = dialect.key(YARN_FACTOR);
    let usual = RopeScaling::sharpening(factor);
    // As near as 32 bits are to 64.
    let is = |said: f64, meant: f64| (said / meant - 1.0).abs() < 1e-6;
    match metadata.float(&key)? {
        // The whole factor, which is the usual one.
        Some(said) if is(said, usual) || said == 1.0 => Ok(times),
        // Times the usual one it is nothing: the model was trained without (DeepSeek-R1-0528-Qwen3-8B).
        Some(said) if is(said, 1.0 / usual) && times.is_none() => Ok(Some(said)),
        Some(said) => {
            let expected = format!("1, YaRN's factor {usual:.4}, or one by that");
            Err(metadata.mismatch(&key, &said.to_string(), &expected))
        }
        None => Ok(times),
    }
}
