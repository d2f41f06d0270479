//! What goes over the wire: OpenAI's API, and the extensions that vLLM has made common.
//!
//! | File | Holds |
//! |---|---|
//! | `api/read.rs` | a body to a request; what is unknown or of the wrong kind is refused by name |
//! | `api/error.rs` | what was refused, in OpenAI's envelope |
//! | `api/generation.rs` | what all ways of asking for text have in common |
//! | `api/sampling.rs` | the same as sampling parameters, each checked |
//! | `api/rules.rs` | tokens and words that an answer is not to have |
//! | `api/limits.rs` | how much of anything may be asked for |
//! | `api/chat.rs`, `messages.rs` | chat completions: request, messages |
//! | `api/completions.rs` | completions: request |
//! | `api/responses.rs`, `responses/` | responses: request, answer, events |
//! | `api/anthropic.rs`, `anthropic/` | messages, Anthropic's way to ask: request, answer, events |
//! | `api/embeddings.rs` | embeddings: request and answer |
//! | `api/answers.rs` | what chat completions and completions answer with |
//! | `api/logprobs.rs` | log-probabilities, in either's form |
//! | `api/tools.rs` | functions that a model may call, and calls |
//! | `api/calling.rs` | what a request's tools come to, and the form of a call |
//! | `api/references.rs` | schemas inside another schema, with their references |
//! | `api/formats.rs` | forms that an answer may be held to |
//! | `api/tokens.rs` | tokens of a text, text of tokens |
//! | `api/identity.rs` | names of answers and of calls, seeds nobody chose |

pub mod answers;
pub mod anthropic;
pub mod calling;
pub mod chat;
pub mod completions;
pub mod embeddings;
mod error;
pub mod formats;
mod gbnf;
mod generation;
mod identity;
mod limits;
mod logprobs;
pub mod messages;
mod read;
mod references;
pub mod responses;
mod rules;
mod sampling;
pub mod tokens;
pub mod tools;

pub(crate) use error::TOO_LONG;
pub use error::{ApiError, Envelope};
pub use generation::{Generation, Modality, OneOrMany, StreamOptions};
pub use identity::{fresh_call_id, fresh_id, fresh_seed, now};
pub use limits::*;
pub use logprobs::{ChatLogprobs, CompletionLogprobs, PromptLogprob, PromptLogprobs, TokenLogprob};
pub use read::read;
pub use sampling::{at_most, known};
