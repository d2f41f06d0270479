//! Every instruction set against plain loops.

use super::*;

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

fn bits(visible: std::ops::Range<usize>) -> Vec<u16> {
    let bit = |t, l: usize| (visible.contains(&(t * LANES + l)) as u16) << l;
    (0..visible.end.div_ceil(LANES)).map(|t| (0..LANES).map(|l| bit(t, l)).sum()).collect()
}

// ANCHOR: chain
/// One chain, one element at a time: the definition.
fn chain(x: impl Iterator<Item = f32>, w: impl Iterator<Item = f32>) -> f32 {
    x.zip(w).fold(0.0, |sum, (x, w)| x.mul_add(w, sum))
}
// ANCHOR_END: chain

#[test]
fn every_path_gives_the_defining_chain() {
    for isa in Isa::available() {
        for k in [1, 2, 31, 256] {
            let x = numbers(k * 8, 1);
            let (x8, _) = x.as_chunks::<8>();
            let w = numbers(k * LANES, 2);
            let (panel, _) = w.as_chunks::<LANES>();
            let mut sums = [[0.0; LANES]; 8];
            multiply_rows(isa, x8, panel, &mut sums);
            for r in 0..8 {
                for lane in 0..LANES {
                    let expected = chain(x8.iter().map(|x| x[r]), panel.iter().map(|w| w[lane]));
                    assert_eq!(sums[r][lane].to_bits(), expected.to_bits(), "{isa:?} k={k}");
                }
            }
            let row: Vec<f32> = x8.iter().map(|x| x[3]).collect();
            let mut out = [[0.0; LANES]; 4];
            multiply_row(isa, &row, [panel; 4], &mut out);
            assert_eq!(out, [sums[3]; 4], "{isa:?} k={k}: one row differs from many");
        }
    }
}

#[test]
fn every_path_widens_bf16_exactly() {
    struct Widen<'a>(&'a [half::bf16], &'a mut [f32]);
    impl Kernel for Widen<'_> {
        type Result = ();
        #[inline(always)]
        unsafe fn run<V: Vector>(self) {
            for first in (0..self.0.len()).step_by(V::WIDTH) {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { V::load_bf16(&self.0[first..]).store(&mut self.1[first..]) };
            }
        }
    }
    let narrow: Vec<half::bf16> =
        numbers(5 * LANES, 8).iter().map(|&v| half::bf16::from_f32(v)).collect();
    for isa in Isa::available() {
        let mut wide = vec![0.0; narrow.len()];
        isa.run(Widen(&narrow, &mut wide));
        assert!(wide.iter().zip(&narrow).all(|(wide, &n)| *wide == n.to_f32()), "{isa:?}");
    }
}

#[test]
fn every_path_widens_half_precision_exactly() {
    struct Widen<'a>(&'a [half::f16], &'a mut [f32]);
    impl Kernel for Widen<'_> {
        type Result = ();
        #[inline(always)]
        unsafe fn run<V: Vector>(self) {
            for first in (0..self.0.len()).step_by(V::WIDTH) {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { V::load_f16(&self.0[first..]).store(&mut self.1[first..]) };
            }
        }
    }
    let narrow: Vec<_> = (0..=u16::MAX).map(half::f16::from_bits).collect();
    for isa in Isa::available() {
        let mut wide = vec![0.0; narrow.len()];
        isa.run(Widen(&narrow, &mut wide));
        for (wide, narrow) in wide.iter().zip(&narrow) {
            let same = wide.to_bits() == narrow.to_f32().to_bits();
            assert!(same || wide.is_nan() && narrow.is_nan(), "{isa:?}: {narrow} became {wide}");
        }
    }
}

/// Where the compiler may not use an instruction, `mul_add` is the system's `fmaf`. Some have
/// rounded twice; then the scalar path would part from the others.
#[test]
fn the_platforms_multiply_add_rounds_once() {
    let tie = 1.0 + f32::EPSILON;
    for (a, b, c) in [
        (tie, tie, f32::MIN_POSITIVE),
        (tie, tie, -f32::MIN_POSITIVE),
        (1.0 + 2f32.powi(-12), 1.0 + 2f32.powi(-12), 2f32.powi(-80)),
        (1.0 - 2f32.powi(-12), 1.0 + 2f32.powi(-12), 2f32.powi(-24) + 2f32.powi(-60)),
        (3.0, 1.0 / 3.0, -1.0),
    ] {
        assert_eq!(a.mul_add(b, c).to_bits(), libm::fmaf(a, b, c).to_bits(), "{a} {b} {c}");
    }
    let x = numbers(3 * 20_000, 6);
    for v in x.chunks_exact(3) {
        let c = v[2] * 2f32.powi((v[0] * 40.0) as i32);
        assert_eq!(v[0].mul_add(v[1], c).to_bits(), libm::fmaf(v[0], v[1], c).to_bits());
    }
}

#[test]
fn softmax_gates_and_caps_give_the_same_bits_on_every_path() {
    let scores: Vec<f32> = numbers(7 * LANES, 3).iter().map(|s| s * 40.0).collect();
    let mut gate = numbers(100, 4);
    // So far out that a cube or a product is infinite.
    let far = [2e13, -2e13, 2.5e38, -2.5e38];
    gate[20..24].copy_from_slice(&far);
    let run = |isa: Isa| {
        let mut tiles = scores.as_chunks::<LANES>().0.to_vec();
        let (maximum, sum) = softmax_weights(isa, &mut tiles, &bits(5..97));
        let mut gated = gate.clone();
        silu_gate(isa, &mut gated, &gate);
        let mut others = scores.clone();
        others[20..24].copy_from_slice(&far);
        gelu_gate(isa, &mut others[..50], &gate[..50]);
        soft_cap(isa, &mut others[50..], 30.0);
        let mut exponents: Vec<f32> = scores.iter().map(|score| 3.0 * score).collect();
        exponentials(isa, &mut exponents);
        let numbers = [tiles.into_flattened(), gated, others, exponents].concat();
        let bits: Vec<u32> = numbers.into_iter().map(f32::to_bits).collect();
        (maximum, sum.to_bits(), bits)
    };
    let expected = run(Isa::SCALAR);
    for isa in Isa::available() {
        assert_eq!(run(isa), expected, "{isa:?}");
    }
    assert!(expected.2.iter().all(|&number| !f32::from_bits(number).is_nan()));
    let weights = &expected.2[..7 * LANES];
    assert!(weights[..5].iter().chain(&weights[97..]).all(|&w| w == 0));
    assert!(weights[5..97].iter().all(|&w| f32::from_bits(w) > 0.0));
}

#[test]
fn softmax_agrees_with_double_precision() {
    let scores: Vec<f32> = numbers(64, 5).iter().map(|s| s * 20.0).collect();
    let mut tiles = scores.as_chunks::<LANES>().0.to_vec();
    let (_, sum) = softmax_weights(Isa::best(), &mut tiles, &bits(0..50));
    let exact: Vec<f64> = scores[..50].iter().map(|&s| 2f64.powf(s as f64)).collect();
    let total: f64 = exact.iter().sum();
    for (w, e) in tiles.as_flattened().iter().zip(exact) {
        assert!((*w as f64 / sum as f64 - e / total).abs() < 1e-6);
    }
}

#[test]
fn nothing_visible_weighs_nothing() {
    let mut tiles = vec![[1.0; LANES]];
    let (_, sum) = softmax_weights(Isa::best(), &mut tiles, &[0]);
    assert_eq!((sum, tiles[0]), (0.0, [0.0; LANES]));
}

#[test]
fn every_path_adds_and_norms_as_one_after_the_other_does() {
    for width in [1, 15, 16, 100, 256] {
        let (x, made, weight) = (numbers(width, 1), numbers(width, 2), numbers(width, 3));
        let sum: Vec<f32> = x.iter().zip(&made).map(|(x, made)| x + made).collect();
        let normed = crate::numerics::rms_norm(&sum, &weight, 1e-5);
        for isa in Isa::available() {
            for (weight, read) in [(Some(&weight[..]), &normed), (None, &sum)] {
                let (mut x, mut made) = (x.clone(), made.clone());
                add_norm(isa, &mut x, &mut made, weight, 1e-5);
                assert_eq!((&x, &made), (&sum, read), "{isa:?}, {width} wide");
            }
        }
    }
}

#[test]
fn the_highest_of_many_is_found_unless_one_is_no_number_or_infinite() {
    for isa in Isa::available() {
        for length in [0, 1, 15, 16, 17, 40] {
            let plain = numbers(length, 6);
            let expected = plain.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(highest(isa, &plain), Some(expected), "{isa:?}: {length}");
            for place in 0..length {
                let with = |number: f32| {
                    let mut numbers = plain.clone();
                    numbers[place] = number;
                    highest(isa, &numbers)
                };
                assert_eq!(with(f32::MAX), Some(f32::MAX), "{isa:?}: {place} of {length}");
                for number in [f32::NAN, -f32::NAN, f32::INFINITY] {
                    assert_eq!(with(number), None, "{isa:?}: {number} at {place} of {length}");
                }
            }
            let none = vec![f32::NEG_INFINITY; length];
            assert_eq!(highest(isa, &none), Some(f32::NEG_INFINITY), "{isa:?}: {length}");
        }
    }
}
