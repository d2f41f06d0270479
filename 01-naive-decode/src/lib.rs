//! Rung 01.
mod error;
pub use error::{Error, Result};
