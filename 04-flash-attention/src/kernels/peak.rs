//! The most byte products a second that the instructions of these loops can do.

use super::{Kernel, Lanes, Simd};
use crate::threads::{Disjoint, Pool};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Sums side by side: enough to fill the wait for one, few enough for the registers.
const CHAINS: usize = if cfg!(target_arch = "aarch64") {
    6 // in four registers each, of 32
} else {
    12
};

/// How long a sample takes at least.
const SAMPLE: Duration = Duration::from_millis(30);

impl Simd {
    /// Operations (a product and a sum are two) a second of all of a pool's threads, when they do nothing but dot
    /// products of four bytes in registers.
    pub fn byte_dot_rate(self, pool: &Pool) -> f64 {
        let mut rounds = 1 << 12;
        loop {
            let mut rates = vec![0.0; pool.threads()];
            let began = Instant::now();
            let shared = Disjoint::new(&mut rates);
            pool.run(&|thread| {
                let began = Instant::now();
                self.run(Dots { rounds });
                let operations = (rounds * CHAINS * 16 * 4 * 2) as f64;
                // SAFETY: each thread has its own.
                let rate = &mut unsafe { shared.part(thread..thread + 1) }[0];
                *rate = operations / began.elapsed().as_secs_f64();
            });
            if began.elapsed() >= SAMPLE {
                return rates.iter().sum();
            }
            rounds *= 4;
        }
    }
}

struct Dots {
    rounds: usize,
}

impl Kernel for Dots {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let bytes = black_box([129; 64]);
        // SAFETY: the caller vouches for the instructions, and 64 bytes are there.
        unsafe {
            let weights = V::bytes(bytes.as_ptr());
            let x = black_box([1; 4]);
            let mut sums = [V::splat_int(0); CHAINS];
            for _ in 0..self.rounds {
                for sum in &mut sums {
                    *sum = V::dot_bytes(*sum, weights, x);
                }
            }
            black_box(sums);
        }
    }
}
