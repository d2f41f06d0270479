//! What a forward pass costs, counted, and what this machine can pay, measured.
//!
//! Two numbers bound any computation: how many operations it does and how many bytes it moves.
//! Their ratio is its *arithmetic intensity*. A machine has such a ratio too, its *ridge point*:
//! operations it can do in the time it takes to fetch a byte. Below the ridge memory decides how
//! fast a computation can be, above it arithmetic (Williams, Waterman and Patterson 2009).
//!
//! [`Shape::forward`] counts, [`Machine`] compares, [`probe`] measures; [`PUBLISHED`] has shapes to try it on.

mod machine;
pub mod probe;
mod published;
mod shape;
mod work;

pub use machine::Machine;
pub use published::{PUBLISHED, PublishedShape, published};
pub use shape::{MatrixShape, Rows, Shape};
pub use work::{ElementBytes, Work};
