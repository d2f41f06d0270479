//! The tests that no rung can hold by itself: what its tests directory proves, it proves across crates.

pub mod hub;
pub mod numbers;
mod real_model;
pub mod watched;

pub use real_model::real_model;
