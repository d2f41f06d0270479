//! The few functions whose rounding decides whether two rungs agree.
//!
//! Everything here is plain `f32` arithmetic in a stated order: no platform `exp`, no reassociated
//! sum. The same source therefore gives the same bits on every machine, whatever instructions the
//! compiler picks for it.

mod activation;
mod half_precision;

pub use activation::{gelu, silu, tanh};
pub use half_precision::{from_f16, round_to_bf16, round_to_f16, to_bf16, to_f16};

/// How many numbers move side by side: one AVX-512 register, two AVX2 ones, four NEON ones.
///
/// It is part of the *numerics*, not only of the speed: sums that are not products of a weight
/// matrix are kept as this many interleaved partial sums, on every machine.
pub const LANES: usize = 16;

// ANCHOR: exp2
/// `2^s` split as `(2^f, i)` with `i = floor(s)` and `f = s - i` in `[0, 1]`.
///
/// `f` is 1 only where a tiny negative `s` rounds up to it; the product is right there too.
///
/// The integer part stays an integer, so that moving it (a softmax's running maximum) is a change
/// of exponent, which is exact. The polynomial has degree 6 and a relative error below 6.5e-8.
#[inline(always)]
pub fn exp2_parts(s: f32) -> (f32, i32) {
    let whole = s.floor();
    (exp2_of_fraction(s - whole), to_int(whole))
}

/// `2^f` for `f` in `[0, 1]`.
#[inline(always)]
fn exp2_of_fraction(f: f32) -> f32 {
    let mut p = 0.000_216_129_24_f32;
    p = p.mul_add(f, 0.001_246_784_5);
    p = p.mul_add(f, 0.009_675_452);
    p = p.mul_add(f, 0.055_485_282);
    p = p.mul_add(f, 0.240_229_31);
    p = p.mul_add(f, 0.693_147_06);
    p.mul_add(f, 1.0)
}
// ANCHOR_END: exp2

/// `2^(s - maximum)` for a whole `maximum` of at least `floor(s)`, with the bits that [`exp2_parts`] and [`power_of_two`]
/// give; where it is below 2^-126, zero.
///
/// Of the difference of two whole numbers only a small one matters, and floats have that exactly.
#[expect(clippy::manual_clamp, reason = "`clamp` would let NaN through")]
#[inline(always)]
pub fn exp2_below(s: f32, maximum: f32) -> f32 {
    let whole = s.floor();
    // An integer would have ended at these, as a maximum has.
    let e = (whole.max(-2_147_483_648.0) - maximum).max(-127.0).min(0.0);
    // SAFETY: a whole number from -127 to 0: `max` gives the other number for NaN.
    let e: i32 = unsafe { e.to_int_unchecked() };
    exp2_of_fraction(s - whole) * f32::from_bits(((e + 127) as u32) << 23)
}

/// A number as an integer, what lies behind its point cut off: below and above what an `i32` holds, the nearest float that
/// one does; NaN is the lowest.
///
/// What `as` does with NaN, no instruction for many numbers does: compilers take a register apart for it.
#[expect(clippy::manual_clamp, reason = "`clamp` would let NaN through")]
#[inline(always)]
pub fn to_int(number: f32) -> i32 {
    let within = number.max(-2_147_483_648.0).min(2_147_483_520.0);
    // SAFETY: a number in the range of an `i32`: `max` gives the other number for NaN.
    unsafe { within.to_int_unchecked() }
}

/// `2^e` for an integer `e`; zero below -126, infinity above 127.
///
/// The cut at the bottom is far under anything a sum of weights near 1 can notice.
#[inline(always)]
pub fn power_of_two(e: i32) -> f32 {
    // Clamping to -127 and 128 lands on the bit patterns of +0.0 and of infinity.
    f32::from_bits(((e.clamp(-127, 128) + 127) as u32) << 23)
}

/// `e^x`, by way of base 2.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // From these on it is zero and infinity in any case, and infinity less its whole part is no number. NaN stays NaN.
    let s = (x * std::f32::consts::LOG2_E).clamp(-127.0, 128.0);
    let (p, i) = exp2_parts(s);
    p * power_of_two(i)
}

/// Sum with [`LANES`] interleaved partial sums, joined in lane order.
pub fn interleaved_sum(terms: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for (i, term) in terms.enumerate() {
        lanes[i % LANES] += term;
    }
    join_lanes(&lanes)
}

/// [`interleaved_sum`] of a row's squares, sixteen at a time.
#[inline(always)]
fn sum_of_squares(row: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for values in whole {
        lanes.iter_mut().zip(values).for_each(|(lane, v)| *lane += v * v);
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, v)| *lane += v * v);
    join_lanes(&lanes)
}

/// The one order in which interleaved partial sums are joined.
#[inline(always)]
pub fn join_lanes(lanes: &[f32; LANES]) -> f32 {
    lanes.iter().fold(0.0, |sum, lane| sum + lane)
}

// ANCHOR: rms_norm
/// RMSNorm (Zhang and Sennrich 2019): each row divided by its root mean square, times a weight.
///
/// `x` holds rows of `weight.len()` values; the result has the same shape.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let mut out = x.to_vec();
    out.chunks_exact_mut(weight.len()).for_each(|row| rms_norm_row(row, weight, epsilon));
    out
}

/// The same for one row, in place.
#[inline(always)]
pub fn rms_norm_row(row: &mut [f32], weight: &[f32], epsilon: f32) {
    let mean_square = sum_of_squares(row) / weight.len() as f32;
    let scale = 1.0 / (mean_square + epsilon).sqrt();
    row.iter_mut().zip(weight).for_each(|(v, w)| *v = *v * scale * w);
}
// ANCHOR_END: rms_norm

/// Number type in which keys and values are kept.
///
/// Rounding happens where they are made, in every rung, whether or not that rung stores anything:
/// a cache that keeps them narrower then changes no bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Element {
    /// 32-bit float, 4 bytes.
    #[default]
    F32,
    /// bfloat16: f32's range, 8 bits of significand, 2 bytes.
    Bf16,
    /// IEEE half precision, 2 bytes.
    F16,
}

impl Element {
    /// Size of one number.
    pub fn bytes(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::Bf16 | Element::F16 => 2,
        }
    }

    /// Rounds every value to the nearest one this type can hold.
    #[inline(always)]
    pub fn round(self, values: &mut [f32]) {
        match self {
            Element::F32 => {}
            Element::Bf16 => {
                for value in values {
                    *value = round_to_bf16(*value);
                }
            }
            Element::F16 => {
                for value in values {
                    *value = round_to_f16(*value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_is_close_to_the_real_thing_and_exact_at_integers() {
        for i in -120..120 {
            let (p, e) = exp2_parts(i as f32);
            assert_eq!((p, e), (1.0, i));
        }
        for i in 0..200_000 {
            let s = i as f32 * 1e-3 - 100.0;
            let (p, e) = exp2_parts(s);
            let relative = p as f64 * 2f64.powi(e) / 2f64.powf(s as f64) - 1.0;
            assert!(relative.abs() < 1e-7, "2^{s}: relative error {relative:e}");
            assert!((1.0..2.0).contains(&p), "2^{s}: significand {p}");
        }
        let (p, e) = exp2_parts(-1e-10);
        assert_eq!(p * power_of_two(e), 1.0);
    }

    #[test]
    fn below_a_maximum_exp2_has_the_bits_of_its_parts() {
        let ends =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 3e9, -3e9, 1e-40];
        let some =
            (0..40_000).map(|i| (i as f32 * 0.37 - 7_000.0) * if i % 3 == 0 { 4e5 } else { 0.03 });
        for s in ends.into_iter().chain(some) {
            for above in [0, 1, 7, 125, 126, 127, 128, 1_000, i32::MAX] {
                let (p, e) = exp2_parts(s);
                // A maximum is some score's: what a float becomes.
                let maximum = to_int((e.saturating_add(above) as f32).max(e as f32));
                let parts = p * power_of_two(e.saturating_sub(maximum));
                let found = exp2_below(s, maximum as f32);
                let same = found.to_bits() == parts.to_bits() || found.is_nan() && parts.is_nan();
                assert!(same, "{s} below {maximum}: {found:e}, expected {parts:e}");
            }
        }
    }

    #[test]
    fn whole_numbers_become_integers_and_what_is_none_an_end_of_the_range() {
        for whole in [-2_147_483_648.0, -16_777_215.0, -1.0, -0.0, 0.0, 7.0, 2_147_483_520.0f32] {
            assert_eq!(to_int(whole), whole as i32);
        }
        assert_eq!(to_int(f32::INFINITY), 2_147_483_520);
        assert_eq!([f32::NEG_INFINITY, f32::NAN].map(to_int), [i32::MIN; 2]);
    }

    #[test]
    fn a_sum_of_squares_is_the_interleaved_one() {
        for length in [1, 15, 16, 17, 31, 576] {
            let row: Vec<f32> = (0..length).map(|i| (i * i % 89) as f32 * 0.37 - 9.0).collect();
            let plain = interleaved_sum(row.iter().map(|v| v * v));
            assert_eq!(sum_of_squares(&row).to_bits(), plain.to_bits());
        }
    }

    #[test]
    fn moving_the_integer_part_is_exact() {
        for i in 0..10_000 {
            let (p, e) = exp2_parts(i as f32 * 0.01 - 50.0);
            for shift in [-60, -7, 0, 3, 20] {
                assert_eq!(p * power_of_two(e) * power_of_two(shift), p * power_of_two(e + shift));
            }
        }
    }

    #[test]
    fn exp_ends_in_zero_and_infinity_and_is_its_two_parts_between() {
        let ends = [f32::NEG_INFINITY, f32::MIN, -2.5e38, -1e9, 1e9, 2.5e38, f32::MAX];
        assert_eq!(ends.map(exp)[..4], [0.0; 4]);
        assert_eq!(ends.map(exp)[4..], [f32::INFINITY; 3]);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        for x in (-1_000_000..=1_000_000).map(|i| i as f32 * 1e-4) {
            let (p, i) = exp2_parts(x * std::f32::consts::LOG2_E);
            assert_eq!(exp(x).to_bits(), (p * power_of_two(i)).to_bits(), "exp({x})");
        }
    }

    #[test]
    fn powers_of_two_saturate() {
        assert_eq!(power_of_two(0), 1.0);
        assert_eq!(power_of_two(-126), f32::MIN_POSITIVE);
        assert_eq!(power_of_two(-127), 0.0);
        assert_eq!(power_of_two(i32::MIN), 0.0);
        assert_eq!(power_of_two(127), 2f32.powi(127));
        assert_eq!(power_of_two(128), f32::INFINITY);
    }

    #[test]
    fn rms_norm_gives_rows_of_unit_mean_square() {
        let x: Vec<f32> = (0..96).map(|i| (i as f32 * 0.37).sin() * 5.0).collect();
        let y = rms_norm(&x, &[1.0; 48], 0.0);
        for row in y.chunks(48) {
            let mean = row.iter().map(|v| v * v).sum::<f32>() / 48.0;
            assert!((mean - 1.0).abs() < 1e-5, "{mean}");
        }
    }

    #[test]
    fn elements_round_to_what_they_can_hold() {
        let mut v = [1.0 + 1.0 / 512.0, 1.0, -3.142_7];
        Element::Bf16.round(&mut v);
        assert_eq!(v, [1.0, 1.0, -3.140_625]);
        let before = v;
        Element::F32.round(&mut v);
        assert_eq!(v, before);
    }
}
