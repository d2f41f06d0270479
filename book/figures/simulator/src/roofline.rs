//! Of rung 01's roofline, what counts.

#[path = "../../../../01-naive-decode/src/roofline/machine.rs"]
mod machine;
#[path = "../../../../01-naive-decode/src/roofline/published.rs"]
mod published;
#[path = "../../../../01-naive-decode/src/roofline/shape.rs"]
mod shape;
#[path = "../../../../01-naive-decode/src/roofline/work.rs"]
mod work;

pub use machine::Machine;
pub use published::{PUBLISHED, PublishedShape, published};
pub use shape::{MatrixShape, Rows, Shape};
pub use work::{ElementBytes, Work};
