//! What a launch is, and the checks that all of them share.

pub mod attention;
pub mod cache;
pub mod gated;
pub mod gemm;
pub mod rows;
pub mod sampling;
pub mod steps;

use std::ops::Deref;

/// CUDA's limit for the first dimension of a grid.
const MAX_GRID_X: usize = i32::MAX as usize;
/// CUDA's limit for the second and third dimension of a grid.
const MAX_GRID_YZ: usize = 65_535;
/// Threads in a block of every kernel that works through whole rows; `THREADS` in `cuda/common.cuh`.
const THREADS: u32 = 256;
/// The kernels count a row's elements in 32 bits with a sign, and go on from one stride past the end.
const MAX_WIDTH: usize = i32::MAX as usize - THREADS as usize;

/// An address in the device's memory. Every array begins at a multiple of 16 bytes.
pub type Address = u64;

/// A shape that a kernel cannot be launched for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {what} is {found}; it must be {expected}")]
pub struct Error {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Which of its shapes is wrong.
    pub what: &'static str,
    /// What was asked for.
    pub found: usize,
    /// What would be right.
    pub expected: String,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// Where an array begins; 0 where there is none.
    Pointer(Address),
    /// A 32-bit number without a sign.
    U32(u32),
    /// A 32-bit number with a sign.
    I32(i32),
    /// A 64-bit number with a sign.
    I64(i64),
    /// A 32-bit float.
    F32(f32),
    /// A tensor for Hopper's memory accelerator, encoded in 128 bytes that are passed by value.
    TensorMap(TensorMap),
}

/// A tensor `[outer][middle][inner]` of bf16, of which the memory accelerator fetches boxes of one middle index, zeros
/// outside of it, with the 16-byte chunks of a row exchanged within 128 bytes. A driver encodes it with
/// `cuTensorMapEncodeTiled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap {
    /// Where it begins.
    pub base: Address,
    /// Elements in each dimension, the inner one first.
    pub sizes: [u64; 3],
    /// Bytes from an element to the next in the middle and the outer dimension.
    pub strides: [u64; 2],
    /// Elements of a box, the inner dimension first.
    pub box_sizes: [u32; 3],
}

/// All that a driver, or an interpreter, needs to run a kernel once.
///
/// It is made and checked here, and only read elsewhere: whoever gives it to a device relies on it that a kernel gets as many
/// parameters as it takes, of its types, and a grid that it is for.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch(Parts);

impl Deref for Launch {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// What a [`Launch`] says, to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// The module's text.
    pub ptx: &'static str,
    /// The kernel's name in the module.
    pub entry: &'static str,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads in a block, in x; y and z are 1.
    pub threads: u32,
    /// Shared memory of a block beside what the module declares. More than 48 KiB have to be asked for from the driver
    /// once (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`).
    pub shared_bytes: u32,
    /// The parameters, in order.
    pub arguments: Vec<Argument>,
}

/// Counts that must be at least 1 and at most `most`.
fn within(
    kernel: &'static str,
    what: &'static str,
    found: usize,
    most: usize,
) -> Result<u32, Error> {
    if (1..=most).contains(&found) {
        return Ok(found as u32);
    }
    Err(Error { kernel, what, found, expected: format!("from 1 to {most}") })
}

/// A count as the kernels take it.
fn count(kernel: &'static str, what: &'static str, found: usize) -> Result<Argument, Error> {
    within(kernel, what, found, MAX_WIDTH).map(|found| Argument::I32(found as i32))
}

/// What a kernel reads several of at once.
fn multiple(
    kernel: &'static str,
    what: &'static str,
    found: usize,
    of: usize,
) -> Result<(), Error> {
    must(found.is_multiple_of(of), kernel, what, found, format!("a multiple of {of}"))
}

fn must(
    holds: bool,
    kernel: &'static str,
    what: &'static str,
    found: usize,
    expected: impl Into<String>,
) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error { kernel, what, found, expected: expected.into() }) }
}
