//! The inner loops of packed weights, written once and compiled for each instruction set.
//!
//! As in rung 01, a register's lanes are *different* outputs and never parts of one sum. Products of
//! small integers are added exactly, whatever instruction adds them; what is rounded is rounded in one
//! stated order. So every path gives the same bits.
//!
//! | File | Holds |
//! |---|---|
//! | `lanes.rs` | what the loops ask of an instruction set |
//! | `lanes/*.rs` | plain loops, AVX2 with and without VNNI, AVX-512 with VNNI, NEON with and without dot products of bytes |
//! | `float_panels.rs` | weights that are floats of any width, down to 8 bits: one chain of multiply-adds |
//! | `bf16_dots.rs`, `bf16_dots/` | BF16's fast mode: products in blocks of 32 inputs |
//! | `digits.rs`, `digits/` | INT8 with one scale for each output: activations of fifteen bits in two digits |
//! | `integer_tiles.rs`, `integer_tiles/` | weights that are small integers with a scale for every 32 |
//! | `amx.rs` | AMX's registers, where the processor has them and the system lends them |
//! | `memory.rs` | what is asked for ahead, and in how many stretches at once |
//! | `peak.rs` | the most products a second |
//! | `activations.rs` | rows of activations, arranged or quantised for these loops |

pub(crate) mod activations;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
pub(crate) mod bf16_dots;
pub(crate) mod digits;
pub(crate) mod float_panels;
pub(crate) mod integer_tiles;
pub(crate) mod lanes;
mod memory;
mod peak;

use lanes::Lanes;
#[cfg(test)]
pub(crate) use memory::AT_A_TIME;
pub use memory::{LINE, prefetch};
use memory::{PREFETCH, PREFETCH_FAR, prefetch_distance};
pub(crate) use memory::{Stretch, memory_sends_several, prefetch_far};
use naive_decode::Isa;
#[cfg(target_arch = "x86_64")]
use naive_decode::kernels::align_stack;

/// Instructions for packed weights that this machine has been found to have.
///
/// Values come only from [`Simd::within`] and [`Simd::available`], so holding one is proof that the
/// code compiled for it may run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Simd(Path);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX2, and dot products of bytes.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// With the dot products of BF16 besides.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    /// With AMX's tiles of BF16 besides.
    #[cfg(target_arch = "x86_64")]
    Amx,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "aarch64")]
    NeonDotProd,
}

impl Simd {
    /// Everything that this machine can run, slowest first.
    pub fn available() -> Vec<Simd> {
        let mut found: Vec<Simd> = Isa::available().into_iter().map(Simd::within).collect();
        // One instruction set of rung 01, and several of packed weights.
        #[cfg(target_arch = "aarch64")]
        found.insert(1, Simd(Path::Neon));
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(at) = found.iter().position(|&simd| simd == Simd(Path::AvxVnni)) {
                found.insert(at, Simd(Path::Avx2));
            }
            let best = found.pop().expect("the scalar path is always there");
            found.extend(match best.0 {
                Path::Avx512Bf16 => vec![Simd(Path::Avx512Vnni)],
                Path::Amx => vec![Simd(Path::Avx512Vnni), Simd(Path::Avx512Bf16)],
                _ => vec![],
            });
            found.push(best);
        }
        found.dedup();
        found
    }

    /// The best for packed weights that asks for no more than `isa` does, or extends it.
    ///
    /// AVX-512 without its VNNI extension has no dot products of bytes, so there AVX2 is taken, with AVX-VNNI where that
    /// is there. NEON without them multiplies bytes to 16 bits and adds those.
    pub fn within(isa: Isa) -> Simd {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let vnni = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            match isa.name() {
                "AVX-512" if vnni => match is_x86_feature_detected!("avx512bf16") {
                    true if amx::is_lent() => Simd(Path::Amx),
                    true => Simd(Path::Avx512Bf16),
                    false => Simd(Path::Avx512Vnni),
                },
                "AVX-512" | "AVX2" if avx2 => match is_x86_feature_detected!("avxvnni") {
                    true => Simd(Path::AvxVnni),
                    false => Simd(Path::Avx2),
                },
                _ => Simd(Path::Scalar),
            }
        }
        #[cfg(target_arch = "aarch64")]
        if isa == Isa::SCALAR {
            Simd(Path::Scalar)
        } else if std::arch::is_aarch64_feature_detected!("dotprod") {
            Simd(Path::NeonDotProd)
        } else {
            Simd(Path::Neon)
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        Simd(Path::Scalar)
    }

    /// Name as people write it: "AMX", "AVX-512 BF16", "AVX-512 VNNI", "AVX-VNNI", "AVX2", "NEON DotProd", "NEON", "scalar".
    pub fn name(self) -> &'static str {
        match self.0 {
            Path::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Path::AvxVnni => "AVX-VNNI",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Vnni => "AVX-512 VNNI",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Bf16 => "AVX-512 BF16",
            #[cfg(target_arch = "x86_64")]
            Path::Amx => "AMX",
            #[cfg(target_arch = "aarch64")]
            Path::Neon => "NEON",
            #[cfg(target_arch = "aarch64")]
            Path::NeonDotProd => "NEON DotProd",
        }
    }

    /// Whether there are instructions for BF16, as [`Format::Bf16Fast`](crate::packed::Format::Bf16Fast) wants them.
    pub fn has_bf16_instructions(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Bf16 | Path::Amx => true,
            _ => false,
        }
    }

    /// Whether there are AMX's tiles: sixteen rows of activations meet a panel in one instruction, of BF16 or of bytes.
    pub fn has_tiles(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Path::Amx => true,
            _ => false,
        }
    }

    /// The same without tiles, which take long to be given their shapes.
    pub(crate) fn without_tiles(self) -> Self {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Path::Amx => Simd(Path::Avx512Bf16),
            _ => self,
        }
    }

    /// Rows of activations that share one walk over a panel: as many as have room in the registers, a sum each.
    pub(crate) fn rows_together(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Vnni | Path::Avx512Bf16 | Path::Amx => MANY,
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 | Path::AvxVnni => SUMS_AVX2,
            _ => FEW,
        }
    }

    /// Runs a loop, compiled for these instructions.
    ///
    /// # Safety
    /// Whatever the kernel's fields point to is valid, as in [`Kernel::run`].
    #[inline(always)]
    unsafe fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            // SAFETY: plain numbers are everywhere; here and in what follows, the caller vouches for the kernel.
            Path::Scalar if const { K::SUMS <= FEW } => unsafe { kernel.run::<[f32; 16]>() },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Simd` exists only where its instructions were detected.
            Path::AvxVnni if const { K::SUMS <= SUMS_AVX2 && K::OF_BYTES } => unsafe {
                run_avx_vnni(kernel)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above; whoever has AVX-VNNI was found to have AVX2.
            Path::Avx2 | Path::AvxVnni if const { K::SUMS <= SUMS_AVX2 } => unsafe {
                run_avx2(kernel)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Path::Avx512Vnni | Path::Avx512Bf16 | Path::Amx => unsafe { run_avx512(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: NEON is part of the architecture's baseline.
            Path::Neon if const { K::SUMS <= FEW } => unsafe {
                kernel.run::<lanes::arm::Neon<lanes::arm::Baseline>>()
            },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: a `Simd` exists only where its instructions were detected.
            Path::NeonDotProd if const { K::SUMS <= FEW } => unsafe { run_dotprod(kernel) },
            _ => unreachable!("{self:?} has no room for {} sums", K::SUMS),
        }
    }
}

impl std::fmt::Debug for Simd {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Rows of activations in a tile.
pub(crate) const TILE_ROWS: usize = 16;

/// Neighbouring panels, one after another.
#[derive(Clone, Copy)]
pub(crate) struct PanelsAt<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether a cache has them, as likely as not. Kernels of few instructions a weight ask only for what follows others.
    pub(crate) near: bool,
    /// Whether pairs of inputs are crossed, for the fast mode of BF16.
    pub(crate) crossed: bool,
}

/// Where a kernel's outputs go: those of row `r` begin `r · stride` floats after `start`.
///
/// One place and a distance, not a place for each row: an array of places is written by one function in eight bytes
/// at a time and read by the next in sixteen, and such a read waits until every output written before has left the
/// processor for its cache.
#[derive(Clone, Copy)]
pub(crate) struct RowsAt {
    pub(crate) start: *mut f32,
    pub(crate) stride: usize,
}

impl RowsAt {
    /// # Safety
    /// Row `r` is one of those that there is room for.
    #[inline(always)]
    unsafe fn row(self, r: usize) -> *mut f32 {
        // SAFETY: the caller's condition.
        unsafe { self.start.add(r * self.stride) }
    }

    /// From a row and an output on.
    ///
    /// # Safety
    /// There is room for them.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn from(self, row: usize, output: usize) -> Self {
        // SAFETY: the caller's condition.
        RowsAt { start: unsafe { self.row(row).add(output) }, ..self }
    }
}

/// Where the outputs of some panels for all rows of some blocks go, and how many there are: a last block may have fewer
/// rows than others, a last panel fewer outputs.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AMX has tiles"))]
pub(crate) struct Products {
    pub(crate) to: RowsAt,
    pub(crate) rows: usize,
    pub(crate) outputs: usize,
}

/// Rows of activations that kernels take together where there are 32 registers of sixteen floats.
pub(crate) const MANY: usize = 12;

/// Sums that have room in AVX2's registers beside what they are made of.
#[cfg(target_arch = "x86_64")]
const SUMS_AVX2: usize = 6;

/// Sums that have room where there are no more registers than on any machine.
pub(crate) const FEW: usize = 4;

/// A loop to be compiled for every instruction set that has room for its sums.
trait Kernel {
    /// Sums that it keeps in registers: one for each row and for each panel side by side.
    const SUMS: usize = 1;

    /// Whether it multiplies bytes, or prepares something for loops that do. Loops of floats are the same with AVX-VNNI as
    /// with AVX2, and need not be compiled again for it.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "others have no AVX-VNNI"))]
    const OF_BYTES: bool = true;

    /// The loop; implementations are `#[inline(always)]`, so that each caller below gets its own. No
    /// instruction of `V` stands in a closure: those are functions of their own, perhaps compiled for fewer instructions, and
    /// then each instruction in one is a call.
    ///
    /// # Safety
    /// The instruction set of `V` must be present, and whatever the kernel's fields point to valid and as large as they say.
    unsafe fn run<V: Lanes>(self);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<K: Kernel>(kernel: K) {
    align_stack();
    // SAFETY: this function is compiled for the instruction set and only called where it is.
    unsafe { kernel.run::<lanes::avx2::Avx2<lanes::avx2::Baseline>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avxvnni,avx2,fma,f16c")]
unsafe fn run_avx_vnni<K: Kernel>(kernel: K) {
    align_stack();
    // SAFETY: this function is compiled for the instruction set and only called where it is.
    unsafe { kernel.run::<lanes::avx2::Avx2<lanes::avx2::DotProd>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn run_avx512<K: Kernel>(kernel: K) {
    align_stack();
    // SAFETY: this function is compiled for the instruction set and only called where it is.
    unsafe { kernel.run::<std::arch::x86_64::__m512>() }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
unsafe fn run_dotprod<K: Kernel>(kernel: K) {
    // SAFETY: this function is compiled for the instruction set and only called where it is.
    unsafe { kernel.run::<lanes::arm::Neon<lanes::arm::DotProd>>() }
}
