//! Names of answers and of calls, and seeds nobody chose.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A number that nobody can foresee: the standard library keys its hash maps with such.
pub fn fresh_seed() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(CALLS.fetch_add(1, Ordering::Relaxed))
}

/// A name for an answer, or a part of one: `chatcmpl-0123456789abcdef`.
pub fn fresh_id(prefix: &str) -> String {
    format!("{prefix}{:016x}{:016x}", fresh_seed(), fresh_seed())
}

/// A name for a call of a function: nine letters and digits. Templates of Mistral's models refuse any other.
pub fn fresh_call_id() -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let number = fresh_seed();
    (0..9).map(|at| char::from(LETTERS[(number / 62u64.pow(at) % 62) as usize])).collect()
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
