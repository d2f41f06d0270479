//! The faults of this rung. A smaller cache holds the same answers in another arrangement, and the
//! arrangement is what goes wrong.
//!
//! | File | Fault |
//! |---|---|
//! | `outlier_scale.rs` | one INT8 scale for a whole tensor with an outlier channel in it |

mod outlier_scale;

pub use outlier_scale::{OUTLIER_SCALE, OneScale, with_outlier};

use naive_decode::break_it::BreakIt;

/// Tokens that most of these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![OUTLIER_SCALE]
}
