//! Memory that weights come from: what is asked for ahead, and in how many stretches at once.

/// How far ahead of the multiplication weights are asked for where panels lie side by side, in bytes. Far enough for memory
/// to answer in time, near enough that little of it is past the end of a thread's share.
pub(super) const PREFETCH: usize = 4096;

/// The same into the second cache, where panels come one after another: there one stretch of memory has to keep as many
/// requests under way as several do side by side. Also for FP8, whose panels lie side by side: they take longer to widen than
/// to send.
pub(super) const PREFETCH_FAR: usize = 16 << 10;

/// The same for rows that, if they do `wait`, are so few that all their time goes to waiting for memory. Where that sends one
/// stretch as fast as several, it sends most if it is asked just far enough ahead to answer in time. Weights of half a byte are
/// multiplied for as long as those of bytes, which are twice as many to send: they do better from afar.
pub(super) fn prefetch_distance(wait: bool) -> usize {
    if wait && !memory_sends_several() { 3 << 10 } else { PREFETCH_FAR }
}

/// Bytes of a cache line, as memory sends them, on nearly every processor.
pub const LINE: usize = 64;

/// Asks memory for a cache line. It may be anywhere, also past the end of what is allocated: it is never read,
/// only asked for.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint and has no effect on what the program sees, at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// As [`prefetch`], into the core's second cache only: that one has more requests under way than the first, and room for what
/// is asked for long before it is needed.
#[inline(always)]
pub(crate) fn prefetch_far(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Bytes that are asked for at a time: between two groups of products, or between two looks whether a wait is over.
pub(crate) const AT_A_TIME: usize = 8 * LINE;

/// Memory that will be read soon, to be asked for little by little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    at: *const u8,
    left: usize,
}

impl Stretch {
    pub(crate) const NOTHING: Self = Stretch { at: std::ptr::null(), left: 0 };

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Stretch { at: bytes.as_ptr(), left: bytes.len() }
    }

    /// So many bytes from `at` on, whether or not anything is there.
    pub(crate) fn from(at: *const u8, left: usize) -> Self {
        Stretch { at, left }
    }

    /// Where it goes on, and for how many bytes.
    #[cfg(test)]
    pub(crate) fn rest(self) -> (*const u8, usize) {
        (self.at, self.left)
    }

    /// Asks for a little of what is left; says whether there was anything.
    #[inline(always)]
    pub(crate) fn ask(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        for offset in (0..AT_A_TIME).step_by(LINE) {
            prefetch_far(self.at.wrapping_add(offset));
        }
        self.at = self.at.wrapping_add(AT_A_TIME);
        self.left = self.left.saturating_sub(AT_A_TIME);
        true
    }
}

/// Whether memory sends several stretches to a core faster than one, as Intel's servers do: BF16 weights of 1 GB came in at
/// 27 GB/s in four stretches, at 23 in one. Those of AMD send one faster than several, in the same proportion.
pub(crate) fn memory_sends_several() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::sync::LazyLock;
        static INTEL: LazyLock<bool> = LazyLock::new(|| {
            // SAFETY: every processor of this architecture has the instruction.
            #[allow(unused_unsafe, reason = "safe only in newer versions of Rust")]
            let name = unsafe { std::arch::x86_64::__cpuid(0) };
            [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
        });
        *INTEL
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_asked_for_to_its_end() {
        let bytes = [0u8; 2 * AT_A_TIME + 1];
        let mut stretch = Stretch::of(&bytes);
        for times in 1..=3 {
            assert!(stretch.ask());
            assert_eq!(stretch.at, bytes.as_ptr().wrapping_add(times * AT_A_TIME));
        }
        let asked = stretch;
        assert!(!stretch.ask());
        assert_eq!((stretch, stretch.left), (asked, 0));
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[test]
    fn the_maker_is_the_one_that_the_system_names() {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").expect("every Linux has it");
        assert_eq!(memory_sends_several(), cpus.contains("GenuineIntel"));
    }
}
