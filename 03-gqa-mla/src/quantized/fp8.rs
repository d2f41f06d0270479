//! Eight-bit floats.

use super::codec::Codec;

/// FP8 in the E4M3 format (Micikevicius et al. 2022, arXiv 2209.05433, section 3): a sign, four bits of
/// exponent with bias 7, three of significand.
///
/// No scale is kept. Each code carries an exponent of its own, so that a number's precision (three
/// bits, from 2^-6 to 448) does not depend on how large its neighbours are; that is what the format is
/// for, and it makes this the one method here that takes exactly eight bits. What a scale would buy are
/// numbers past 448, which saturate, and those below 2^-6, which lose bits. Serving engines that have a
/// scale for their FP8 caches keep one per tensor, 1 unless measured.
pub struct Fp8 {
    dim: usize,
}

impl Fp8 {
    /// For vectors of `dim` numbers.
    pub fn new(dim: usize) -> Self {
        Fp8 { dim }
    }
}

/// The largest finite number of the format.
const LARGEST: f32 = 448.0;

/// The code of not-a-number, for either sign the one with all bits set. There are no infinities.
const NAN: u8 = 0x7f;

// ANCHOR: e4m3
/// The nearest E4M3 number's code, ties to even; 448 with the sign of `x` if it is larger than that.
pub fn to_e4m3(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let size = x.abs();
    sign | if size.is_nan() {
        NAN
    } else if size >= LARGEST {
        NAN - 1
    } else if size < 0.015_625 {
        // Below 2^-6 steps are even, 2^-9 each; the eighth is the first of the normal numbers.
        (size * 512.0).round_ties_even() as u8
    } else {
        // Keep three bits of significand: add half of what is dropped, a little less on an even one.
        let bits = size.to_bits();
        let rounded = bits + 0x7_ffff + ((bits >> 20) & 1);
        ((rounded >> 20) - ((127 - 7) << 3)) as u8
    }
}

/// The number that a code stands for.
pub const fn from_e4m3(code: u8) -> f32 {
    let (exponent, significand) = ((code >> 3) & 0xf, code & 7);
    let size = match (exponent, significand) {
        (0xf, 7) => f32::NAN,
        (0, _) => significand as f32 / 512.0,
        _ => f32::from_bits(((exponent as u32 + 127 - 7) << 23) | ((significand as u32) << 20)),
    };
    if code & 0x80 == 0 { size } else { -size }
}
// ANCHOR_END: e4m3

/// Every code's number.
static NUMBERS: [f32; 256] = {
    let mut numbers = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        numbers[code] = from_e4m3(code as u8);
        code += 1;
    }
    numbers
};

impl Codec for Fp8 {
    fn bytes(&self) -> usize {
        self.dim
    }

    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        tile.iter_mut().zip(rows).for_each(|(code, &x)| *code = to_e4m3(x));
    }

    fn numbers(&self, tile: &[u8], _token: usize, numbers: &mut [f32]) -> f32 {
        numbers.iter_mut().zip(tile).for_each(|(number, &code)| *number = NUMBERS[code as usize]);
        1.0
    }
}
