//! The methods that this rung compares, each as one would use it.

use super::cache::QuantizedCache;
use super::codec::Codec;
use super::scheme::{Recent, Scheme};
use super::{Fp8, Int8, Kivi, TurboMse, TurboProduct};
use kv_cache::{KvCache, KvShape};
use naive_decode::{Isa, Model, Result};

/// A way to keep a model's keys and values.
#[derive(Clone, Copy)]
pub struct Method {
    /// What tables call it.
    pub name: &'static str,
    /// Where it is from.
    pub paper: &'static str,
    /// An empty cache for the model: room for so many tokens in each of so many sequences.
    pub make: fn(&Model, usize, usize) -> Result<Box<dyn KvCache>>,
}

/// Seed of every rotation and sketch. One matrix serves all heads and layers, as in the paper.
const SEED: u64 = 3;

const TURBO: &str = "Zandieh et al. 2025, arXiv 2504.19874";

/// Every quantised cache of this rung, from the most bits to the fewest.
pub fn methods() -> Vec<Method> {
    vec![
        Method {
            name: "INT8",
            paper: "Dettmers et al. 2022, arXiv 2208.07339",
            make: |model, capacity, sequences| {
                plain(model, capacity, sequences, by_width(Int8::new), by_width(Int8::new))
            },
        },
        Method {
            name: "FP8 E4M3",
            paper: "Micikevicius et al. 2022, arXiv 2209.05433",
            make: |model, capacity, sequences| {
                plain(model, capacity, sequences, by_width(Fp8::new), by_width(Fp8::new))
            },
        },
        Method {
            name: "KIVI 4 bits",
            paper: "Liu et al. 2024, arXiv 2402.02750",
            make: |model, capacity, sequences| kivi(model, capacity, sequences, 4),
        },
        Method {
            name: "KIVI 2 bits",
            paper: "Liu et al. 2024, arXiv 2402.02750",
            make: |model, capacity, sequences| kivi(model, capacity, sequences, 2),
        },
        Method {
            name: "TurboQuant 3.5 bits",
            paper: TURBO,
            make: |model, capacity, sequences| {
                plain(model, capacity, sequences, product([4, 3]), codes([4, 3]))
            },
        },
        Method {
            name: "TurboQuant 2.5 bits",
            paper: TURBO,
            make: |model, capacity, sequences| {
                plain(model, capacity, sequences, product([3, 2]), codes([3, 2]))
            },
        },
        Method {
            name: "TurboQuant 3.5 bits, no signs",
            paper: TURBO,
            make: |model, capacity, sequences| {
                plain(model, capacity, sequences, codes([4, 3]), codes([4, 3]))
            },
        },
        Method {
            name: "TurboQuant 2.5 bits, no signs",
            paper: TURBO,
            make: |model, capacity, sequences| {
                plain(model, capacity, sequences, codes([3, 2]), codes([3, 2]))
            },
        },
    ]
}

type NewCodec = Result<Box<dyn Codec>>;

/// A cache whose rows are all coded at once.
fn plain(
    model: &Model,
    capacity: usize,
    sequences: usize,
    keys: impl Fn(usize, Isa) -> NewCodec,
    values: impl Fn(usize, Isa) -> NewCodec,
) -> Result<Box<dyn KvCache>> {
    let shape = KvShape::of(model);
    let scheme = Scheme {
        keys: keys(shape.key_dim, model.isa)?,
        values: values(shape.value_dim, model.isa)?,
        recent: Recent::NONE,
    };
    Ok(Box::new(QuantizedCache::new(scheme, shape, capacity, sequences, model.isa)?))
}

fn kivi(model: &Model, capacity: usize, sequences: usize, bits: usize) -> Result<Box<dyn KvCache>> {
    let shape = KvShape::of(model);
    let scheme = Kivi::new(bits).scheme(shape)?;
    Ok(Box::new(QuantizedCache::new(scheme, shape, capacity, sequences, model.isa)?))
}

/// A codec that needs to know nothing but how wide a row is.
fn by_width<C: Codec + 'static>(new: fn(usize) -> C) -> impl Fn(usize, Isa) -> NewCodec {
    move |dim, _| Ok(Box::new(new(dim)))
}

/// Half of the channels with the first number of bits, the other half with the second.
fn halves(dim: usize, [more, less]: [usize; 2]) -> [(usize, usize); 2] {
    [(dim / 2, more), (dim - dim / 2, less)]
}

fn codes(bits: [usize; 2]) -> impl Fn(usize, Isa) -> NewCodec {
    move |dim, isa| Ok(Box::new(TurboMse::new(dim, &halves(dim, bits), SEED, isa)?))
}

fn product(bits: [usize; 2]) -> impl Fn(usize, Isa) -> NewCodec {
    move |dim, isa| Ok(Box::new(TurboProduct::new(dim, &halves(dim, bits), SEED, isa)?))
}
