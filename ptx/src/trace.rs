//! What somebody who steps through a kernel gets to see.

use crate::counts;

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
    /// What the warp and its block have begun and not finished, after it.
    pub pending: &'a Pending,
}

/// What is under way: barriers that somebody has come to, copies and products that nobody has waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    /// Barriers of the block that some have come to and others not.
    pub barriers: Vec<PendingBarrier>,
    /// The block's mbarriers, by address.
    pub mbarriers: Vec<MbarrierPhase>,
    /// Bytes of the block that have not landed and that an mbarrier will hear of: of bulk and tensor copies, and of `cp.async`
    /// with an arrival behind it.
    pub bulk_bytes: u64,
    /// Bytes of the warp's other `cp.async` copies that have not landed: a number for each group, the oldest first, and last
    /// those that are in no group yet.
    pub copies: Vec<u64>,
    /// The warp's `wgmma` products that have not been waited for.
    pub products: usize,
}

/// A barrier of a block that waits for more threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingBarrier {
    /// Its number, from 0 to 15.
    pub id: usize,
    /// Threads that have come.
    pub arrived: u32,
    /// Threads it is for.
    pub expected: u32,
    /// Warps that wait there.
    pub waiting: Vec<u32>,
}

/// Where an mbarrier stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MbarrierPhase {
    /// Its place in shared memory.
    pub address: u32,
    /// Phases completed so far.
    pub phase: u64,
    /// Arrivals that this phase waits for.
    pub arrivals: u32,
    /// Bytes that it waits for; below zero while more have come than were announced.
    pub bytes: i64,
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

/// One wavefront of an access: for each of the 32 banks the lane that it serves there, the first if several want the word.
pub type Wavefront = [Option<u32>; 32];

impl SharedAccess {
    /// For each request the wavefronts that it takes: each serves one word of every bank.
    pub fn by_bank(&self) -> Vec<Vec<Wavefront>> {
        let lanes_each = counts::lanes_of_a_request(self.bytes);
        let request = |first: u32| {
            let mut words: Vec<(u32, u32)> = Vec::new();
            for (lane, address) in &self.addresses {
                if (first..first + lanes_each).contains(lane) {
                    let last = address.saturating_add(self.bytes - 1) / 4;
                    words.extend((address / 4..=last).map(|word| (word, *lane)));
                }
            }
            words.sort_unstable();
            words.dedup_by_key(|(word, _)| *word);
            let mut wavefronts: Vec<Wavefront> = Vec::new();
            for (word, lane) in words {
                let bank = word as usize % 32;
                match wavefronts.iter_mut().find(|wavefront| wavefront[bank].is_none()) {
                    Some(wavefront) => wavefront[bank] = Some(lane),
                    None => {
                        let mut wavefront = [None; 32];
                        wavefront[bank] = Some(lane);
                        wavefronts.push(wavefront);
                    }
                }
            }
            wavefronts
        };
        let all = (0..32).step_by(lanes_each as usize).map(request);
        all.filter(|wavefronts| !wavefronts.is_empty()).collect()
    }
}
