//! Weights stored narrow, and multiplied as they are stored.
//!
//! One token reads every weight once and does two operations with it, so what a weight takes in memory
//! is what it takes in time. Here a matrix is kept in panels of sixteen outputs, in any of the formats
//! of [`Format`], and each thread has its panels of all matrices in one stretch of memory.
//!
//! Activations stay f32 where weights are floats; the result is then rung 01's to the bit, of the same
//! weights. Where weights are small integers, each row of activations is quantised too, to eight bits or, for
//! [`Format::Int8`], to fifteen, by itself, so that products are exact integers. In the fast mode of BF16 it is
//! rounded to BF16. In all of them a row's outputs do not depend on which rows come with it, nor on threads or
//! instructions.
//!
//! | File | Holds |
//! |---|---|
//! | `format.rs` | what a weight may be stored as, and rows in that form |
//! | `encode.rs` | from f32 to integers with scales, and back |
//! | `panels.rs` | rows to panels, and back |
//! | `memory.rs` | large pages, a stretch for each thread |
//! | `linear.rs` | a packed matrix |
//! | `linear/multiply.rs` | the same behind rung 01's `Linear` |
//! | `packer.rs` | a whole model's matrices, packed as it is put together |
//! | `file.rs` | packed matrices in a file, mapped at the next start |
//! | `rows.rs` | families of kernels, and how each wants activations |
//! | `arranged.rs` | activations in blocks of as many rows as a kernel takes |
//! | `calibration.rs` | what matrices are multiplied with, found out by letting a text through |
//! | `outliers.rs` | LLM.int8(): columns too large for eight bits, kept apart |
//! | `awq.rs` | AWQ: columns that meet much, scaled up before they are rounded |

mod arranged;
mod awq;
mod calibration;
mod encode;
mod file;
mod format;
mod linear;
mod memory;
mod outliers;
mod packer;
mod panels;
mod rows;

pub use awq::{Scaled, awq_packer};
pub use calibration::{Calibration, Seen};
pub use file::{PackedFile, PackedFrom};
pub use format::{Format, Rows};
pub use linear::PackedLinear;
pub use memory::Memory;
pub use outliers::{OutlierSplit, THRESHOLD, outlier_packer};
pub use packer::{Packed, Packer, Weights};
