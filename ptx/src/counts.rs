//! What a launch did, in numbers that a profiler would show on a device.

use std::ops::AddAssign;

/// Everything that is counted. All counts are sums over the launch; they depend on the kernel and its inputs alone.
///
/// The model of shared memory is that of devices since compute capability 5.0: 32 banks of 4 bytes. An access of up to 4
/// bytes a lane is one request; of 8 bytes, two (half a warp each); of 16 bytes, four (eight lanes each). A request takes
/// as many wavefronts as the fullest bank has *different* words in it. `ldmatrix` and `stmatrix` take one request for each
/// 8x8 matrix. Global memory moves in sectors of 32 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions, each counted once for a warp.
    pub warp_instructions: u64,
    /// Instructions, each counted once for every lane that took part.
    pub lane_instructions: u64,
    /// Branches that some lanes of a warp took and others did not.
    pub divergent_branches: u64,
    /// Requests to shared memory.
    pub shared_requests: u64,
    /// Wavefronts that they took. Without bank conflicts as many as requests.
    pub shared_wavefronts: u64,
    /// Warps' loads from global memory (`cp.async` and TMA among them).
    pub global_load_requests: u64,
    /// Sectors of 32 bytes that they touched.
    pub global_load_sectors: u64,
    /// Bytes that lanes asked for.
    pub global_load_bytes: u64,
    /// Warps' stores to global memory.
    pub global_store_requests: u64,
    /// Sectors of 32 bytes that they touched.
    pub global_store_sectors: u64,
    /// Bytes that lanes stored.
    pub global_store_bytes: u64,
    /// Atomics on global and on shared memory, each counted once for a lane.
    pub atomics: u64,
    /// Multiplications and additions on tensor cores: two for each product.
    pub tensor_flops: u64,
    /// Times that a barrier of a block was completed.
    pub barriers: u64,
    /// Times that an mbarrier went on to its next phase.
    pub mbarrier_phases: u64,
}

impl Counts {
    /// Wavefronts beyond one for each request: what bank conflicts cost.
    pub fn bank_conflicts(&self) -> u64 {
        self.shared_wavefronts - self.shared_requests
    }

    /// Every count with its name.
    pub fn named(&self) -> [(&'static str, u64); 15] {
        [
            ("warp instructions", self.warp_instructions),
            ("lane instructions", self.lane_instructions),
            ("divergent branches", self.divergent_branches),
            ("shared requests", self.shared_requests),
            ("shared wavefronts", self.shared_wavefronts),
            ("global load requests", self.global_load_requests),
            ("global load sectors", self.global_load_sectors),
            ("global load bytes", self.global_load_bytes),
            ("global store requests", self.global_store_requests),
            ("global store sectors", self.global_store_sectors),
            ("global store bytes", self.global_store_bytes),
            ("atomics", self.atomics),
            ("tensor flops", self.tensor_flops),
            ("barriers", self.barriers),
            ("mbarrier phases", self.mbarrier_phases),
        ]
    }
}

/// Lanes whose accesses of so many bytes make one request to shared memory: all 32, sixteen of 8 bytes, or eight of 16.
pub(crate) fn lanes_of_a_request(bytes: u32) -> u32 {
    (128 / bytes.max(4)).min(32)
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.warp_instructions += other.warp_instructions;
        self.lane_instructions += other.lane_instructions;
        self.divergent_branches += other.divergent_branches;
        self.shared_requests += other.shared_requests;
        self.shared_wavefronts += other.shared_wavefronts;
        self.global_load_requests += other.global_load_requests;
        self.global_load_sectors += other.global_load_sectors;
        self.global_load_bytes += other.global_load_bytes;
        self.global_store_requests += other.global_store_requests;
        self.global_store_sectors += other.global_store_sectors;
        self.global_store_bytes += other.global_store_bytes;
        self.atomics += other.atomics;
        self.tensor_flops += other.tensor_flops;
        self.barriers += other.barriers;
        self.mbarrier_phases += other.mbarrier_phases;
    }
}

/// Wavefronts for one request to shared memory: `words` are the 4-byte words that its lanes touch.
pub(crate) fn wavefronts(words: &mut Vec<u32>) -> u64 {
    words.sort_unstable();
    words.dedup();
    let mut banks = [0u64; 32];
    for word in words.iter() {
        banks[*word as usize % 32] += 1;
    }
    banks.into_iter().max().unwrap_or(0)
}

/// Sectors of 32 bytes among accesses of `bytes` bytes each.
pub(crate) fn sectors(addresses: impl Iterator<Item = u64>, bytes: u64) -> u64 {
    // Addresses come from registers: any number.
    let last = |address: u64| address.saturating_add(bytes.max(1) - 1) / 32;
    let mut found: Vec<u64> = addresses.flat_map(|address| address / 32..=last(address)).collect();
    found.sort_unstable();
    found.dedup();
    found.len() as u64
}
