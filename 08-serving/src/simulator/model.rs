//! A model as a simulator sees it: what it weighs, what it keeps of a token, what a pass counts to.

use naive_decode::roofline::{Rows, Shape};
use naive_decode::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// What a layer keeps of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvMethod {
    /// What the model's shape says.
    OfTheModel,
    /// A key and a value for each query head: multi-head attention.
    MultiHead,
    /// A key and a value for each of so many groups of query heads; one is multi-query attention.
    Grouped(usize),
    /// One latent vector for all heads, and a key that carries the position: multi-head latent attention.
    Latent {
        /// Width of the latent, which is read as keys and as values.
        latent: usize,
        /// Width of the key with the position.
        rope: usize,
    },
}

/// DeepSeek's: 512 and 64.
pub const DEEPSEEK_LATENT: KvMethod = KvMethod::Latent { latent: 512, rope: 64 };

impl FromStr for KvMethod {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let expected = "model, mha, mqa, gqa:GROUPS, mla, or mla:LATENT+ROPE";
            Error::invalid("the KV method", format!("\"{text}\""), expected)
        };
        let width = |digits: &str| match digits.parse() {
            Ok(width @ 1..=1_000_000) => Ok(width),
            _ => Err(refused()),
        };
        match text.split_once(':') {
            None if text == "model" => Ok(KvMethod::OfTheModel),
            None if text == "mha" => Ok(KvMethod::MultiHead),
            None if text == "mqa" => Ok(KvMethod::Grouped(1)),
            None if text == "mla" => Ok(DEEPSEEK_LATENT),
            Some(("gqa", groups)) => Ok(KvMethod::Grouped(width(groups)?)),
            Some(("mla", widths)) => {
                let (latent, rope) = widths.split_once('+').ok_or_else(refused)?;
                Ok(KvMethod::Latent { latent: width(latent)?, rope: width(rope)? })
            }
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for KvMethod {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            KvMethod::OfTheModel => write!(f, "model"),
            KvMethod::MultiHead => write!(f, "mha"),
            KvMethod::Grouped(1) => write!(f, "mqa"),
            KvMethod::Grouped(groups) => write!(f, "gqa:{groups}"),
            KvMethod::Latent { latent, rope } => write!(f, "mla:{latent}+{rope}"),
        }
    }
}

/// How weights and keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Storage {
    /// Bits of a weight, scales included: 16 for bf16, 4.5 for groups of 32 with a scale.
    pub weight_bits: f64,
    /// What is kept of a token.
    pub method: KvMethod,
    /// Tokens back that every layer looks, if it is to be other than the model's own.
    pub window: Option<usize>,
    /// Bits of each number that is kept.
    pub kv_bits: f64,
}

impl Storage {
    /// The model's own keys and values, and everything in 16 bits.
    pub const BF16: Storage =
        Storage { weight_bits: 16.0, method: KvMethod::OfTheModel, window: None, kv_bits: 16.0 };
}

/// Layers that are alike.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Layers {
    count: f64,
    /// Bytes kept of a token, in one layer.
    bytes: f64,
    /// FLOPs of a row that meets a token, in one layer.
    flops: f64,
    window: Option<usize>,
}

/// A model, counted.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedModel {
    /// What it is called.
    pub name: String,
    /// Most tokens of a text.
    pub context: usize,
    /// Bytes of all weights.
    pub weight_bytes: f64,
    /// Weights in the blocks' matrices, which every row meets, and in the head, which rows meet that get logits.
    blocks: f64,
    head: f64,
    weight_size: f64,
    layers: Vec<Layers>,
}

/// Rows of one request in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanWork {
    /// Tokens before them.
    pub cached: usize,
    /// Rows.
    pub rows: usize,
    /// Rows that get logits.
    pub logits: usize,
}

/// What a pass comes to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PassWork {
    /// Rows, and those of them that get logits.
    pub rows: f64,
    /// See `rows`.
    pub logits: f64,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes of weights and of keys and values that are read, each once.
    pub bytes: f64,
    /// Pairs of a row and a token that it looks at, where the row is alone in its span; a mean over layers.
    pub decode_pairs: f64,
    /// The same where it is not.
    pub prefill_pairs: f64,
}

impl SimulatedModel {
    /// A dense model of Llama's family. `windows` has the tokens back that each layer looks, `parameters` what
    /// the files hold.
    ///
    /// # Errors
    /// Sizes of nothing, bits beyond all measure, or parameters that do not go with the shape: with experts, for
    /// one, a row meets a part of the weights, which is not counted here.
    pub fn new(
        name: &str,
        shape: &Shape,
        parameters: u64,
        windows: &[Option<usize>],
        context: usize,
        storage: Storage,
    ) -> Result<Self> {
        let Storage { weight_bits, method, window, kv_bits } = storage;
        for (what, found) in [("bits of a weight", weight_bits), ("bits of a kept number", kv_bits)]
        {
            if !(0.1..=64.0).contains(&found) {
                return Err(Error::invalid(what, found, "0.1 to 64"));
            }
        }
        if window == Some(0) {
            return Err(Error::invalid("the window", 0, "at least 1 token"));
        }
        let counted = shape.parameters();
        if !(0.95..=1.05).contains(&(parameters as f64 / counted as f64)) {
            let expected =
                format!("about the {counted} of its shape: a dense model of Llama's family");
            return Err(Error::invalid(format!("parameters of {name}"), parameters, expected));
        }
        let mut layers: Vec<Layers> = Vec::new();
        for layer in 0..shape.layers {
            let own = windows.get(layer).copied().flatten();
            let (numbers, flops) = kept(shape, method)?;
            let bytes = numbers as f64 * kv_bits / 8.0;
            let window = window.or(own);
            match layers.iter_mut().find(|layers| layers.window == window) {
                Some(alike) => alike.count += 1.0,
                None => layers.push(Layers { count: 1.0, bytes, flops, window }),
            }
        }
        let block: u64 = shape.block_matrices().iter().map(|matrix| matrix.parameters()).sum();
        let weight_size = weight_bits / 8.0;
        Ok(SimulatedModel {
            name: name.into(),
            context,
            weight_bytes: parameters as f64 * weight_size,
            blocks: (shape.layers as u64 * block) as f64,
            head: shape.head().parameters() as f64,
            weight_size,
            layers,
        })
    }

    /// Bytes that a token adds to the cache, as long as no window is full.
    pub fn kv_bytes_per_token(&self) -> f64 {
        self.layers.iter().map(|layer| layer.count * layer.bytes).sum()
    }

    /// Bytes of one text's cache. A window forgets what lies before it.
    pub fn kv_bytes(&self, tokens: usize) -> f64 {
        let held = |layer: &Layers| layer.window.map_or(tokens, |window| window.min(tokens));
        self.layers.iter().map(|layer| layer.count * layer.bytes * held(layer) as f64).sum()
    }

    /// Tokens after which a text's cache grows no more: the widest window, if every layer has one.
    pub fn forgets_after(&self) -> Option<usize> {
        self.layers.iter().map(|layer| layer.window).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The part of a row's matrix arithmetic that is the head.
    pub fn head_share(&self) -> f64 {
        self.head / (self.blocks + self.head)
    }

    // ANCHOR: work
    /// What a pass over these spans comes to: every weight once, every key and value that a row looks at once for
    /// its span. What goes from one matrix to the next is not counted, as if it never left the chip.
    pub fn work(&self, spans: impl IntoIterator<Item = SpanWork>) -> PassWork {
        let mut work = PassWork::default();
        let layers: f64 = self.layers.iter().map(|layer| layer.count).sum();
        for span in spans {
            work.rows += span.rows as f64;
            work.logits += span.logits as f64;
            for layer in &self.layers {
                let (pairs, read) = seen(span, layer.window);
                work.flops += layer.count * layer.flops * pairs;
                work.bytes += layer.count * layer.bytes * read;
                let kind = match span.rows {
                    0 | 1 => &mut work.decode_pairs,
                    _ => &mut work.prefill_pairs,
                };
                *kind += pairs * layer.count / layers;
            }
        }
        work.flops += 2.0 * (work.rows * self.blocks + work.logits * self.head);
        let head = if work.logits > 0.0 { self.head } else { 0.0 };
        work.bytes += (self.blocks + head) * self.weight_size;
        work
    }
    // ANCHOR_END: work
}

/// Numbers that one layer keeps of a token, and FLOPs of a row that meets it: a score and a weighted sum for each
/// query head.
fn kept(shape: &Shape, method: KvMethod) -> Result<(usize, f64)> {
    let heads = match method {
        KvMethod::OfTheModel => shape.kv_heads,
        KvMethod::MultiHead => shape.heads,
        KvMethod::Grouped(groups) => groups,
        KvMethod::Latent { latent, rope } => {
            // Every head meets the latent itself (the absorbed form).
            let flops = 2 * shape.heads * ((latent + rope) + latent);
            return Ok((latent + rope, flops as f64));
        }
    };
    if heads == 0 || !shape.heads.is_multiple_of(heads) {
        let expected = format!("a divisor of the {} query heads", shape.heads);
        return Err(Error::invalid("groups of query heads", heads, expected));
    }
    Ok((2 * heads * shape.head_dim, (4 * shape.heads * shape.head_dim) as f64))
}

/// Pairs of a row and a token that it sees, itself included, and tokens that are seen by any row of the span.
fn seen(span: SpanWork, window: Option<usize>) -> (f64, f64) {
    let SpanWork { cached, rows, .. } = span;
    let all = Rows { new: rows, cached, logits: 0 }.visible_pairs() as f64;
    let length = cached + rows;
    let Some(window) = window.filter(|&window| window < length) else {
        return (all, length as f64);
    };
    // Rows that see everything before them come first; each of the others sees a whole window.
    let whole = window.saturating_sub(cached).min(rows);
    let early = Rows { new: whole, cached, logits: 0 }.visible_pairs() as f64;
    let first_seen = (cached + 1).saturating_sub(window);
    (early + ((rows - whole) * window) as f64, (length - first_seen) as f64)
}
