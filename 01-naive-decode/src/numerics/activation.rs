//! The curves between matrices: gates of feed-forwards, and the bend of soft-capping.

use super::exp;

/// SiLU, `x · sigmoid(x)`, the gate of Llama's feed-forward block.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// GELU in its tanh form (Hendrycks and Gimpel 2016), the gate of Gemma's feed-forward block.
///
/// `0.5 x (1 + tanh(u))` with `u = sqrt(2/π) (x + 0.044715 x³)`. Half of one plus a tanh is a
/// sigmoid of twice the argument, so this is `x · sigmoid(2u)`: nothing cancels where it is small.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    const TWICE_ROOT: f32 = 1.595_769_2; // 2 sqrt(2/π)
    let twice_u = TWICE_ROOT * (0.044_715 * x * x).mul_add(x, x);
    x / (1.0 + exp(-twice_u))
}

/// Hyperbolic tangent, relative error below 4e-7.
///
/// Near zero an odd polynomial of degree 11, fitted for least relative error; further out by way of
/// `e^2|x|`, where the subtraction costs little.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let square = x * x;
    let mut p = -0.005_874_821_5_f32;
    p = p.mul_add(square, 0.020_784_564);
    p = p.mul_add(square, -0.053_782_8);
    p = p.mul_add(square, 0.133_319_5);
    p = p.mul_add(square, -0.333_333_02);
    let near = (p * square).mul_add(x, x);
    // Past 20 it is 1 in any case, and twice the largest number would be infinite. NaN stays NaN.
    let size = if x.abs() > 20.0 { 20.0 } else { x.abs() };
    let far = (1.0 - 2.0 / (exp(2.0 * size) + 1.0)).copysign(x);
    // Both are computed: a choice without a branch keeps the loop in registers.
    if x.abs() < 0.6 { near } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silu_survives_extremes() {
        assert_eq!(silu(0.0), 0.0);
        assert_eq!(silu(200.0), 200.0);
        assert!(silu(-200.0).abs() < 1e-30);
        assert_eq!([2.5e38, -2.5e38, f32::MAX, f32::MIN].map(silu), [2.5e38, 0.0, f32::MAX, 0.0]);
        assert!(silu(f32::NAN).is_nan());
    }

    /// From -20 to 20, where everything there is to see happens.
    fn grid() -> impl Iterator<Item = f32> {
        (-200_000..=200_000).map(|i| i as f32 * 1e-4)
    }

    #[test]
    fn tanh_is_close_to_the_real_thing() {
        for x in grid() {
            let (found, real) = (tanh(x) as f64, libm::tanh(x as f64));
            assert!((found - real).abs() <= 4e-7 * real.abs(), "tanh({x}): {found}, {real}");
            assert_eq!(tanh(-x), -tanh(x));
        }
        assert_eq!([0.0, 90.0, f32::MAX, f32::INFINITY].map(tanh), [0.0, 1.0, 1.0, 1.0]);
        assert_eq!(tanh(1e-30), 1e-30);
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn gelu_is_its_textbook_formula() {
        for x in grid() {
            let wide = x as f64;
            let u = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044_715 * wide.powi(3));
            let real = 0.5 * wide * (1.0 + libm::tanh(u));
            // Of a large exponent the rounding shows, and where it does the result is all but zero.
            let bound = 3e-6 * real.abs() + 1e-9;
            assert!((gelu(x) as f64 - real).abs() <= bound, "gelu({x}): {}, {real}", gelu(x));
        }
        assert_eq!([gelu(0.0), gelu(100.0), gelu(-100.0)], [0.0, 100.0, 0.0]);
        // Where a cube is infinite, too.
        assert_eq!([2e13, -2e13, f32::MAX, f32::MIN].map(gelu), [2e13, 0.0, f32::MAX, 0.0]);
        assert!(gelu(f32::NAN).is_nan());
    }
}
