//! What must not change a bit.

use super::{numbers, packed, rows, unpacked};
use flash_attention::kernels::Simd;
use flash_attention::packed::{Format, PackedLinear};
use half::bf16;
use naive_decode::{DenseLinear, Isa, Linear};
use ndarray::{Array2, ArrayView2, Axis, s};
use proptest::prelude::*;

fn best() -> Simd {
    Simd::within(Isa::best())
}

fn any_format() -> impl Strategy<Value = Format> {
    proptest::sample::select(Format::ALL.to_vec())
}

/// A matrix that joins as [`Linear`] does by itself.
struct Whole(PackedLinear);

impl Linear for Whole {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.0.apply(x)
    }
    fn inputs(&self) -> usize {
        self.0.inputs()
    }
    fn outputs(&self) -> usize {
        self.0.outputs()
    }
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever runs it, whoever shares it, whatever comes with it.
    #[test]
    fn a_rows_outputs_are_its_own(
        format in any_format(),
        outputs in 1usize..70,
        inputs in 1usize..100,
        count in 1usize..30,
        threads in 1usize..4,
        seed: u32,
    ) {
        let weights = numbers(outputs * inputs, seed);
        let x = rows(count, inputs, seed ^ 7);
        let scalar = packed(format, &weights, [outputs, inputs], Simd::available()[0], 1);
        let expected = scalar.apply(x.view());
        for simd in Simd::available() {
            let linear = packed(format, &weights, [outputs, inputs], simd, threads);
            prop_assert_eq!(&linear.apply(x.view()), &expected, "{:?}", simd);
            let row = seed as usize % count;
            let alone = linear.apply(x.slice(s![row..row + 1, ..]));
            prop_assert_eq!(alone.row(0), expected.row(row), "{:?}: a row alone", simd);
        }
    }

    /// Of long passes threads share out rows, of short ones outputs.
    #[test]
    fn a_long_pass_is_its_rows_in_short_ones(
        format in any_format(),
        outputs in 1usize..40,
        inputs in 1usize..70,
        count in 90usize..200,
        threads in 1usize..4,
        seed: u32,
    ) {
        let linear = packed(format, &numbers(outputs * inputs, seed), [outputs, inputs], best(), threads);
        let x = rows(count, inputs, seed ^ 7);
        let long = linear.apply(x.view());
        for first in (0..count).step_by(7) {
            let part = s![first..count.min(first + 7), ..];
            prop_assert_eq!(linear.apply(x.slice(part)), long.slice(part));
        }
    }

    /// Joined while they are near, two matrices give what joins all of their outputs.
    #[test]
    fn two_matrices_are_joined_as_if_each_were_whole(
        format in any_format(),
        half in prop_oneof![1usize..70, Just(64), Just(160)],
        inputs in 1usize..70,
        count in prop_oneof![1usize..20, 90usize..250],
        threads in 1usize..5,
        seed: u32,
    ) {
        let linear = packed(format, &numbers(2 * half * inputs, seed), [2 * half, inputs], best(), threads);
        let x = rows(count, inputs, seed ^ 7);
        let join = |first: &mut [f32], second: &[f32]| {
            first.iter_mut().zip(second).for_each(|(a, b)| *a = *a * 0.5 - b);
        };
        let both = linear.apply(x.view());
        let (first, second) = both.view().split_at(Axis(1), half);
        let expected = &first * 0.5 - second;
        prop_assert_eq!(&linear.apply_joined(x.view(), &join), &expected);
        prop_assert_eq!(&Whole(linear).apply_joined(x.view(), &join), &expected, "by default");
    }

    /// Rung 01 multiplies the same weights to the same bits.
    #[test]
    fn floats_are_rung_01s_chain(
        format in proptest::sample::select(vec![Format::F32, Format::Bf16, Format::F16, Format::Fp8]),
        outputs in 1usize..70,
        inputs in 1usize..80,
        count in 0usize..20,
        seed: u32,
    ) {
        let weights = numbers(outputs * inputs, seed);
        let linear = packed(format, &weights, [outputs, inputs], best(), 2);
        let dense = DenseLinear::new(&unpacked(&linear), outputs, inputs, Isa::best()).unwrap();
        let x = rows(count, inputs, seed ^ 3);
        prop_assert_eq!(linear.apply(x.view()), dense.apply(x.view()));
    }
}

/// What the fast mode of BF16 makes of one output: of each 32 inputs a chain of the even and one of the odd, then their sum.
/// Each step has one rounding, to 24 bits whatever the size; then what is smaller than 2^-126 is zero.
fn by_blocks(x: &[f32], weights: &[f32]) -> f32 {
    let normal = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    // Weights were rounded when they were stored, and count as zero if they are subnormal then; activations before.
    let of_weight = |w: &f32| normal(bf16::from_f32(*w).to_f32());
    let of_activation = |x: &f32| bf16::from_f32(normal(*x)).to_f32();
    // Half a step below 2^-126 begins what is rounded up to it.
    let least = 2f64.powi(-126) - 2f64.powi(-151);
    let step = |sum: f32, x: f32, w: f32| {
        let exact = f64::from(x).mul_add(w.into(), sum.into());
        let next = x.mul_add(w, sum);
        if exact.abs() < least { 0f32.copysign(next) } else { next }
    };
    let mut sum = 0.0f32;
    for (x, w) in x.chunks(32).zip(weights.chunks(32)) {
        let product = |sum: f32, i: usize| {
            let (x, w) = (x.get(i).map_or(0.0, of_activation), w.get(i).map_or(0.0, of_weight));
            step(sum, x, w)
        };
        let chain = |first: usize| (first..32).step_by(2).fold(0.0, product);
        sum = step(sum, step(chain(0), chain(1), 1.0), 1.0);
    }
    sum
}

/// What INT8 with activations of fifteen bits makes of one output: nothing is rounded before the end.
fn by_whole_sums(x: &[f32], row: &[u8]) -> f32 {
    let scale = f32::from_le_bytes(*row.first_chunk().unwrap());
    let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
    let (mut high, mut low) = (0i64, 0i64);
    for (x, &code) in x.iter().zip(&row[4..]) {
        let steps = (x * (16_319.0 / largest)).round_ties_even() as i64;
        let digit = (steps + 64).div_euclid(128);
        high += digit * i64::from(code as i8);
        low += (steps - 128 * digit) * i64::from(code as i8);
    }
    (high as f32).mul_add(128.0, low as f32) * (scale * (largest * (1.0 / 16_319.0)))
}

#[test]
fn activations_of_fifteen_bits_are_added_whole() {
    // Of the longest rows sums are past 2^24, which floats of 32 bits do not hold exactly.
    for (outputs, inputs, count) in
        [(33, 75, 5), (16, 64, 16), (48, 130, 37), (40, 2100, 9), (16, 1, 3)]
    {
        let weights: Vec<f32> =
            numbers(outputs * inputs, 3).iter().map(|w| w.abs().sqrt()).collect();
        let x = rows(count, inputs, 4).mapv(|x| x.abs().sqrt());
        for simd in Simd::available() {
            let linear = packed(Format::Int8, &weights, [outputs, inputs], simd, 2);
            for part in [s![.., ..], s![..1, ..]] {
                let x = x.slice(part);
                for (x, y) in x.outer_iter().zip(linear.apply(x).outer_iter()) {
                    for (output, y) in y.iter().enumerate() {
                        let row = linear.stored_row(output);
                        let exact = by_whole_sums(x.as_slice().unwrap(), &row);
                        assert_eq!(*y, exact, "{simd:?}: output {output} of {outputs} x {inputs}");
                    }
                }
            }
        }
    }
}

/// With instructions for it and without.
#[test]
fn products_of_bf16_are_added_in_blocks() {
    // Powers of two that weights and activations lie near, in turns. Some of each are subnormal, and some products
    // and sums.
    for (rows, outputs, inputs, powers) in [
        (19, 33, 75, [[0, 0], [0, 0]]),
        (19, 16, 64, [[0, -125], [0, 100]]),
        (19, 16, 64, [[0, 100], [0, -125]]),
        (19, 48, 130, [[-63, -66], [-63, -66]]),
        (19, 16, 1, [[-63, -63], [-63, -63]]),
        // So many that panels are crossed for them.
        (99, 48, 130, [[0, 0], [0, 0]]),
        (99, 80, 70, [[-63, -66], [-63, -66]]),
    ] {
        let near = |powers: [i32; 2], count, seed| -> Vec<f32> {
            let numbers = numbers(count, seed).into_iter().enumerate();
            numbers.map(|(i, x)| x * 2f32.powi(powers[i / 3 % 2])).collect()
        };
        let weights = near(powers[0], outputs * inputs, 3);
        let x = near(powers[1], rows * inputs, 4);
        let x = ndarray::Array2::from_shape_vec((rows, inputs), x).unwrap();
        for simd in Simd::available() {
            let linear = packed(Format::Bf16Fast, &weights, [outputs, inputs], simd, 2);
            let y = linear.apply(x.view());
            for (x, y) in x.outer_iter().zip(y.outer_iter()) {
                for (w, y) in weights.chunks(inputs).zip(y) {
                    let expected = by_blocks(x.as_slice().unwrap(), w);
                    assert_eq!(
                        y.to_bits(),
                        expected.to_bits(),
                        "{simd:?}: {y:e}, not {expected:e}"
                    );
                }
            }
        }
    }
}

/// Sums about half a step below the smallest number, of either sign: 2^-126 from one input, and next to nothing taken off
/// by the next of the same chain.
#[test]
fn sums_become_zero_where_the_instruction_has_it() {
    let tiny = [-150, -151, -152].map(|power| 2f32.powi(power + 75));
    for off in [tiny[0] * 1.5, tiny[0], tiny[1] * 1.5, tiny[1], tiny[2]] {
        for sign in [1.0, -1.0] {
            let weights = [sign * 2f32.powi(-63), 0.0, -sign * off, 0.0];
            let x = [2f32.powi(-63), 0.0, 2f32.powi(-75), 0.0];
            let expected = by_blocks(&x, &weights);
            let kept = if off > tiny[1] { 0.0 } else { sign * f32::MIN_POSITIVE };
            assert_eq!(expected.to_bits(), f32::to_bits(kept));
            let row = ndarray::arr2(&[x]);
            for simd in Simd::available() {
                let y = packed(Format::Bf16Fast, &weights, [1, 4], simd, 1).apply(row.view());
                assert_eq!(y[[0, 0]].to_bits(), expected.to_bits(), "{simd:?}: off by {off:e}");
            }
        }
    }
}

/// The largest subnormal number would be rounded up to one that is none.
#[test]
fn a_subnormal_activation_is_zero_before_it_is_rounded() {
    let (x, weights) =
        ([f32::MIN_POSITIVE.next_down(), 0.0, 0.0, 0.0], [2f32.powi(100), 0.0, 0.0, 0.0]);
    assert_eq!(by_blocks(&x, &weights), 0.0);
    for simd in Simd::available() {
        let y =
            packed(Format::Bf16Fast, &weights, [1, 4], simd, 1).apply(ndarray::arr2(&[x]).view());
        assert_eq!(y[[0, 0]], 0.0, "{simd:?}");
    }
}

/// Half of the smallest number is what the first block leaves, which is zero to the second: so nobody may add them.
#[test]
fn what_became_zero_is_not_added() {
    for even_and_odd in [[0, 1], [0, 2]] {
        for sign in [1.0, -1.0] {
            let small = sign * 2f32.powi(-63);
            let mut weights = [0.0; 64];
            (weights[even_and_odd[0]], weights[even_and_odd[1]]) = (1.5 * small, -small);
            weights[32] = small;
            let expected = by_blocks(&[2f32.powi(-63); 64], &weights);
            assert_eq!(expected.to_bits(), (sign * f32::MIN_POSITIVE).to_bits());
            for simd in Simd::available() {
                for rows in [1, 7, 99] {
                    let x = ndarray::Array2::from_elem((rows, 64), 2f32.powi(-63));
                    let y = packed(Format::Bf16Fast, &weights, [1, 64], simd, 1).apply(x.view());
                    let same = y.iter().all(|y| y.to_bits() == expected.to_bits());
                    assert!(same, "{simd:?}: {y:e}, expected {expected:e}");
                }
            }
        }
    }
}

/// Half of the smallest number is what the even chain and the odd one leave of each other, or one block and the next.
#[test]
fn sums_of_sums_become_zero_too() {
    for other in [1, 32] {
        for sign in [1.0, -1.0] {
            let small = sign * 2f32.powi(-63);
            let mut weights = [0.0; 33];
            (weights[0], weights[other]) = (1.5 * small, -small);
            let x = [2f32.powi(-63); 33];
            let expected = by_blocks(&x, &weights);
            assert_eq!(expected, 0.0);
            let row = ndarray::arr2(&[x]);
            for simd in Simd::available() {
                let y = packed(Format::Bf16Fast, &weights, [1, 33], simd, 1).apply(row.view());
                assert_eq!(y[[0, 0]].to_bits(), expected.to_bits(), "{simd:?}: 0 and {other}");
            }
        }
    }
}

/// A finite activation may be nearer to infinity than to the largest BF16.
#[test]
fn what_bf16_cannot_hold_is_infinite() {
    let x = ndarray::arr2(&[[f32::MAX, 0.0, 0.0]]);
    for simd in Simd::available() {
        let y = |format| packed(format, &[0.5; 3], [1, 3], simd, 1).apply(x.view())[[0, 0]];
        assert_eq!((y(Format::Bf16), y(Format::Bf16Fast)), (f32::MAX / 2.0, f32::INFINITY));
    }
}

/// The same on every processor: these hashes were taken on x86-64, and AArch64 has to find them too.
const HASHES: [&str; 9] = [
    "F32 703b020bf107179f",
    "Bf16 6bf40c9646aa740c",
    "Bf16Fast 58969f3f4d2d8f2c",
    "F16 f553b425133a6687",
    "Fp8 a1c64b5cc31dfd52",
    "Q8_0 0ca5d2032deb2ade",
    "Int8 ea9c22e3600b394b",
    "Q4_1 b2a595e72d28d4a7",
    "Q4_0 d42cb85a52f3cfe5",
];

/// Weights from 1 down to where floats of 16 bits are subnormal, and inputs that leave a group unfinished.
#[test]
fn every_processor_gives_these_bits() {
    let (outputs, inputs) = (50, 75);
    let mut weights = numbers(outputs * inputs, 9);
    for (i, weight) in weights.iter_mut().enumerate() {
        *weight *= 0.5f32.powi(i as i32 / 32 % 24);
    }
    let x = rows(14, inputs, 10);
    for simd in Simd::available() {
        let hash_of = |format| {
            let linear = packed(format, &weights, [outputs, inputs], simd, 1);
            let mut hasher = blake3::Hasher::new();
            for y in [x.view(), x.slice(s![..1, ..])].iter().flat_map(|x| linear.apply(*x)) {
                hasher.update(&y.to_le_bytes());
            }
            format!("{format:?} {:.16}", hasher.finalize().to_hex())
        };
        assert_eq!(Format::ALL.map(hash_of), HASHES, "{simd:?}");
    }
}

/// Codes at the ends of their range, where eight-bit instructions saturate if they are not watched.
#[test]
fn the_largest_codes_are_multiplied_exactly() {
    let (outputs, inputs) = (16, 64);
    for sign in [1.0, -1.0] {
        let weights = vec![sign; outputs * inputs];
        let x = ndarray::Array2::from_elem((13, inputs), -1.0);
        for format in Format::ALL {
            for simd in Simd::available() {
                let linear = packed(format, &weights, [outputs, inputs], simd, 1);
                let exact: f32 = -unpacked(&linear)[..inputs].iter().sum::<f32>();
                for y in linear.apply(x.view()) {
                    assert!((y - exact).abs() < 1e-4, "{format:?} {simd:?}: {y}, not {exact}");
                }
            }
        }
    }
}

/// A file may hold -128, which no encoder here writes.
#[test]
fn a_code_of_minus_128_is_what_it_says() {
    use flash_attention::packed::{Memory, PackedLinear, Rows};
    use flash_attention::threads::Pool;
    let mut block = half::f16::from_f32(0.5).to_le_bytes().to_vec();
    block.extend([0x80; 32]);
    let stored = Rows::stored(Format::Q8_0, 1, 32, block).unwrap();
    let x =
        ndarray::Array2::from_shape_fn((2, 32), |(r, i)| if (r + i) % 2 == 0 { 1.0 } else { -0.5 });
    for simd in Simd::available() {
        let linear =
            PackedLinear::from_rows(&stored, simd, &Pool::new(1), &Memory::new(1)).unwrap();
        let y = linear.apply(x.view());
        // Half of the activations are 127 steps, half are -63.5, which rounds to -64.
        let exact = -64.0 * 16.0 * (127.0 - 64.0) / 127.0;
        assert!((y[[0, 0]] - exact).abs() < 1e-3 && y[[0, 0]] == y[[1, 0]], "{simd:?}: {y}");
    }
}

#[test]
fn what_is_not_finite_comes_out_so() {
    let paths = |format| Simd::available().into_iter().map(move |simd| (format, simd));
    for (format, simd) in Format::ALL.into_iter().flat_map(paths) {
        let linear = packed(format, &numbers(32 * 65, 1), [32, 65], simd, 2);
        for (odd, at) in [(f32::NAN, 40), (f32::INFINITY, 41), (f32::NEG_INFINITY, 64)] {
            let mut x = rows(3, 65, 2);
            x[[1, at]] = odd;
            let y = linear.apply(x.view());
            assert!(y.row(1).iter().all(|y| !y.is_finite()), "{format:?}, {simd:?}: {odd}");
            let others = y.row(0).into_iter().chain(y.row(2));
            assert!(others.into_iter().all(|y| y.is_finite()), "{format:?}, {simd:?}: {odd}");
        }
    }
}

#[test]
fn activations_of_any_size_are_quantised() {
    for format in [Format::Int8, Format::Q8_0, Format::Q4_0, Format::Q4_1] {
        let linear = packed(format, &numbers(16 * 32, 1), [16, 32], best(), 1);
        let ones = rows(1, 32, 2);
        let expected = linear.apply(ones.view());
        for power in [-60, -20, 0, 20, 60] {
            let by = 2f32.powi(power);
            let y = linear.apply((&ones * by).view());
            assert_eq!(y, &expected * by, "{format:?}: scaling by 2^{power} is exact");
        }
        assert!(linear.apply((&ones * 1e-35).view()).iter().all(|&y| y == 0.0), "{format:?}");
    }
}
