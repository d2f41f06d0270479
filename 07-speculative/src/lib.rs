//! Rung 07: several tokens in one pass.
//!
//! A pass over five tokens reads the weights once, as a pass over one token does. Where they come from far and
//! arithmetic waits for them, it takes far less than five times as long (`measurements/batch_135m.json` says how
//! much longer). But the second token is not known before the first has been chosen. So it is *guessed*:
//! something cheap proposes a few tokens, the target runs all of them in one pass, and what it would not have
//! said itself is thrown away. What comes out has the target's distribution, token for token, whoever proposed
//! (Leviathan et al. 2023). Four steps, and all but the first are written once: propose, organise as a tree,
//! verify, accept.
//!
//! | File | Holds |
//! |---|---|
//! | `tree.rs` | proposed tokens as a tree, and the tree as one span of a pass |
//! | `accept.rs` | which of them stay |
//! | `proposer.rs` | the interface of everything that proposes |
//! | `proposers.rs`, `proposers/` | a draft model, prompt lookup, lookahead, Medusa heads, an MTP block, drafting ahead |
//! | `tap.rs` | the target's last hidden states, for those that read them |
//! | `cache.rs` | what verification asks of a cache |
//! | `adaptive.rs` | how many tokens to propose: as many as pay |
//! | `acceptance.rs`, `pass_times.rs`, `usual.rs` | what that is decided by: how often guesses come true, how long passes take |
//! | `expected.rs` | what speculation ought to bring, from two numbers |
//! | `speculation.rs` | the loop: propose, verify, accept, roll back |
//! | `guessing.rs` | the rung: a decoder that guesses what it will be fed |
//! | `embedded.rs` | the embedded target with everything that guesses for it |
//! | `tasks.rs` | texts to speculate on, of five kinds |
//! | `small_world.rs` | four tokens, and every text's chance known: whether a rule of acceptance is exact |
//! | `faults.rs`, `faults/` | what goes wrong with speculation, on purpose |

mod accept;
mod acceptance;
mod adaptive;
mod cache;
mod embedded;
pub mod expected;
pub mod faults;
mod guessing;
mod pass_times;
mod proposer;
pub mod proposers;
pub mod small_world;
mod speculation;
mod tap;
pub mod tasks;
mod tree;
mod usual;

pub use accept::{Accepted, Rule, accept};
pub use acceptance::Acceptance;
pub use adaptive::{Adaptive, Observation};
pub use cache::{TreeCache, with_room_for_trees};
pub use embedded::{Embedded, Guesser};
pub use guessing::{GUESSING, GuessingDecoder};
pub use pass_times::PassTimes;
pub use proposer::{FromText, Nothing, Proposer, Verdict};
pub use speculation::{Cycle, Depth, Speculation};
pub use tap::Tap;
pub use tree::{DraftTree, Node};
pub use usual::Usual;
