//! Running a grid: block by block, in each block warp by warp, in each warp 32 lanes at a time.

mod alu;
mod block;
mod collective;
mod combine;
mod convert;
mod copies;
mod float;
mod matrix;
mod memory;
mod shared;
mod step;
mod warp;

pub(crate) use block::{Block, Flow};
pub(crate) use matrix::{accumulate, element};
pub(crate) use shared::Shared;
pub(crate) use warp::{Begun, Until, Waiting, Warp, lanes};

use rayon::prelude::*;

use crate::Error;
use crate::counts::Counts;
use crate::hopper::ElementType;
use crate::isa::{Combine, Space, Type};
use crate::kernel::Kernel;
use crate::launch::Launch;
use crate::memory::Device;
use crate::trace::Trace;

/// One value for each lane of a warp.
pub(crate) type Lanes = [u64; 32];

/// What a launch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// What it did, counted.
    pub counts: Counts,
}

/// What all threads of a block have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) index: [u32; 3],
    pub(crate) dynamic_shared: u32,
}

impl Grid {
    fn new(launch: &Launch, index: [u32; 3]) -> Self {
        Self {
            blocks: launch.grid,
            threads: launch.block,
            index,
            dynamic_shared: launch.shared_bytes,
        }
    }
}

/// Blocks that are handed out to the processor's cores together.
const SIDE_BY_SIDE: usize = 64;

/// Runs a launch to its end.
///
/// Blocks run side by side, unless the kernel has atomics on global memory: then in order, so that the result is always
/// the same.
///
/// # Errors
/// [`Error::Launch`] if the launch does not fit the kernel. [`Error::Fault`] on the first mistake of the first block that
/// makes one; what was written until then stays written.
pub fn run(kernel: &Kernel, device: &mut Device, launch: &Launch) -> Result<Report, Error> {
    let parameters = launch.parameters(kernel)?;
    let device = &*device;
    let one = |index| Block::new(kernel, device, &parameters, Grid::new(launch, index)).run(None);
    let mut counts = Counts::default();
    let mut rest = blocks(launch.grid);
    loop {
        let some: Vec<[u32; 3]> = rest.by_ref().take(SIDE_BY_SIDE).collect();
        if some.is_empty() {
            return Ok(Report { counts });
        }
        // In the grid's order, so that of several mistakes the first one is told, whoever was faster.
        let done: Vec<Result<Counts, Error>> = if kernel.has_global_atomics() {
            some.into_iter().map(one).collect()
        } else {
            some.into_par_iter().map(one).collect()
        };
        for block in done {
            counts += block?;
        }
    }
}

/// As [`run`], block after block, telling `trace` of every instruction.
///
/// # Errors
/// As [`run`].
pub fn run_traced(
    kernel: &Kernel,
    device: &mut Device,
    launch: &Launch,
    trace: &mut dyn Trace,
) -> Result<Report, Error> {
    let parameters = launch.parameters(kernel)?;
    let mut counts = Counts::default();
    for index in blocks(launch.grid) {
        counts += Block::new(kernel, device, &parameters, Grid::new(launch, index))
            .run(Some(&mut *trace))?;
    }
    Ok(Report { counts })
}

/// The address in shared memory of a generic one; an address in shared memory stays as it is.
pub(crate) fn in_shared(address: u64) -> u64 {
    match step::locate(address) {
        (Space::Shared, offset) => offset,
        _ => address,
    }
}

/// The place in the parameters of a generic address, or of one in parameter space.
pub(crate) fn in_parameters(address: u64) -> Option<u64> {
    match step::locate(address) {
        (Space::Param, offset) => Some(offset),
        _ => (address < 1 << 16).then_some(address),
    }
}

/// The sum of two elements of a tensor.
pub(crate) fn add_element(element: ElementType, old: u64, new: u64) -> u64 {
    let ty = match element {
        ElementType::Byte => Type::U8,
        ElementType::BFloat16 => Type::BF16,
        ElementType::Float16 => Type::F16,
        ElementType::Float32 => Type::F32,
    };
    combine::combine(Combine::Add, ty, old, new, 0)
}

/// Every block of a grid, x fastest.
fn blocks([x, y, z]: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    (0..z).flat_map(move |k| (0..y).flat_map(move |j| (0..x).map(move |i| [i, j, k])))
}
