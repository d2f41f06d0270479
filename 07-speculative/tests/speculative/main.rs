//! Speculation changes how long a text takes, and nothing else.
//!
//! | File | Proves |
//! |---|---|
//! | `greedy.rs` | greedy text is plain decoding's, whoever proposes |
//! | `sampled.rs` | sampled text has the target's distribution, over several tokens together |
//! | `cycles.rs` | tokens per cycle are what the formula says; the cache is as if no draft had been there |
//! | `bad_input.rs` | what is refused, and how |

mod bad_input;
mod cycles;
mod greedy;
mod models;
mod sampled;
