//! A small model, and every cache of this rung for it.

use gqa_mla::quantized::{Codec, Kivi, QuantizedCache, Recent, Scheme, methods};
use kv_cache::{KvCache, KvShape};
use naive_decode::{Config, Element, LoadOptions, Model, Pass, Span, Want};
use std::sync::LazyLock;

pub(crate) const CONTEXT: usize = 200;
pub(crate) const VOCABULARY: u32 = 40;

pub(crate) fn model(kv_element: Element) -> Model {
    let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 32,
        "vocab_size": 40, "rms_norm_eps": 1e-5, "max_position_embeddings": 200}"#;
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    Model::random(config, 3, LoadOptions { kv_element, ..LoadOptions::default() }).unwrap()
}

pub(crate) static MODEL: LazyLock<Model> = LazyLock::new(|| model(Element::F32));

/// A cache to try: its name, and an empty one for so many sequences.
pub(crate) type Try = (&'static str, Box<dyn Fn(usize) -> Box<dyn KvCache>>);

/// Every method, and one with all that no method has together.
pub(crate) fn caches() -> Vec<Try> {
    let mut caches: Vec<Try> = methods()
        .into_iter()
        .map(|method| -> Try {
            let make = move |n| (method.make)(&MODEL, CONTEXT, n).unwrap();
            (method.name, Box::new(make))
        })
        .collect();
    let small = |n| -> Box<dyn KvCache> {
        let shape = KvShape::of(&MODEL);
        let kivi = Kivi { bits: 4, group: 4, residual: 12, rollback: 5 };
        let scheme = kivi.scheme(shape).unwrap();
        Box::new(QuantizedCache::new(scheme, shape, CONTEXT, n, MODEL.isa).unwrap())
    };
    caches.push(("KIVI with a small window", Box::new(small)));
    caches.push(("tiles and windows", Box::new(|n| exact(&MODEL, 7, 3, 4, 5, 6, n))));
    caches
}

/// Codes that lose nothing: the numbers themselves.
pub(crate) struct Exact {
    pub(crate) tokens: usize,
    pub(crate) dim: usize,
}

impl Codec for Exact {
    fn tokens(&self) -> usize {
        self.tokens
    }
    fn bytes(&self) -> usize {
        self.tokens * self.dim * 4
    }
    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        for (bytes, x) in tile.as_chunks_mut::<4>().0.iter_mut().zip(rows) {
            *bytes = x.to_le_bytes();
        }
    }
    fn numbers(&self, tile: &[u8], token: usize, numbers: &mut [f32]) -> f32 {
        let bytes = &tile.as_chunks::<4>().0[token * self.dim..];
        numbers.iter_mut().zip(bytes).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
        1.0
    }
}

pub(crate) fn exact(
    model: &Model,
    key_tokens: usize,
    value_tokens: usize,
    keys: usize,
    values: usize,
    rollback: usize,
    sequences: usize,
) -> Box<dyn KvCache> {
    let shape = KvShape::of(model);
    let scheme = Scheme {
        keys: Box::new(Exact { tokens: key_tokens, dim: shape.key_dim }),
        values: Box::new(Exact { tokens: value_tokens, dim: shape.value_dim }),
        recent: Recent { keys, values, rollback },
    };
    Box::new(QuantizedCache::new(scheme, shape, CONTEXT, sequences, model.isa).unwrap())
}

pub(crate) fn text(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i * 7 + i * seed + seed) % VOCABULARY).collect()
}

/// Feeds tokens in chunks; the bits of all their logits.
pub(crate) fn feed(
    model: &Model,
    cache: &mut dyn KvCache,
    sequence: usize,
    chunks: &[&[u32]],
) -> Vec<u32> {
    let mut bits = Vec::new();
    for chunk in chunks {
        let span = Span::new(sequence, cache.len(sequence), chunk, Want::All);
        let logits = model.forward(&Pass::one(span), cache).unwrap();
        bits.extend(logits.iter().map(|x| x.to_bits()));
    }
    bits
}

pub(crate) fn fed_at_once(make: &dyn Fn(usize) -> Box<dyn KvCache>, tokens: &[u32]) -> Vec<u32> {
    feed(&MODEL, &mut *make(1), 0, &[tokens])
}
