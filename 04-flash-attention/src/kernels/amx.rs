//! AMX: eight registers of up to sixteen rows of 64 bytes, and instructions that multiply two of them.
//!
//! A tile of weights is what a panel of BF16 holds anyway: sixteen outputs side by side, and two numbers of each in a row.
//! Their products are added in one order, which `bf16_dots.rs` takes as its own.
//!
//! Rust has no stable intrinsics for these instructions, so they are written out. The compiler never uses these registers
//! itself, which is why they keep what they hold from one instruction to the next. Functions of C may use them: while tiles
//! hold something, call none, and do nothing large enough to become a call of memcpy.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and volume 2.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;
use std::sync::LazyLock;

/// Registers.
const TILES: usize = 8;

/// Bytes of a row.
pub(crate) const ROW: usize = 64;

/// Whether the processor has tiles for BF16 and for bytes, and the system lets this process use them.
pub(super) fn is_lent() -> bool {
    static LENT: LazyLock<bool> = LazyLock::new(|| has_instructions() && is_saved() && ask());
    *LENT
}

#[allow(unused_unsafe, reason = "safe only in newer versions of Rust")]
fn has_instructions() -> bool {
    const BF16_TILES_AND_BYTES: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        __cpuid(0).eax >= 7
            && __cpuid_count(7, 0).edx & BF16_TILES_AND_BYTES == BF16_TILES_AND_BYTES
    }
}

/// Whether the system keeps tiles and their shapes when threads change places.
fn is_saved() -> bool {
    #[target_feature(enable = "xsave")]
    fn kept() -> u64 {
        // SAFETY: register 0 is always there.
        unsafe { _xgetbv(0) }
    }
    const TILES_AND_SHAPES: u64 = 1 << 17 | 1 << 18;
    is_x86_feature_detected!("xsave")
        // SAFETY: just asked.
        && unsafe { kept() } & TILES_AND_SHAPES == TILES_AND_SHAPES
}

/// Linux lends tiles, which make each switch of threads longer, to processes that ask.
fn ask() -> bool {
    #[cfg(target_os = "linux")]
    {
        const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
        const TILE_DATA: libc::c_ulong = 18;
        // SAFETY: two numbers, and a change only of what this process may use.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// What LDTILECFG reads.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; TILES],
    unused_row_bytes: [u16; 8],
    rows: [u8; TILES],
    unused_rows: [u8; 8],
}

/// The tiles of this thread while it uses them. They begin as zeros.
pub(crate) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// Tiles of so many rows and bytes in a row.
    ///
    /// # Panics
    /// If one has more than sixteen rows of 64 bytes.
    ///
    /// # Safety
    /// [`is_lent`], and this thread has no other.
    pub(crate) unsafe fn new(shapes: [(usize, usize); TILES]) -> Self {
        let fits = |&(rows, bytes): &(usize, usize)| rows <= 16 && bytes <= ROW;
        assert!(shapes.iter().all(fits), "a tile's shape: {shapes:?}");
        let shapes = Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: shapes.map(|(_, bytes)| bytes as u16),
            unused_row_bytes: [0; 8],
            rows: shapes.map(|(rows, _)| rows as u8),
            unused_rows: [0; 8],
        };
        // SAFETY: the instructions are there, and shapes are as the processor wants them.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &shapes, options(nostack, preserves_flags)) };
        Tiles(PhantomData)
    }

    /// Fills tile `T` from rows that lie `stride` bytes apart.
    ///
    /// # Safety
    /// As many rows as the tile's shape has lie there.
    #[inline(always)]
    pub(crate) unsafe fn load<const T: usize>(&self, at: *const u8, stride: usize) {
        // SAFETY: the instructions are there, as this is; the caller vouches for what is read.
        unsafe {
            asm!("tileloadd tmm{t}, [{at} + {stride}]", t = const T, at = in(reg) at, stride = in(reg) stride,
                options(nostack, preserves_flags, readonly));
        }
    }

    /// Writes tile `T` to rows that lie `stride` bytes apart.
    ///
    /// # Safety
    /// As many rows as the tile's shape has have room there.
    #[inline(always)]
    pub(crate) unsafe fn store<const T: usize>(&self, at: *mut u8, stride: usize) {
        // SAFETY: the instructions are there, as this is; the caller vouches for what is written.
        unsafe {
            asm!("tilestored [{at} + {stride}], tmm{t}", t = const T, at = in(reg) at, stride = in(reg) stride,
                options(nostack, preserves_flags));
        }
    }

    /// Fills tile `T` with zeros.
    #[inline(always)]
    pub(crate) fn clear<const T: usize>(&self) {
        // SAFETY: the instructions are there, as this is.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nomem, nostack, preserves_flags)) };
    }

    /// Adds to sums `S`, floats of 32 bits, the products of BF16 numbers `A` with BF16 numbers `B`.
    #[inline(always)]
    pub(crate) fn add_bf16<const S: usize, const A: usize, const B: usize>(&self) {
        // SAFETY: the instructions are there, as this is.
        unsafe {
            asm!("tdpbf16ps tmm{s}, tmm{a}, tmm{b}", s = const S, a = const A, b = const B,
                options(nomem, nostack, preserves_flags));
        }
    }

    /// Adds to sums `S`, integers of 32 bits, the products of signed bytes `A` with unsigned bytes `B`.
    #[inline(always)]
    pub(crate) fn add_bytes<const S: usize, const A: usize, const B: usize>(&self) {
        // SAFETY: the instructions are there, as this is.
        unsafe {
            asm!("tdpbsud tmm{s}, tmm{a}, tmm{b}", s = const S, a = const A, b = const B,
                options(nomem, nostack, preserves_flags));
        }
    }

    /// The same, where both are signed.
    #[inline(always)]
    pub(crate) fn add_signed_bytes<const S: usize, const A: usize, const B: usize>(&self) {
        // SAFETY: the instructions are there, as this is.
        unsafe {
            asm!("tdpbssd tmm{s}, tmm{a}, tmm{b}", s = const S, a = const A, b = const B,
                options(nomem, nostack, preserves_flags));
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the instructions are there, as this is.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}
