//! What Hopper (compute capability 9.0) added: mbarriers, the tensor memory accelerator, products of warp groups.

mod bulk;
mod descriptor;
mod groups;
mod landing;
mod mbarrier;
mod tensor_map;
mod wgmma;

pub(crate) use groups::BulkGroups;
pub(crate) use landing::{BulkCopies, CopyGroup, Load, Piece, Report};
pub(crate) use mbarrier::Mbarriers;
pub use tensor_map::{ElementType, Swizzle, TensorMap};
pub(crate) use wgmma::{Products, WarpGroups};
