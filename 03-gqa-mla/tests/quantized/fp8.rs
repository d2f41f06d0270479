//! FP8 by itself, against the format.

use crate::codec::back;
use gqa_mla::quantized::{Fp8, from_e4m3, to_e4m3};
use half::f16;

#[test]
fn all_256_codes_are_the_numbers_of_the_format() {
    for code in 0..=255u8 {
        let (sign, exponent, significand) = (code >> 7, i32::from(code >> 3 & 15), code & 7);
        let expected = match (exponent, significand) {
            (15, 7) => f64::NAN,
            (0, m) => f64::from(m) / 8.0 * 2f64.powi(-6),
            (e, m) => (1.0 + f64::from(m) / 8.0) * 2f64.powi(e - 7),
        };
        let expected = if sign == 1 { -expected } else { expected };
        let found = from_e4m3(code);
        assert_eq!(found.is_nan(), expected.is_nan());
        if !found.is_nan() {
            assert_eq!(f64::from(found), expected, "code {code:#04x}");
            assert_eq!(to_e4m3(found), code, "a number of the format keeps its code");
        }
    }
    // Table 1 of the paper: the largest normal, the smallest normal, both ends of the subnormals.
    assert_eq!(from_e4m3(0b0111_1110), 448.0);
    assert_eq!(from_e4m3(0b0000_1000), 2f32.powi(-6));
    assert_eq!(from_e4m3(0b0000_0111), 0.875 * 2f32.powi(-6));
    assert_eq!(from_e4m3(0b0000_0001), 2f32.powi(-9));
}

#[test]
fn every_half_precision_number_goes_to_the_nearest_code_and_ties_to_the_even_one() {
    let numbers: Vec<f64> = (0..=0x7eu8).map(|code| f64::from(from_e4m3(code))).collect();
    for bits in 0..=u16::MAX {
        let x = f16::from_bits(bits).to_f32();
        let code = to_e4m3(x);
        if x.is_nan() {
            assert_eq!(code & 0x7f, 0x7f);
            continue;
        }
        let x = x.clamp(-1e6, 1e6); // infinities are at a distance from everything
        assert_eq!(code >> 7, u8::from(x.is_sign_negative()), "sign of {x}");
        let distance = |code: u8| (numbers[code as usize] - f64::from(x.abs())).abs();
        let best = (0..=0x7e)
            .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
        assert_eq!(Some(code & 0x7f), best, "{x}");
    }
    for x in [449.0, 480.0, 1e30, f32::INFINITY] {
        assert_eq!((from_e4m3(to_e4m3(x)), from_e4m3(to_e4m3(-x))), (448.0, -448.0), "saturates");
    }
    // One part of f32's precision to either side of a tie.
    let tie = 1.0625f32;
    assert_eq!([tie.next_down(), tie, tie.next_up()].map(to_e4m3), [0x38, 0x38, 0x39]);
    assert_eq!(from_e4m3(to_e4m3(2f32.powi(-10).next_up())), 2f32.powi(-9));
    assert_eq!(to_e4m3(2f32.powi(-10)), 0);
    assert_eq!(back(&Fp8::new(3), &[1.0, -600.0, 0.3]), [1.0, -448.0, 0.3125]);
}

#[test]
fn e4m3_by_hand() {
    assert_eq!(from_e4m3(to_e4m3(100.0)), 96.0);
    assert_eq!(from_e4m3(to_e4m3(0.3)), 0.3125);
    assert_eq!(from_e4m3(to_e4m3(0.001)), 0.001953125);
    assert_eq!(from_e4m3(to_e4m3(1000.0)), 448.0);
}
