//! Phi-3 and Phi-4: Llama with matrices that are several in one; in some, RoPE turns a part of each
//! head, and in some it was stretched with a factor for each frequency ("longrope", Ding et al.
//! 2024).
//!
//! Longrope has two lists of factors, one for texts within the length that the model was trained at
//! first, one for longer ones. A text that grew past it would change frequencies under the keys
//! that are cached already. So one list is chosen when the model is loaded, by the context that is
//! asked for: the first, and the context ends where it ends; or, if more is asked for, the second.

use super::fields::Fields;
use super::steps::{OwnRope, TurnPart};
use super::{Architecture, Family, Source};
use naive_decode::{Block, Config, Error, Gated, Grouped, LoadOptions, Model, Parts, Result, Rope};
use serde_json::Value;
use std::sync::Arc;

struct Phi3 {
    /// Of each layer, how many tokens back a row sees.
    windows: Vec<Option<usize>>,
    /// How RoPE turns, if not as Llama's does.
    turns: Option<Turns>,
}

/// RoPE of one's own.
struct Turns {
    /// Radians a position, one for each pair that is turned.
    frequencies: Vec<f64>,
    /// The same for contexts longer than the trained one, and how long those may be.
    long: Option<(Vec<f64>, usize)>,
    /// Factor on every cosine and sine.
    magnitude: f64,
}

/// # Errors
/// Whatever does not go together.
pub(super) fn read(fields: &Fields) -> Result<Architecture> {
    // One window for all layers, said as Qwen would.
    let kind = if fields.value("sliding_window").is_some() { "sliding" } else { "full" };
    let types = vec![format!("{kind}_attention"); fields.layers()?];
    let long = LongRope::read(fields)?;
    // What is turned is read here, from wherever it is said.
    let own = ["use_sliding_window", "partial_rotary_factor"];
    let mut rest = fields.clone().without(&own).with("layer_types", types);
    if let Some(Value::Object(mut newer)) = fields.value("rope_parameters").cloned() {
        newer.remove("partial_rotary_factor");
        rest = rest.with("rope_parameters", newer);
    }
    if long.is_some() {
        rest = rest.without(&["rope_scaling", "rope_parameters"]).with("rope_theta", theta(fields));
    }
    let shape = rest.as_windowed()?;
    let mut config = shape.base;
    let width = turned_width(fields, config.head_dim)?;
    let plain = Rope::new(config.rope_theta, width, 1);
    let turns = match long {
        Some(long) => {
            config.trained_context = config.trained_context.min(long.trained);
            Some(long.turns(fields, plain.frequencies())?)
        }
        None if width == config.head_dim => None,
        None if config.rope_scaling.is_some() => {
            let expected =
                "1: heads of which a part is turned, and stretching besides, are not read";
            return Err(fields.refusal("partial_rotary_factor", expected));
        }
        None => {
            let frequencies = plain.frequencies().to_vec();
            Some(Turns { frequencies, long: None, magnitude: 1.0 })
        }
    };
    Ok(Architecture { config, family: Box::new(Phi3 { windows: shape.windows, turns }) })
}

/// RoPE's base, from either of the places where configs keep it.
fn theta(fields: &Fields) -> Value {
    let newer = fields.value("rope_parameters").and_then(|it| it.get("rope_theta"));
    fields.value("rope_theta").or(newer).cloned().unwrap_or_else(|| 10_000.0.into())
}

/// How much of a head RoPE turns.
fn turned_width(fields: &Fields, head_dim: usize) -> Result<usize> {
    let newer =
        fields.value("rope_parameters").and_then(|it| it.get("partial_rotary_factor")?.as_f64());
    let factor = fields.number("partial_rotary_factor")?.or(newer).unwrap_or(1.0);
    // A quotient of two whole numbers may be a hair below what it is a part of.
    let width = (factor * head_dim as f64 + 1e-6) as usize;
    if !(factor > 0.0 && factor <= 1.0) || width < 2 || !width.is_multiple_of(2) {
        let expected = format!("a part of a head, {head_dim} wide, that is an even number");
        return Err(fields.refusal("partial_rotary_factor", &expected));
    }
    Ok(width)
}

/// What `rope_scaling` says when it is of type "longrope".
struct LongRope {
    /// One divisor for each frequency, for texts within `trained`.
    short: Vec<f64>,
    /// The same for longer texts, if it is said.
    long: Option<Vec<f64>>,
    /// Tokens that the model was trained at first.
    trained: usize,
    /// Tokens that the context was stretched to.
    stretched: usize,
    /// Factor on cosines and sines, if it is said.
    magnitude: Option<f64>,
}

impl LongRope {
    fn read(fields: &Fields) -> Result<Option<Self>> {
        let newer = || fields.value("rope_parameters");
        let Some(scaling) = fields.value("rope_scaling").or_else(newer) else { return Ok(None) };
        let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str);
        // Phi-3's first configs call it "su".
        if !matches!(kind, Some("longrope" | "su")) {
            return Ok(None);
        }
        let refuse = |part: &str, expected: &str| {
            let found = scaling.get(part).map_or("missing".to_owned(), Value::to_string);
            let problem = format!("rope_scaling.{part} is {found}, expected {expected}");
            Error::file(fields.file(), problem)
        };
        let list = |name: &str| {
            let list = scaling.get(name).and_then(Value::as_array);
            let list =
                list.and_then(|list| list.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
            let list = list.filter(|list| list.iter().all(|&f| f > 0.0));
            list.ok_or_else(|| refuse(name, "a list of numbers above 0"))
        };
        let short = list("short_factor")?;
        let told = scaling.get("long_factor").and_then(Value::as_array);
        let long = told.filter(|told| !told.is_empty()).map(|_| list("long_factor")).transpose()?;
        let original = "original_max_position_embeddings";
        let inner = scaling.get(original).and_then(Value::as_u64).map(|n| n as usize);
        let trained = match fields.count(original)?.or(inner).filter(|&n| n > 1) {
            Some(trained) => trained,
            None => return Err(fields.refusal(original, "a number of tokens: RoPE is stretched")),
        };
        let stretched = fields.count("max_position_embeddings")?.unwrap_or(trained);
        let magnitude = match scaling.get("attention_factor").filter(|told| !told.is_null()) {
            None => None,
            Some(told) => match told.as_f64().filter(|&factor| factor > 0.0) {
                None => return Err(refuse("attention_factor", "a number above 0")),
                factor => factor,
            },
        };
        Ok(Some(LongRope { short, long, trained, stretched, magnitude }))
    }

    fn turns(&self, fields: &Fields, plain: &[f64]) -> Result<Turns> {
        let slower = |name: &str, divisors: &[f64]| {
            if divisors.len() != plain.len() {
                let problem = format!(
                    "rope_scaling.{name} has {} numbers, expected {}, one for each pair",
                    divisors.len(),
                    plain.len()
                );
                return Err(Error::file(fields.file(), problem));
            }
            Ok(plain.iter().zip(divisors).map(|(f, divisor)| f / divisor).collect())
        };
        let factor = self.stretched as f64 / self.trained as f64;
        let usual = match factor > 1.0 {
            true => (1.0 + libm::log(factor) / libm::log(self.trained as f64)).sqrt(),
            false => 1.0,
        };
        Ok(Turns {
            frequencies: slower("short_factor", &self.short)?,
            long: match &self.long {
                Some(long) => Some((slower("long_factor", long)?, self.stretched)),
                None => None,
            },
            magnitude: self.magnitude.unwrap_or(usual),
        })
    }
}

impl Turns {
    fn rope(&self, config: &Config, options: LoadOptions) -> Arc<Rope> {
        let context = options.context.unwrap_or(config.trained_context);
        let (frequencies, positions) = match &self.long {
            Some((long, most)) if context > config.trained_context => (long, context.min(*most)),
            _ => (&self.frequencies, context),
        };
        Arc::new(Rope::with_frequencies(frequencies.clone(), self.magnitude, positions))
    }
}

impl Family for Phi3 {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        let rope = self.turns.as_ref().map(|turns| turns.rope(&config, from.options));
        let block = |parts: &Parts, index: usize| self.block(parts, index, rope.as_ref());
        Model::assemble_blocks(config, from.options, from.tensors, from.pack, &block)
    }

    fn longest_context(&self, config: &Config) -> usize {
        let long = self.turns.as_ref().and_then(|turns| turns.long.as_ref());
        long.map_or(config.trained_context, |(_, most)| *most)
    }

    fn turns_by_its_own(&self) -> bool {
        self.turns.is_some()
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.windows
    }
}

impl Phi3 {
    fn block(&self, parts: &Parts, index: usize, rope: Option<&Arc<Rope>>) -> Result<Block> {
        let isa = parts.options.isa;
        let grouped = match rope {
            None => Grouped::llama(parts, index),
            Some(rope) => {
                let step = TurnPart { head_dim: parts.config.head_dim, isa };
                Grouped::with(index, OwnRope { step, rope: rope.clone() })
            }
        };
        let projection = parts.projection(Grouped { joined_as: Some("qkv_proj"), ..grouped })?;
        let gated = Gated::llama(parts.config, index);
        let gated = Gated { joined_as: Some("gate_up_proj"), ..gated };
        let block = parts.block_of(index, projection, parts.feed_forward(&gated)?)?;
        Ok(Block { window: self.windows[index], ..block })
    }
}
