//! What Hopper (compute capability 9.0) added: mbarriers, the tensor memory accelerator, products of warp groups.

mod bulk;
mod descriptor;
mod mbarrier;
mod tensor_map;
mod wgmma;

pub(crate) use bulk::{BulkCopies, BulkRead};
pub(crate) use mbarrier::Mbarriers;
pub use tensor_map::{ElementType, Swizzle, TensorMap};
pub(crate) use wgmma::{Products, WarpGroups};
