//! Rung 07: several tokens in one pass.
//!
//! A pass over five tokens reads the weights once, as a pass over one token does, and takes hardly longer. But
//! the second token is not known before the first has been chosen. So it is *guessed*: something cheap proposes
//! a few tokens, the target runs all of them in one pass, and what it would not have said itself is thrown
//! away. What comes out has the target's distribution, token for token, whoever proposed (Leviathan et al.
//! 2023). Four steps, and all but the first are written once: propose, organise as a tree, verify, accept.
//!
//! | File | Holds |
//! |---|---|
//! | `tree.rs` | proposed tokens as a tree, and the tree as one span of a pass |
//! | `accept.rs` | which of them stay |
//! | `proposer.rs` | the interface of everything that proposes |
//! | `proposers.rs` | a draft model, prompt lookup, lookahead, drafting ahead |
//! | `adaptive.rs` | how many tokens to propose: as many as pay |
//! | `acceptance.rs`, `pass_times.rs` | what that is decided by: how often guesses come true, how long passes take |
//! | `expected.rs` | what speculation ought to bring, from two numbers |
//! | `speculation.rs` | the loop: propose, verify, accept, roll back |
//! | `guessing.rs` | the rung: a decoder that guesses what it will be fed |

mod accept;
mod acceptance;
mod adaptive;
pub mod expected;
mod guessing;
mod pass_times;
mod proposer;
pub mod proposers;
mod speculation;
mod tree;

pub use accept::{Accepted, accept};
pub use acceptance::Acceptance;
pub use adaptive::{Adaptive, Observation};
pub use guessing::{GUESSING, GuessingDecoder};
pub use pass_times::PassTimes;
pub use proposer::{Nothing, Proposer, Verdict};
pub use speculation::{Cycle, Depth, Speculation};
pub use tree::{DraftTree, Node};
