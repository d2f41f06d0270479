//! An amount of work: operations and bytes.

use std::iter::Sum;
use std::ops::{Add, Mul};

/// Bytes per number of each kind. Set one to 0 to leave its traffic out of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementBytes {
    /// Of a weight.
    pub weight: u64,
    /// Of a key or a value.
    pub kv: u64,
    /// Of an activation: whatever passes from one matrix to the next.
    pub activation: u64,
}

impl ElementBytes {
    /// Everything in 32-bit floats, as in this rung.
    pub const F32: ElementBytes = ElementBytes { weight: 4, kv: 4, activation: 4 };
    /// Everything in 16 bits, as published figures mostly assume.
    pub const BF16: ElementBytes = ElementBytes { weight: 2, kv: 2, activation: 2 };
}

/// Floating-point operations, and the bytes that must move for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Floating-point operations: two per multiply-add of a matrix product. What else there is
    /// (norms, softmax, rotations) is not counted: a few percent in a small model, under 1 % in a
    /// large one at ordinary contexts.
    pub flops: u64,
    /// Bytes of weights read, each once.
    pub weight_bytes: u64,
    /// Bytes of keys and values read, each once.
    pub kv_bytes: u64,
    /// Bytes of activations that go into and come out of the matrix products.
    pub activation_bytes: u64,
}

impl Work {
    /// Bytes of every kind.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes + self.activation_bytes
    }

    /// FLOPs per byte moved.
    pub fn arithmetic_intensity(&self) -> f64 {
        self.flops as f64 / self.bytes() as f64
    }
}

impl Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work {
            flops: self.flops + other.flops,
            weight_bytes: self.weight_bytes + other.weight_bytes,
            kv_bytes: self.kv_bytes + other.kv_bytes,
            activation_bytes: self.activation_bytes + other.activation_bytes,
        }
    }
}

impl Mul<usize> for Work {
    type Output = Work;

    fn mul(self, times: usize) -> Work {
        let times = times as u64;
        Work {
            flops: self.flops * times,
            weight_bytes: self.weight_bytes * times,
            kv_bytes: self.kv_bytes * times,
            activation_bytes: self.activation_bytes * times,
        }
    }
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Work>>(terms: I) -> Work {
        terms.fold(Work::default(), Add::add)
    }
}
