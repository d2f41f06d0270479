//! The faults of this rung. Most of what speculation gets wrong is housekeeping: what was guessed, and turned out
//! otherwise, is still somewhere. And one is a line of arithmetic, which no greedy test can see.
//!
//! | File | Fault |
//! |---|---|
//! | `rejected_kept.rs` | the row of a token that was refused stays in the cache |
//! | `wrong_branch.rs` | a branch was kept, and the cache holds another's rows |
//! | `seen_siblings.rs` | branches of a tree see each other |
//! | `lost_bonus.rs` | a draft is kept whole, and the token after it is never drawn |
//! | `no_residual.rs` | what replaces a refused token is drawn from the target, not from the residual |
//!
//! `scene.rs` holds what they have in common: a decoder that guesses by looking words up, over some cache.

mod lost_bonus;
mod no_residual;
mod rejected_kept;
mod scene;
mod seen_siblings;
mod wrong_branch;

pub use lost_bonus::LOST_BONUS;
pub use no_residual::{NO_RESIDUAL, resample_from_target};
pub use rejected_kept::REJECTED_KEPT;
pub use seen_siblings::SEEN_SIBLINGS;
pub use wrong_branch::WRONG_BRANCH;

use naive_decode::break_it::BreakIt;

/// Tokens that these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![REJECTED_KEPT, WRONG_BRANCH, SEEN_SIBLINGS, LOST_BONUS, NO_RESIDUAL]
}
