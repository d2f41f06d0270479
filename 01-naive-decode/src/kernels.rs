//! The inner loop, written once and compiled for each instruction set.
//!
//! One output element is one chain of fused multiply-adds in ascending `k`. The sixteen lanes of a
//! panel are sixteen *different* outputs, never parts of one sum, so the width of a register, the
//! number of rows and the number of threads cannot change a bit of any result. The loop is written
//! over a `Vector` of any width; a fused multiply-add rounds once, by definition, on all of them.

mod elementwise;
mod vector;

pub use elementwise::{
    add_norm, add_times, exponentials, gelu_gate, highest, norm_rows, round_to, silu_gate, soft_cap,
};
pub use vector::Vector;

use crate::numerics::{LANES, exp2_below, join_lanes, to_int};

/// An instruction set that this machine has been found to have.
///
/// Values come only from [`Isa::available`] and its shorthands, so holding one is proof that the
/// code compiled for it may run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Isa(Path);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    /// Whatever the compiler may assume of any processor of this architecture.
    pub const SCALAR: Isa = Isa(Path::Scalar);

    /// Every instruction set that this machine can run, slowest first.
    pub fn available() -> Vec<Isa> {
        let mut found = vec![Isa::SCALAR];
        #[cfg(target_arch = "x86_64")]
        {
            // Nearly every processor with AVX2 has the other two.
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                found.push(Isa(Path::Avx2));
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("fma") {
                found.push(Isa(Path::Avx512));
            }
        }
        // Every AArch64 processor has NEON with fused multiply-add, and the compiler knows it.
        #[cfg(target_arch = "aarch64")]
        found.push(Isa(Path::Neon));
        found
    }

    /// The fastest instruction set that this machine can run.
    pub fn best() -> Isa {
        *Isa::available().last().expect("the scalar path is always there")
    }

    /// Name as people write it: "AVX-512", "AVX2", "NEON", "scalar".
    pub fn name(self) -> &'static str {
        match self.0 {
            Path::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => "AVX-512",
            #[cfg(target_arch = "aarch64")]
            Path::Neon => "NEON",
        }
    }
}

impl std::fmt::Debug for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Sixteen running sums for each of `R` rows.
pub type Sums<const R: usize> = [[f32; LANES]; R];

/// A loop to be compiled for every instruction set. [`Isa::run`] runs it.
pub trait Kernel {
    /// What the loop gives back.
    type Result;
    /// The loop; implementations are `#[inline(always)]`, so that each caller below gets its own.
    ///
    /// # Safety
    /// The instruction set of `V` must be present.
    unsafe fn run<V: Vector>(self) -> Self::Result;
}

impl Isa {
    /// Runs the loop as compiled for this instruction set.
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Result {
        // SAFETY, for every arm: an `Isa` exists only where its instructions were detected.
        match self.0 {
            // SAFETY: plain floats are everywhere.
            Path::Scalar => unsafe { kernel.run::<f32>() },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            Path::Avx2 => unsafe { run_avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            Path::Avx512 => unsafe { run_avx512(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: NEON is part of the architecture's baseline.
            Path::Neon => unsafe { kernel.run::<std::arch::aarch64::float32x4_t>() },
        }
    }
}

/// Has the caller's stack begin where a cache line does.
///
/// A loop with more numbers than registers keeps some of them on the stack. Unless something of the caller's has to lie
/// at a multiple of a register's size, the compiler puts those at any multiple of sixteen, and one that lies across two
/// lines, or two pages, is written and read many times slower: a loop took three times as long where the stack
/// happened to begin badly.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn align_stack() {
    let line = std::mem::MaybeUninit::<std::arch::x86_64::__m512>::uninit();
    std::hint::black_box(&line);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Result {
    align_stack();
    // SAFETY: this function is compiled for the instruction set and only called where it is.
    unsafe { kernel.run::<std::arch::x86_64::__m256>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Result {
    align_stack();
    // SAFETY: this function is compiled for the instruction set and only called where it is.
    unsafe { kernel.run::<std::arch::x86_64::__m512>() }
}

/// Adds `Σ_k x[k][r] · panel[k][lane]` to `sums[r][lane]`, one chain per element, ascending `k`.
///
/// `x` is `[k][R]`, so that the loop walks both operands forward; `panel` is `[k][LANES]`.
///
/// # Panics
/// If `x` and `panel` differ in length.
pub fn multiply_rows<const R: usize>(
    isa: Isa,
    x: &[[f32; R]],
    panel: &[[f32; LANES]],
    sums: &mut Sums<R>,
) {
    assert_eq!(x.len(), panel.len(), "as many inputs as the panel has");
    isa.run(MultiplyRows { x, panel, sums });
}

struct MultiplyRows<'a, const R: usize> {
    x: &'a [[f32; R]],
    panel: &'a [[f32; LANES]],
    sums: &'a mut Sums<R>,
}

impl<const R: usize> Kernel for MultiplyRows<'_, R> {
    type Result = ();

    #[inline(always)]
    // ANCHOR: multiply_rows
    unsafe fn run<V: Vector>(self) {
        for first in (0..LANES).step_by(V::WIDTH) {
            // SAFETY: the caller vouches for the instruction set.
            unsafe {
                let mut acc = [V::splat(0.0); R];
                for (acc, sums) in acc.iter_mut().zip(self.sums.iter()) {
                    *acc = V::load(&sums[first..]);
                }
                for (xk, wk) in self.x.iter().zip(self.panel) {
                    let w = V::load(&wk[first..]);
                    for r in 0..R {
                        acc[r] = acc[r].add_product(V::splat(xk[r]), w);
                    }
                }
                for (acc, sums) in acc.iter().zip(self.sums.iter_mut()) {
                    acc.store(&mut sums[first..]);
                }
            }
        }
    }
    // ANCHOR_END: multiply_rows
}

/// `out[p][lane] = Σ_k x[k] · panels[p][k][lane]` for one row and `P` panels at once.
///
/// One row alone is a single chain per lane, and a chain waits for its own last result; several
/// panels side by side fill those waits. The sums are the same as [`multiply_rows`]'s.
///
/// # Panics
/// If a panel is shorter than `x`.
pub fn multiply_row<const P: usize>(
    isa: Isa,
    x: &[f32],
    panels: [&[[f32; LANES]]; P],
    out: &mut Sums<P>,
) {
    isa.run(MultiplyRow { x, panels: panels.map(|panel| &panel[..x.len()]), out });
}

struct MultiplyRow<'a, const P: usize> {
    x: &'a [f32],
    panels: [&'a [[f32; LANES]]; P],
    out: &'a mut Sums<P>,
}

impl<const P: usize> Kernel for MultiplyRow<'_, P> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for first in (0..LANES).step_by(V::WIDTH) {
            // SAFETY: the caller vouches for the instruction set.
            unsafe {
                let mut acc = [V::splat(0.0); P];
                for (k, &xk) in self.x.iter().enumerate() {
                    let xk = V::splat(xk);
                    for (acc, panel) in acc.iter_mut().zip(self.panels) {
                        *acc = acc.add_product(xk, V::load(&panel[k][first..]));
                    }
                }
                for (acc, out) in acc.iter().zip(self.out.iter_mut()) {
                    acc.store(&mut out[first..]);
                }
            }
        }
    }
}

/// Turns base-2 scores into softmax weights relative to their integer maximum, in place.
///
/// `scores` is whole tiles of [`LANES`]. A score whose bit in `visible` is zero becomes weight
/// zero (tile `t`, lane `l` is bit `l` of `visible[t]`). Returns the maximum of `floor(score)`
/// and the sum of the weights, added lane by lane.
///
/// # Panics
/// If `visible` has not one entry for each tile.
pub fn softmax_weights(isa: Isa, scores: &mut [[f32; LANES]], visible: &[u16]) -> (i32, f32) {
    assert_eq!(scores.len(), visible.len(), "one mask for each tile");
    isa.run(SoftmaxWeights { scores, visible })
}

struct SoftmaxWeights<'a> {
    scores: &'a mut [[f32; LANES]],
    visible: &'a [u16],
}

impl Kernel for SoftmaxWeights<'_> {
    type Result = (i32, f32);

    /// Plain loops over sixteen lanes, which the compiler turns into the instruction set's own.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> (i32, f32) {
        for (tile, &visible) in self.scores.iter_mut().zip(self.visible) {
            // Nearly every tile is seen whole. What may not be seen scores minus infinity, whose weight is
            // exactly zero.
            if visible != u16::MAX {
                for (lane, score) in tile.iter_mut().enumerate() {
                    if visible & (1 << lane) == 0 {
                        *score = f32::NEG_INFINITY;
                    }
                }
            }
        }
        // Compared as integers that stand in the floats' order, so the order of comparing does not matter. A NaN may come
        // anywhere: the sum is NaN then.
        let ordered = |bits: i32| bits ^ (bits >> 31 & i32::MAX);
        let scores = self.scores.as_flattened().iter();
        let lowest = ordered(f32::NEG_INFINITY.to_bits() as i32);
        let high = scores.fold(lowest, |high, score| high.max(ordered(score.to_bits() as i32)));
        let maximum = to_int(f32::from_bits(ordered(high) as u32).floor());
        let mut sums = [0.0f32; LANES];
        for tile in self.scores {
            for lane in 0..LANES {
                let s = tile[lane];
                let weight = exp2_below(s, maximum as f32);
                tile[lane] = if s == f32::NEG_INFINITY { 0.0 } else { weight };
                sums[lane] += tile[lane];
            }
        }
        (maximum, join_lanes(&sums))
    }
}

#[cfg(test)]
mod tests;
