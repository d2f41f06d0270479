//! The faults of this rung. A smaller cache holds the same answers in another arrangement, and the
//! arrangement is what goes wrong.
//!
//! | File | Fault |
//! |---|---|
//! | `head_groups.rs` | query heads that read another group's keys and values |
//! | `rotated_latent.rs` | RoPE turned into a latent, which absorption takes to have no position |

mod head_groups;
mod rotated_latent;

pub use head_groups::{HEAD_GROUPS, Tiled};
pub use rotated_latent::{ROTATED_LATENT, RotatedLatent};

use naive_decode::break_it::BreakIt;

/// Tokens that most of these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![HEAD_GROUPS, ROTATED_LATENT]
}
