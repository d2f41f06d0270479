//! INT8 by itself.

use crate::codec::{back, step};
use gqa_mla::quantized::{Codec, Int8};
use half::f16;
use proptest::prelude::*;

proptest! {
    #[test]
    fn an_int8_number_is_off_by_half_a_step_at_most(
        rows in prop::collection::vec(-1e6f32..1e6, 32), exponent in -8i32..8,
    ) {
        let rows: Vec<f32> = rows.iter().map(|x| x * 10f32.powi(exponent)).collect();
        let largest = rows.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        prop_assume!(largest < 65_504.0 * 127.0);
        for (x, y) in rows.iter().zip(back(&Int8::new(32), &rows)) {
            prop_assert!((x - y).abs() <= 0.501 * step(largest, 127.0), "{x} came back as {y}");
        }
    }
}

#[test]
fn int8_by_hand() {
    let mut tile = [0; 2 + 4];
    Int8::new(4).encode(&[0.5, -1.0, 0.25, 8.0], &mut tile);
    let codes: Vec<i8> = tile[2..].iter().map(|&code| code as i8).collect();
    assert_eq!(codes, [8, -16, 4, 127]);
    let scale = f16::from_le_bytes([tile[0], tile[1]]).to_f32();
    assert!((8.0 / 127.0..8.01 / 127.0).contains(&scale), "{scale}");
}

#[test]
fn int8_survives_zeros_and_giants() {
    assert_eq!(back(&Int8::new(4), &[0.0, -0.0, 0.0, 0.0]), [0.0; 4]);
    assert_eq!(back(&Int8::new(3), &[127.0, -127.0, 1.0]), [127.0, -127.0, 1.0]);
    let giant = back(&Int8::new(2), &[f32::MAX, 1.0]);
    assert!(giant.iter().all(|x| x.is_finite()), "{giant:?}");
}
