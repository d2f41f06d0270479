//! Caches that keep codes instead of numbers.
//!
//! A key or value of D numbers costs 4·D bytes in f32. Its attention weight does not need 24 bits of
//! precision, so fewer are kept: each number becomes a small code, and a few numbers shared by many
//! codes (a scale, a zero point, a norm) say what the codes mean. Attention reads the codes where they
//! lie; no key or value is ever laid out again as f32 beside them.
//!
//! What is lost, and on which models, is what the methods differ in:
//!
//! | File | Holds |
//! |---|---|
//! | `codec.rs` | seam: some tokens' numbers to bytes, and back one token at a time |
//! | `int8.rs` | 8-bit integers, one scale per token and head |
//! | `fp8.rs` | 8-bit floats, E4M3 |
//! | `kivi.rs` | KIVI: 2 or 4 bits, keys by channel, values by token, recent tokens as they are |
//! | `turbo.rs` | TurboQuant: a random rotation, then the best codebook for what it makes |
//! | `codebook.rs`, `random.rs` | that codebook; rotations and sketches from a seed |
//! | `bits.rs`, `shared.rs` | codes packed into bytes; scales and zero points in half precision |
//! | `slab.rs` | the bytes of all tokens, heads and layers |
//! | `scheme.rs`, `waiting.rs` | what is coded when; the rows that are not coded yet |
//! | `cache.rs`, `held.rs` | the cache around them, and how attention reads it |
//! | `methods.rs` | the list of methods that tables, tests and the book go through |

pub mod bits;
mod cache;
mod codebook;
mod codec;
mod fp8;
mod held;
mod int8;
mod kivi;
mod methods;
pub mod random;
mod scheme;
mod shared;
mod slab;
mod turbo;
mod waiting;

pub use cache::QuantizedCache;
pub use codebook::Codebook;
pub use codec::Codec;
pub use fp8::{Fp8, from_e4m3, to_e4m3};
pub use int8::Int8;
pub(crate) use int8::int8_code;
pub use kivi::{Kivi, KiviKeys, KiviValues};
pub use methods::{Method, methods};
pub use scheme::{Recent, Scheme};
pub use turbo::{TurboMse, TurboProduct};
