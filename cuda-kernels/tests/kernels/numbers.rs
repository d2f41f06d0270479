//! Inputs from a seed, bfloat16, and how far results may be off.

use half::bf16;

/// Relative error of one rounding to bf16: half of the last of eight bits.
pub(crate) const HALF_ULP: f64 = 1.0 / 256.0;

/// SplitMix64: numbers that look random and are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Numbers in (-most, most), as they are after rounding to bf16.
    pub(crate) fn bf16s(&mut self, len: usize, most: f32) -> Vec<f32> {
        let unit = |bits: u64| (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
        (0..len).map(|_| from_bf16(to_bf16(unit(self.next()) * most))).collect()
    }
}

pub(crate) fn to_bf16(number: f32) -> u16 {
    bf16::from_f32(number).to_bits()
}

pub(crate) fn from_bf16(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}

/// The number of an FP8 code, from the format's definition (E4M3, arXiv 2209.05433, table 1).
pub(crate) fn from_e4m3(code: u8) -> f32 {
    let sign = if code < 0x80 { 1.0 } else { -1.0 };
    let significand = f32::from(code & 7);
    match (code >> 3) & 15 {
        15 if code & 7 == 7 => f32::NAN,
        0 => sign * significand * 2f32.powi(-9),
        exponent => sign * (1.0 + significand / 8.0) * 2f32.powi(i32::from(exponent) - 7),
    }
}

/// Every element is as near to the reference as `bound` says, which is given its place.
pub(crate) fn assert_near(what: &str, found: &[f32], right: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(found.len(), right.len(), "{what}");
    for (i, (&found, &right)) in found.iter().zip(right).enumerate() {
        let (off, bound) = ((f64::from(found) - right).abs(), bound(i));
        assert!(
            off <= bound,
            "{what}: element {i} is {found}, right is {right}: off by {off:e}, more than {bound:e}"
        );
    }
}
