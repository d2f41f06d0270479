//! The faults of this rung. A smaller cache keeps less, or the same in another arrangement. It is the
//! arrangement that goes wrong by mistake, and what was kept that is missing; and every such mistake can
//! hide behind "it is lossy, after all".
//!
//! | File | Fault |
//! |---|---|
//! | `head_groups.rs` | query heads that read another group's keys and values |
//! | `rotated_latent.rs` | RoPE turned into a latent, which absorption takes to be free of position |
//! | `full_window.rs` | a ring that loses its place when it first comes round |
//! | `outlier_scale.rs` | one INT8 scale for a whole tensor with an outlier channel in it |
//! | `evicted_sink.rs` | a window that slides past the first tokens |

mod evicted_sink;
mod full_window;
mod head_groups;
mod outlier_scale;
mod rotated_latent;

pub use evicted_sink::{EVICTED_SINK, ForgetsSinks, sinks_are_held};
pub use full_window::{FULL_WINDOW, RollsEarly};
pub use head_groups::{HEAD_GROUPS, Tiled};
pub use outlier_scale::{OUTLIER_SCALE, OneScale, with_outlier};
pub use rotated_latent::{ROTATED_LATENT, RotatedLatent};

use naive_decode::break_it::BreakIt;

/// Tokens that most of these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![HEAD_GROUPS, ROTATED_LATENT, FULL_WINDOW, OUTLIER_SCALE, EVICTED_SINK]
}
