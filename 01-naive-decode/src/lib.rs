//! Rung 01: a language model, and the plainest way to make it speak.
//!
//! A language model answers one question: given these tokens, how likely is each token to come next?
//! Text comes from asking it again and again. The naive loop here hands it the whole text every time,
//! so the hundredth token costs a hundred rows of work. It is slow, it remembers nothing, and so it
//! is the judge of every faster rung.
//!
//! Start with `micro_gpt.rs`, a whole transformer in plain lists. Then follow one pass through
//! `model.rs`.
//!
//! | File | Holds |
//! |---|---|
//! | `micro_gpt.rs` | a tiny GPT, in lists, that makes up names |
//! | `config.rs`, `file_map.rs`, `checkpoint.rs`, `load.rs` | from files to a model |
//! | `parts.rs` | what blocks are put together from: a Llama's, and what other families need too |
//! | `tokenizer.rs` | text to tokens and back |
//! | `pass.rs` | what one forward pass is asked to do |
//! | `model.rs` | the forward pass of the Llama family |
//! | `linear.rs` | seam: how a weight matrix is stored and multiplied |
//! | `residual.rs` | seam: what stands between the halves of a block |
//! | `crew.rs` | seam: who does what no matrix does |
//! | `embedding.rs` | from tokens to rows of numbers |
//! | `projection.rs`, `heads.rs` | seams: hidden rows to queries, keys and values, and what is done to those |
//! | `attention.rs` | seam: where keys and values live, and how queries meet them |
//! | `executor.rs` | seam: something that runs a pass |
//! | `softmax_attention.rs` | attention, in the order of sums that all rungs keep |
//! | `feed_forward.rs`, `rope.rs` | the rest of a block |
//! | `numerics.rs`, `kernels.rs` | the arithmetic: 2^x, norms, the inner loop |
//! | `sampler.rs` | from logits to the next token |
//! | `decode.rs`, `generate.rs` | the naive decoder and the loop around any decoder |
//! | `rung.rs` | what a rung tells the others about itself |
//! | `roofline.rs` | FLOPs and bytes, counted and measured |
//! | `error.rs`, `json.rs` | what was wrong, where, and what would be right |
//! | `measurement.rs` | raw samples and the machine they are from |
//! | `faults.rs`, `break_it.rs` | what goes wrong on purpose, and how it is shown |

mod attention;
pub mod break_it;
mod checkpoint;
mod config;
mod crew;
mod decode;
mod embedding;
mod error;
mod executor;
pub mod faults;
mod feed_forward;
mod file_map;
mod generate;
mod heads;
mod json;
pub mod kernels;
mod linear;
mod load;
pub mod measurement;
mod micro_gpt;
mod model;
pub mod numerics;
mod parts;
mod pass;
mod projection;
mod residual;
pub mod roofline;
mod rope;
mod rung;
mod sampler;
mod softmax_attention;
mod tokenizer;

pub use attention::{Attention, LayerSpec, NaiveAttention};
pub use checkpoint::Checkpoint;
pub use config::Config;
pub use crew::{Crew, RayonCrew};
pub use decode::{Decoder, NaiveDecoder};
pub use embedding::Embedding;
pub use error::{Error, Result};
pub use executor::{CpuExecutor, Executor, Hidden, Likeliest, Logits};
pub use feed_forward::{FeedForward, Gate, GatedUnit};
pub use file_map::FileMap;
pub use generate::{Generate, Request, Step, generate};
pub use heads::{HeadStep, Turn};
pub use json::{in_terms_of_json, read_json};
pub use kernels::Isa;
pub use linear::{DenseLinear, Join, Linear};
pub use load::{
    EmbeddingAndHead, LoadOptions, Pack, Packing, Tensors, dense, random_tensors, rows_name,
};
pub use micro_gpt::{Lists, MicroConfig, MicroGpt};
pub use model::{Block, Model};
pub use numerics::Element;
pub use parts::{Gated, Grouped, Parts};
pub use pass::{Pass, Span, Visible, Want};
pub use projection::{
    GroupedProjection, KeysValues, KvSize, Projected, Projection, heads_to_hidden,
};
pub use residual::{AddThenNorm, Residual};
pub use rope::Rope;
pub use rung::{NAIVE, Rung, Settings};
pub use sampler::{Sampler, Sampling, argmax};
pub use softmax_attention::{KeyValues, Partial, SPLIT, attend_span, low_bits};
pub use tokenizer::{Disguise, TokenStream, Tokenizer};
