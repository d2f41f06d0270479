//! KIVI's codes by themselves.

use crate::codec::{back, step};
use gqa_mla::quantized::Kivi;
use kv_cache::KvShape;
use naive_decode::Element;
use proptest::prelude::*;

fn shape(key_dim: usize, value_dim: usize) -> KvShape {
    KvShape { layers: 1, kv_heads: 1, key_dim, value_dim, element: Element::F32 }
}

proptest! {
    #[test]
    fn a_kivi_number_is_off_by_half_a_step_of_its_group_at_most(
        rows in prop::collection::vec(-100f32..100.0, 64 * 8), four in any::<bool>(), by in 0usize..8,
    ) {
        let bits = if four { 4 } else { 2 };
        let steps = ((1 << bits) - 1) as f32;
        let kivi = Kivi { bits, group: 8, residual: 64, rollback: 0 };
        let scheme = kivi.scheme(shape(8, 16)).unwrap();
        // One channel is an outlier with a sign; only its own numbers may pay for it.
        let mut keys = rows.clone();
        keys.iter_mut().skip(by).step_by(8).for_each(|x| *x = *x * 10.0 + 5000.0);
        let found = back(&*scheme.keys, &keys);
        for channel in 0..8 {
            for group in 0..8 {
                let at = |i: usize| (group * 8 + i) * 8 + channel;
                let low = (0..8).map(|i| keys[at(i)]).fold(f32::INFINITY, f32::min);
                let high = (0..8).map(|i| keys[at(i)]).fold(f32::NEG_INFINITY, f32::max);
                // The zero point is rounded down by one part in 1024 at most.
                let bound = 0.501 * step(high - low + low.abs() / 1024.0, steps);
                for i in 0..8 {
                    let off = (keys[at(i)] - found[at(i)]).abs();
                    prop_assert!(off <= bound, "channel {channel}: {off} > {bound}");
                }
            }
        }
        for (value, found) in rows.chunks(16).map(|v| (v, back(&*scheme.values, v))) {
            for (group, found) in value.chunks(8).zip(found.chunks(8)) {
                let low = group.iter().copied().fold(f32::INFINITY, f32::min);
                let high = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let bound = 0.501 * step(high - low + low.abs() / 1024.0, steps);
                for (x, y) in group.iter().zip(found) {
                    prop_assert!((x - y).abs() <= bound, "{x} came back as {y}");
                }
            }
        }
    }
}

#[test]
fn kivi_survives_equal_numbers_and_giants() {
    let scheme = Kivi { bits: 2, group: 4, residual: 4, rollback: 0 }.scheme(shape(4, 4)).unwrap();
    assert_eq!(back(&*scheme.values, &[3.0; 4]), [3.0; 4]);
    assert_eq!(back(&*scheme.values, &[0.0, 1.0, 2.0, 3.0]), [0.0, 1.0, 2.0, 3.0]);
    let giants = back(&*scheme.values, &[f32::MAX, -f32::MAX, 0.0, 1.0]);
    assert!(giants.iter().all(|x| x.is_finite()), "{giants:?}");
}

#[test]
fn two_bits_are_two_bits() {
    let kivi = |bits| Kivi { bits, group: 32, residual: 128, rollback: 0 };
    let scheme = kivi(2).scheme(shape(128, 128)).unwrap();
    assert_eq!(scheme.keys.bytes(), 128 * 128 * 2 / 8 + 4 * 128 * 4);
    assert_eq!(scheme.values.bytes(), 128 * 2 / 8 + 4 * 4);
    let scheme = kivi(4).scheme(shape(64, 32)).unwrap();
    assert_eq!(scheme.keys.bytes(), 128 * 64 * 4 / 8 + 4 * 64 * 4);
    assert_eq!(scheme.values.bytes(), 32 * 4 / 8 + 4);
}

#[test]
fn settings_that_kivi_does_not_have_are_refused() {
    let refuses = |kivi: Kivi, shape: KvShape, words: &str| {
        assert_eq!(kivi.scheme(shape).err().unwrap().to_string(), words);
    };
    let right = Kivi::new(2);
    refuses(Kivi { bits: 3, ..right }, shape(32, 32), "KIVI's bits is 3, expected 2 or 4");
    let words = "KIVI's group is 32, expected a divisor of the value width, 48";
    refuses(right, shape(32, 48), words);
    let words = "KIVI's group is 0, expected a divisor of the value width, 32";
    refuses(Kivi { group: 0, ..right }, shape(32, 32), words);
    let words = "KIVI's residual window is 40, expected a multiple of the group, 32";
    refuses(Kivi { residual: 40, ..right }, shape(32, 32), words);
    let words = "KIVI's residual window is 0, expected a multiple of the group, 32";
    refuses(Kivi { residual: 0, ..right }, shape(32, 32), words);
    let words = "KIVI's head width is 6, expected whole bytes of 2-bit codes";
    refuses(right, shape(6, 32), words);
}
