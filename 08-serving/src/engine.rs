//! The engine: many requests, one model, one pool.
//!
//! A pass over one row costs hardly less than a pass over sixteen: the weights have to be read either way. So
//! requests share passes, whatever each of them is at: a chunk of one's prompt, the last token of another's
//! text, a third's with a guess behind it. Which rows of whom go into the next pass is decided anew before each
//! (continuous batching; Yu et al. 2022, Orca). Every request has the tokens that it would have alone, bit for bit:
//! rows do not see each other, and each request has a sampler of its own.
//!
//! | File | Holds |
//! |---|---|
//! | `handle.rs` | the engine from outside: submit a request, hold a ticket |
//! | `request.rs` | what a request asks, and why it may be refused |
//! | `event.rs` | what comes back |
//! | `state.rs` | a snapshot for metrics and pictures |
//! | `options.rs` | how an engine is set up |
//! | `inbox.rs` | between the engine's thread and the others |
