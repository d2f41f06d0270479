//! The tests that no rung can hold by itself: what its tests directory proves, it proves across crates.

pub mod hub;
pub mod numbers;
pub mod watched;
