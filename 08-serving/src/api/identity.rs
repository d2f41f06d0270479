//! Names of answers, and seeds nobody chose.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A number that nobody can foresee: the standard library keys its hash maps with such.
pub fn fresh_seed() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(CALLS.fetch_add(1, Ordering::Relaxed))
}

/// A name for an answer: `chatcmpl-0123456789abcdef`.
pub fn fresh_id(prefix: &str) -> String {
    format!("{prefix}-{:016x}{:016x}", fresh_seed(), fresh_seed())
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
