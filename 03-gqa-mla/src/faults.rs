//! The faults of this rung. A cache that keeps less is wrong by intent; these are wrong by mistake,
//! and hide behind the same excuse.
//!
//! | File | Fault |
//! |---|---|
//! | `evicted_sink.rs` | a window that slides past the first tokens |

mod evicted_sink;

pub use evicted_sink::{EVICTED_SINK, ForgetsSinks, sinks_are_held};

use naive_decode::break_it::BreakIt;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![EVICTED_SINK]
}
