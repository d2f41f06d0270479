//! The most products a second that these loops can do.

use super::{Kernel, Lanes, Simd};
#[cfg(target_arch = "x86_64")]
use super::{bf16_dots, digits};
use crate::threads::Pool;
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
    /// products of four bytes, of weights in registers and activations in the first cache.
    pub fn byte_dot_rate(self, pool: &Pool) -> f64 {
        let run = |rounds| {
            // SAFETY: it points to nothing.
            unsafe { self.run(Dots { rounds }) }
        };
        rate(pool, CHAINS * 16 * 4 * 2, &run)
    }

    /// The same in tiles, sixteen rows of activations at a time; none where there are no tiles.
    pub fn byte_tile_rate(self, pool: &Pool) -> Option<f64> {
        #[cfg(target_arch = "x86_64")]
        if self.has_tiles() {
            let run = |rounds| {
                // SAFETY: the instructions are there.
                unsafe { digits::tiles::only_products(rounds) }
            };
            return Some(rate(pool, 4 * 16 * 16 * 64 * 2, &run));
        }
        let _ = pool;
        None
    }

    /// The same of bytes with activations of two digits, each of which is a product; in tiles where there are any.
    pub fn digit_dot_rate(self, pool: &Pool) -> f64 {
        self.byte_tile_rate(pool).unwrap_or_else(|| self.byte_dot_rate(pool)) / 2.0
    }

    /// The same of products of BF16 numbers, in tiles or by two; none where there are no instructions for them.
    pub fn bf16_dot_rate(self, pool: &Pool) -> Option<f64> {
        #[cfg(target_arch = "x86_64")]
        if self.has_tiles() {
            let run = |rounds| {
                // SAFETY: the instructions are there.
                unsafe { bf16_dots::tiles::only_products(rounds) }
            };
            return Some(rate(pool, 4 * 16 * 16 * 32 * 2, &run));
        }
        #[cfg(target_arch = "x86_64")]
        if self.has_bf16_instructions() {
            let run = |rounds| {
                // SAFETY: the instruction is there.
                unsafe { bf16_dots::native::only_products::<CHAINS>(rounds) }
            };
            return Some(rate(pool, CHAINS * 16 * 2 * 2, &run));
        }
        let _ = pool;
        None
    }
}

/// Operations a second of all threads together, each of whose parts is so many in each of `run`'s rounds.
fn rate(pool: &Pool, operations: usize, run: &(dyn Fn(usize) + Sync)) -> f64 {
    let mut rounds = 1 << 12;
    loop {
        let began = Instant::now();
        pool.run(&|_| run(rounds));
        let took = began.elapsed();
        if took >= SAMPLE {
            return (pool.threads() * rounds * operations) as f64 / took.as_secs_f64();
        }
        rounds *= 4;
    }
}

struct Dots {
    rounds: usize,
}

impl Kernel for Dots {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let bytes = black_box([129; 64]);
        let x = [[1; 4]; CHAINS];
        // SAFETY: the caller vouches for the instructions, and 64 bytes are there.
        unsafe {
            let weights = V::bytes(bytes.as_ptr());
            let mut sums = [V::splat_int(0); CHAINS];
            for _ in 0..self.rounds {
                // Where a product is an instruction of its own, the compiler would take it out of the loop, and add the
                // same one to all sums. It may not: each chain has activations of its own, which may be others in each
                // round. They are read where they lie, as kernels read theirs; AVX-512 does that in its one instruction.
                let x = black_box(&x);
                for (sum, &x) in sums.iter_mut().zip(x) {
                    *sum = V::dot_bytes(*sum, weights, x);
                }
            }
            black_box(sums);
        }
    }
}
