//! Inputs from a seed, bfloat16, and how far results may be off.

use super::Problem;
use half::bf16;

/// Relative error of one rounding to bf16: half of the last of eight bits.
pub const HALF_ULP: f64 = 1.0 / 256.0;

/// Error of one addition in a product's sum in f32, relative to the sum of the terms' sizes. Rounded to nearest it would be
/// 2^-24. Tensor cores shift a group of terms to the exponent of the largest and cut off what is below its last bit, at most
/// 2^-23 of it for each term (M. Fasi et al., "Numerical behavior of NVIDIA tensor cores", doi.org/10.7717/peerj-cs.330),
/// and cut the sum off as well. Twice 2^-23 has room for both.
pub const ADDITION: f64 = 1.0 / (1 << 22) as f64;

/// SplitMix64: numbers that look random and are the same everywhere.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Numbers in (-most, most), as they are after rounding to bf16.
    pub fn bf16s(&mut self, len: usize, most: f32) -> Vec<f32> {
        let unit = |bits: u64| (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
        (0..len).map(|_| from_bf16(to_bf16(unit(self.next()) * most))).collect()
    }
}

/// The bits of the nearest number in bf16.
pub fn to_bf16(number: f32) -> u16 {
    bf16::from_f32(number).to_bits()
}

/// The number of such bits.
pub fn from_bf16(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}

/// The number of an FP8 code, from the format's definition (E4M3, arXiv 2209.05433, table 1).
pub fn from_e4m3(code: u8) -> f32 {
    let sign = if code < 0x80 { 1.0 } else { -1.0 };
    let significand = f32::from(code & 7);
    match (code >> 3) & 15 {
        15 if code & 7 == 7 => f32::NAN,
        0 => sign * significand * 2f32.powi(-9),
        exponent => sign * (1.0 + significand / 8.0) * 2f32.powi(i32::from(exponent) - 7),
    }
}

/// Whether every element is as near to the reference as `bound` says, which is given its place.
///
/// # Errors
/// Names the first that is not.
pub fn near(
    what: &str,
    found: &[f32],
    right: &[f64],
    bound: impl Fn(usize) -> f64,
) -> Result<(), Problem> {
    if found.len() != right.len() {
        let (found, right) = (found.len(), right.len());
        return Err(Problem::Wrong(format!("{what}: {found} elements, right are {right}")));
    }
    for (i, (&found, &right)) in found.iter().zip(right).enumerate() {
        let (off, bound) = ((f64::from(found) - right).abs(), bound(i));
        // Nothing is near to a NaN.
        if off.is_nan() || off > bound {
            return Err(Problem::Wrong(format!(
                "{what}: element {i} is {found}, right is {right}: off by {off:e}, more than {bound:e}"
            )));
        }
    }
    Ok(())
}
