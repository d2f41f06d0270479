//! What a machine can do at most.

use super::work::Work;

/// The two limits of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Floating-point operations per second; a multiply-add is two.
    pub peak_flops: f64,
    /// Bytes per second from memory.
    pub bandwidth: f64,
}

impl Machine {
    /// The arithmetic intensity at which both limits bind, in FLOPs per byte.
    pub fn ridge(&self) -> f64 {
        self.peak_flops / self.bandwidth
    }

    /// The most FLOPs per second at this arithmetic intensity (FLOPs per byte): the roofline.
    pub fn attainable_flops(&self, intensity: f64) -> f64 {
        self.peak_flops.min(self.bandwidth * intensity)
    }

    /// The least seconds the work can take, were arithmetic and memory traffic to overlap wholly.
    pub fn least_seconds(&self, work: &Work) -> f64 {
        (work.flops as f64 / self.peak_flops).max(work.bytes() as f64 / self.bandwidth)
    }
}
