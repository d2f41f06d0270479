//! What somebody who steps through a kernel gets to see.

/// Is told of every instruction that a warp executes.
pub trait Trace {
    /// One instruction, after it was executed.
    fn step(&mut self, step: &Step<'_>);
}

/// One instruction of one warp.
#[derive(Debug)]
pub struct Step<'a> {
    /// The block of the grid.
    pub block: [u32; 3],
    /// The warp in the block.
    pub warp: u32,
    /// Index of the instruction in the kernel.
    pub pc: usize,
    /// Line of the module's text, from 1.
    pub line: u32,
    /// The instruction in one line.
    pub text: &'a str,
    /// Lanes that are at this instruction.
    pub active: u32,
    /// Of those, lanes whose guard lets them execute it.
    pub executing: u32,
    /// Registers that it wrote, each with its name and the bits of all 32 lanes.
    pub written: &'a [(&'a str, [u64; 32])],
    /// Predicates that differ from before, each with its name and one bit a lane.
    pub predicates: &'a [(&'a str, u32)],
    /// What it did in shared memory.
    pub shared: &'a [SharedAccess],
}

/// An access of a warp to shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAccess {
    /// Whether it writes.
    pub writes: bool,
    /// Each lane (of a matrix load: each row) with its address in bytes.
    pub addresses: Vec<(u32, u32)>,
    /// Bytes of each.
    pub bytes: u32,
    /// Requests that the access is split into.
    pub requests: u64,
    /// Wavefronts that they took; more than `requests` means bank conflicts.
    pub wavefronts: u64,
}
