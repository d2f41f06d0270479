//! Speculation changes how long a text takes, and nothing else.
//!
//! | File | Proves |
//! |---|---|
//! | `greedy.rs` | greedy text is plain decoding's, whoever proposes |
//! | `shared.rs` | also after prefix hits, with shared blocks, and after a wait |
//! | `heads.rs` | heads that read the target's hidden states guess well, and the same however their rows came |
//! | `sampled.rs` | sampled text has the target's distribution, over several tokens together |
//! | `cycles.rs` | tokens per cycle are what the formula says; the cache is as if no draft had been there |
//! | `bad_input.rs` | what is refused, and how |
//! | `models.rs` | (models to speculate with) |

mod bad_input;
mod cycles;
mod greedy;
mod heads;
mod models;
mod sampled;
mod shared;
