//! One scale for all, and one number that is far from all.

use super::TOKENS;
use crate::quality::{Judge, Material};
use crate::quantized::{Codec, Int8, QuantizedCache, Recent, Scheme, int8_code};
use embedded_models::TARGET;
use kv_cache::{Cached, CachedDecoder, ContiguousStore, KvCache, KvShape, Place, Store};
use naive_decode::break_it::{BreakIt, Side, Trial};
use naive_decode::{
    Checkpoint, Config, Decoder, Error, LoadOptions, Model, Pass, Result, Span, Want, dense,
};
use std::sync::Arc;

/// How much larger the outlier channels are. A power of two, so that full precision does not change by
/// one bit.
const OUTLIER: f32 = 64.0;

/// The key-value head that has them, in every layer.
const HEAD: usize = 0;

/// Nats a token that a cache of eight bits may part from full precision.
const BOUND: f64 = 0.1;

/// Share of the keys' own squared size that the weaker test allows for errors.
const ALLOWED: f64 = 0.01;

/// INT8 with one scale for a whole tensor: of keys, or of values, of all layers, heads and tokens. It was
/// measured once, beforehand; numbers past it saturate.
pub struct OneScale {
    scale: f32,
    dim: usize,
}

impl OneScale {
    /// For vectors of `dim` numbers of up to `largest` in size.
    pub fn new(dim: usize, largest: f32) -> Self {
        OneScale { scale: largest / 127.0, dim }
    }
}

impl Codec for OneScale {
    fn bytes(&self) -> usize {
        self.dim
    }

    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        tile.iter_mut().zip(rows).for_each(|(code, &x)| *code = int8_code(x, self.scale) as u8);
    }

    fn numbers(&self, tile: &[u8], _token: usize, numbers: &mut [f32]) -> f32 {
        numbers.iter_mut().zip(tile).for_each(|(x, &code)| *x = f32::from(code as i8));
        self.scale
    }
}

// ANCHOR: outlier
/// The embedded target with an outlier: in one key-value head of every layer, the slowest pair of key
/// channels is `factor` times as large, and the same pair of the queries that meet it as much smaller.
///
/// Their products are what they were, so the model is too: for a power of two, to the bit. RoPE turns
/// channel i with channel i + D/2, and both of the pair are scaled, so it does not notice either.
/// Trained models have such channels of their own accord (Dettmers et al. 2022; Liu et al. 2024, section 3.1).
///
/// # Errors
/// If the embedded files do not fit together.
pub fn with_outlier(factor: f32) -> Result<Model> {
    let config = Config::from_json("target/config.json", TARGET.config)?;
    let checkpoint = Checkpoint::embedded("target/model.safetensors", TARGET.weights)?;
    let (dim, group) = (config.head_dim, config.group());
    let tensors = |name: &str, shape: &[usize]| {
        let mut weights = checkpoint.tensor(name, shape)?;
        let (heads, factor) = match name {
            _ if name.ends_with("k_proj.weight") => (HEAD..HEAD + 1, factor),
            _ if name.ends_with("q_proj.weight") => {
                (HEAD * group..(HEAD + 1) * group, 1.0 / factor)
            }
            _ => return Ok(weights),
        };
        // One row of inputs for each output: `[heads · D][hidden]`.
        let rows: Vec<&mut [f32]> = weights.chunks_exact_mut(shape[1]).collect();
        for (output, row) in rows.into_iter().enumerate() {
            let (head, channel) = (output / dim, output % dim);
            if heads.contains(&head) && channel % (dim / 2) == dim / 2 - 1 {
                row.iter_mut().for_each(|weight| *weight *= factor);
            }
        }
        Ok(weights)
    };
    let options = LoadOptions::default();
    Model::assemble(config, options, &tensors, &dense(options.isa))
}
// ANCHOR_END: outlier

/// One scale for all keys, one for all values; the keys have an outlier channel.
pub const OUTLIER_SCALE: BreakIt = BreakIt {
    name: "outlier-scale",
    package: "gqa-mla",
    cites: &["inference lesson, LLM.int8()", "Dettmers et al. 2022, arXiv 2208.07339"],
    symptom: "eight bits that behave like two: one large channel takes all the steps, the others round to zero",
    guard: "predictions along the prompt part from full precision's by less than 0.1 nats a token",
    weaker_test: Some("the squared error of all keys is less than 1 % of their squared size"),
    run: |bench| {
        bench.only_embedded("the embedded weights, with an outlier put in")?;
        let model = Arc::new(with_outlier(OUTLIER)?);
        let kept = Kept::by(&model, &bench.prompt)?;
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            let cache = cache(&model, scheme(&kept, side), model.context(), 1)?;
            Ok(Box::new(CachedDecoder::new(model.clone(), cache, None)?))
        };
        let guard = |side| {
            let judge = Judge::new(&model, Material::prompt_alone(&bench.prompt))?;
            let quality = judge.judge(&|model, capacity, sequences| {
                Ok(Box::new(cache(model, scheme(&kept, side), capacity, sequences)?))
            })?;
            quality.check_divergence(BOUND)
        };
        let weaker = |side| {
            let found = kept.error_of_keys(&*scheme(&kept, side).keys);
            match found < ALLOWED {
                true => Ok(()),
                false => Err(Error::invalid(
                    "squared error of all keys",
                    format!("{:.2} % of their size", 100.0 * found),
                    format!("less than {} %", 100.0 * ALLOWED),
                )),
            }
        };
        Trial {
            about: &OUTLIER_SCALE,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// INT8 with a scale for each vector, or one for all.
fn scheme(kept: &Kept, side: Side) -> Scheme {
    let KvShape { key_dim, value_dim, .. } = kept.shape;
    let (keys, values): (Box<dyn Codec>, Box<dyn Codec>) = match side {
        Side::Clean => (Box::new(Int8::new(key_dim)), Box::new(Int8::new(value_dim))),
        Side::Broken => (
            Box::new(OneScale::new(key_dim, largest(&kept.keys))),
            Box::new(OneScale::new(value_dim, largest(&kept.values))),
        ),
    };
    Scheme { keys, values, recent: Recent::NONE }
}

fn cache(
    model: &Model,
    scheme: Scheme,
    capacity: usize,
    sequences: usize,
) -> Result<QuantizedCache> {
    QuantizedCache::new(scheme, KvShape::of(model), capacity, sequences, model.isa)
}

fn largest(rows: &[Vec<f32>]) -> f32 {
    rows.iter().flatten().fold(0.0, |largest, x| largest.max(x.abs()))
}

/// Keys and values of a text in full precision, all layers and heads: what scales are measured on.
struct Kept {
    shape: KvShape,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl Kept {
    fn by(model: &Model, text: &[u32]) -> Result<Self> {
        let shape = KvShape::of(model);
        let mut cache = Cached::new(ContiguousStore::new(shape, text.len(), 1)?, model.isa);
        model.forward(&Pass::one(Span::new(0, 0, text, Want::Nothing)), &mut cache)?;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for layer in 0..shape.layers {
            for kv_head in 0..shape.kv_heads {
                for slot in 0..cache.len(0) {
                    let place = Place { sequence: 0, layer, kv_head, slot };
                    let (mut key, mut value) =
                        (vec![0.0; shape.key_dim], vec![0.0; shape.value_dim]);
                    cache.store().key(place, &mut key);
                    cache.store().value(place, &mut value);
                    keys.push(key);
                    values.push(value);
                }
            }
        }
        Ok(Kept { shape, keys, values })
    }

    /// Squared error of all keys as a part of their squared size.
    fn error_of_keys(&self, codec: &dyn Codec) -> f64 {
        let (mut off, mut size) = (0.0, 0.0);
        let (mut tile, mut numbers) = (vec![0; codec.bytes()], vec![0.0; self.shape.key_dim]);
        for key in &self.keys {
            codec.encode(key, &mut tile);
            let factor = codec.numbers(&tile, 0, &mut numbers);
            for (x, y) in key.iter().zip(&numbers) {
                off += f64::from(x - y * factor).powi(2);
                size += f64::from(*x).powi(2);
            }
        }
        off / size
    }
}
