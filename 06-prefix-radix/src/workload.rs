//! Requests that share beginnings as real ones do.
//!
//! How much a prefix cache saves depends on who asks what. The patterns here are those of Zheng et al. (2023),
//! with random tokens of lifelike lengths. A pattern with a seed is always the same list of requests.
//!
//! | File | Holds |
//! |---|---|
//! | `patterns.rs` | the five patterns |
//! | `texts.rs` | random texts |
//! | `replay.rs` | a pool, a cache and a list of requests, without a model |

mod patterns;
mod replay;
mod texts;

pub use patterns::{Pattern, shared_system};
pub use replay::{Report, replay};

/// One call of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The earlier request whose whole text, prompt and answer, this prompt goes on from. It can only
    /// be sent once that one is answered.
    pub after: Option<usize>,
    /// The prompt, or what it adds to that text.
    pub tokens: Vec<u32>,
    /// The answer in a replay. A model gives its own; as many tokens should be asked for.
    pub answer: Vec<u32>,
}
