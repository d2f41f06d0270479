//! The ladder: every rung, one after another, on one model and one prompt.

use naive_decode::Rung;

/// Every rung there is, in climbing order.
pub fn rungs() -> Vec<Rung> {
    vec![naive_decode::NAIVE, kv_cache::LISTS, kv_cache::CONTIGUOUS]
}
