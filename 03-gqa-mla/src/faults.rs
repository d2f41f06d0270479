//! The faults of this rung. A smaller cache keeps less, or keeps it otherwise; what goes wrong is
//! what a cache of everything could not get wrong.
//!
//! | File | Fault |
//! |---|---|
//! | `full_window.rs` | a ring that loses its place when it first comes round |

mod full_window;

pub use full_window::{FULL_WINDOW, RollsEarly};

use naive_decode::break_it::BreakIt;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![FULL_WINDOW]
}
