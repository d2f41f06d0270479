//! Narrow weights, as far as it is arithmetic.

use super::smollm2_weights;
use flash_attention::kernels::Simd;
use flash_attention::packed::{Format, Memory, PackedLinear, Rows};
use flash_attention::threads::Pool;
use naive_decode::{Isa, Linear};
use ndarray::{Array2, ArrayView1};

#[test]
fn bits_of_a_weight_are_time() {
    let megabytes = |bits: f64| smollm2_weights() as f64 * bits / 8.0 / 1e6;
    assert_eq!([32.0, 16.0].map(|bits| megabytes(bits).round()), [538.0, 269.0]);
    assert_eq!((10.0 * megabytes(8.5)).round() / 10.0, 142.9);
    assert_eq!([5.0, 4.5].map(|bits| megabytes(bits).round()), [84.0, 76.0]);
    let stored = |format: Format| format.row_bytes(64) as f64 / 8.0;
    let formats = [Format::F32, Format::Bf16, Format::Q8_0, Format::Q4_1, Format::Q4_0];
    assert_eq!(formats.map(stored), [32.0, 16.0, 8.5, 5.0, 4.5]);
    // Tokens a second if 50 GB of weights can be read in one.
    let rate = |bits: f64| (50e3 / megabytes(bits)).round();
    assert_eq!([32.0, 16.0, 8.5, 4.5].map(rate), [93.0, 186.0, 350.0, 661.0]);
}

#[test]
fn the_largest_sum_of_a_group() {
    // Codes as no encoder here writes them, but a file may hold them, against activations that are all as large as can be.
    let mut block = half::f16::ONE.to_le_bytes().to_vec();
    block.extend([-128i8 as u8; 32]);
    let stored = Rows::stored(Format::Q8_0, 1, 32, block).unwrap();
    let (simd, pool, memory) = (Simd::within(Isa::best()), Pool::new(1), Memory::new(1));
    let linear = PackedLinear::from_rows(&stored, simd, &pool, &memory).unwrap();
    let largest = -linear.apply(Array2::from_elem((1, 32), 127.0).view())[[0, 0]] as i32;
    assert_eq!(largest, 520_192);
    // An f32 holds every integer up to 2^24.
    assert!(largest < 1 << 24);
    assert_eq!(largest as f32 as i32, largest);
    assert_eq!((1 << 24) / (128 * 127), 1_032);
    // Two products of an unsigned and a signed byte are more than 16 bits hold.
    let two_products = |largest: i32| 2 * largest * 127;
    assert_eq!(two_products(255), 64_770);
    assert!(two_products(255) > i32::from(i16::MAX) && two_products(128) <= i32::from(i16::MAX));
}

/// Codes that rows of activations become: each meets a weight of 1 by itself.
fn codes<const N: usize>(rows: &[[f32; N]]) -> Vec<[i32; N]> {
    let (simd, pool, memory) = (Simd::within(Isa::best()), Pool::new(1), Memory::new(1));
    let ones = Array2::<f32>::eye(N);
    let ones = ones.as_slice().unwrap();
    let linear = PackedLinear::from_floats(Format::Q8_0, ones, N, N, simd, &pool, &memory).unwrap();
    let met = linear.apply(Array2::from(rows.to_vec()).view());
    let row = |(x, met): (&[f32; N], ArrayView1<f32>)| {
        let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        std::array::from_fn(|i| (met[i] / (largest / 127.0)).round() as i32)
    };
    rows.iter().zip(met.rows()).map(row).collect()
}

#[test]
fn int8_by_hand() {
    let (weights, activations) = ([0.5, -1.0, 0.25, 2.0], [3.0, 1.0, -2.0, 0.5]);
    let mut row = [0.0; 32];
    row[..4].copy_from_slice(&weights);
    let stored = Rows::encoded(Format::Q8_0, &row, 1, 32).unwrap();
    let stored: Vec<i32> = stored.bytes()[2..6].iter().map(|&code| i32::from(code as i8)).collect();
    assert_eq!(stored, [32, -64, 16, 127]);
    assert_eq!(codes(&[activations]), [[127, 42, -85, 21]]);
    let sum: i32 = stored.iter().zip(codes(&[activations])[0]).map(|(w, x)| w * x).sum();
    assert_eq!(sum, 2_683);
    let (simd, pool, memory) = (Simd::within(Isa::best()), Pool::new(1), Memory::new(1));
    let linear =
        PackedLinear::from_floats(Format::Q8_0, &weights, 1, 4, simd, &pool, &memory).unwrap();
    let product = linear.apply(Array2::from(vec![activations]).view())[[0, 0]];
    assert_eq!((1000.0 * product).round(), 998.0);
    let exact = 0.5 * 3.0 - 1.0 + 0.25 * -2.0 + 2.0 * 0.5;
    assert_eq!(exact, 1.0);
}

#[test]
fn an_outlier_takes_its_neighbours_bits() {
    let mut group = [0.3; 32];
    group[7] = 100.0;
    let with = codes(&[group])[0];
    assert_eq!((with[0], with[7]), (0, 127));
    // Taken out, and multiplied in 16 bits by itself, it leaves the others all they need.
    group[7] = 0.0;
    assert_eq!(codes(&[group])[0][0], 127);
}

#[test]
fn a_row_is_quantised_by_itself() {
    let (own, neighbour) = ([0.4, -0.8, 0.2], [9.0, 3.0, -5.0]);
    let alone = codes(&[own])[0];
    assert_eq!(codes(&[own, neighbour])[0], alone);
    // With one scale for both it would be what it is in a row with its neighbour.
    let [first, second, third, ..] = codes(&[[0.4, -0.8, 0.2, 9.0, 3.0, -5.0]])[0];
    let in_company = [first, second, third];
    assert_ne!(in_company, alone);
    assert_eq!((alone, in_company), ([64, -127, 32], [6, -11, 3]));
}

#[test]
fn awq_in_bits() {
    let bits: f64 = 0.01 * 16.0 + 0.99 * 3.0;
    assert_eq!((10.0 * 16.0 / bits).round() / 10.0, 5.1);
    // INT4 in groups of 128, with a scale and a zero point of 16 bits each, or of 32.
    assert_eq!([128.0, 32.0].map(|group| 4.0 + 32.0 / group), [4.25, 5.0]);
}

/// One output that is the second of 32 activations, in steps: all other weights are 0.
#[test]
fn small_numbers_have_steps_beside_large_ones() {
    let mut weights = [0.0; 32];
    weights[1] = 1.0;
    let mut x = Array2::zeros((1, 32));
    (x[[0, 0]], x[[0, 1]]) = (1.0, 1.0 / 20_000.0);
    let (simd, pool, memory) = (Simd::within(Isa::best()), Pool::new(1), Memory::new(1));
    let steps = |format| {
        let linear = PackedLinear::from_floats(format, &weights, 1, 32, simd, &pool, &memory);
        (linear.unwrap().apply(x.view())[[0, 0]] * 16_319.0).round()
    };
    assert_eq!((steps(Format::Q8_0), steps(Format::Int8)), (0.0, 1.0));
    // Beside an outlier a hundred times as large.
    assert_eq!(f32::floor(16_319.0 / 100.0), 163.0);
}

/// The sum of 2^24, 1, -2^24 and 0 is 0 in ascending order, and 1 if even and odd inputs are added apart. With
/// 2^24, -2^24, 1 and 0 it is the other way round.
#[test]
fn blocks_have_an_order_of_their_own() {
    const LARGE: f32 = 16_777_216.0;
    let sums_of = |weights: [f32; 4], format| {
        let (simd, pool, memory) = (Simd::within(Isa::best()), Pool::new(1), Memory::new(1));
        let linear =
            PackedLinear::from_floats(format, &weights, 1, 4, simd, &pool, &memory).unwrap();
        linear.apply(Array2::ones((1, 4)).view())[[0, 0]]
    };
    let sum_of = |format| sums_of([LARGE, 1.0, -LARGE, 0.0], format);
    assert_eq!((sum_of(Format::Bf16), sum_of(Format::Bf16Fast)), (0.0, 1.0));
    let sum_of = |format| sums_of([LARGE, -LARGE, 1.0, 0.0], format);
    assert_eq!((sum_of(Format::Bf16), sum_of(Format::Bf16Fast)), (1.0, 0.0));
}
