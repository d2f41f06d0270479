//! What is stored, and how far it is from what was given.

use super::{numbers, packed, rows, unpacked};
use flash_attention::kernels::Simd;
use flash_attention::packed::{Format, Memory, PackedLinear, Rows};
use flash_attention::threads::Pool;
use gqa_mla::quantized::from_e4m3;
use half::{bf16, f16};
use naive_decode::{Isa, Linear};
use ndarray::Array2;
use proptest::prelude::*;

fn simd() -> Simd {
    Simd::within(Isa::best())
}

/// Weights that share a scale, of so many in a row.
fn group(format: Format, inputs: usize) -> usize {
    if format == Format::Int8 { inputs } else { 32 }
}

/// Most that a weight may be off, as a part of its group's largest.
fn bound(format: Format) -> f32 {
    match format {
        Format::F32 => 0.0,
        Format::F16 => 1.0 / 2048.0,
        Format::Bf16 | Format::Bf16Fast => 1.0 / 256.0,
        // Half a step of the largest, of which there are 28 to the largest number.
        Format::Fp8 => 0.5 / 14.0 + 0.001,
        // Half a step, of a row.
        Format::Int8 => 0.5 / 127.0 + 1e-6,
        // Half a step, and a little for the scale's own rounding.
        Format::Q8_0 => 0.5 / 127.0 + 0.0006,
        Format::Q4_1 => 0.5 * 2.0 / 15.0 + 0.002,
        // The side away from the largest has one step less.
        Format::Q4_0 => 1.0 / 8.0 + 0.001,
    }
}

/// Scales below 2^-14 are stored in steps of 2^-24, so they may be off by half of that, and up to 448
/// of them are a weight.
const SMALL_SCALES: f32 = 448.0 / (1 << 25) as f32;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn weights_come_back_as_near_as_their_format_allows(
        format in proptest::sample::select(Format::ALL.to_vec()),
        outputs in 1usize..40,
        inputs in 1usize..100,
        power in -8i32..8,
        seed: u32,
    ) {
        let weights: Vec<f32> =
            numbers(outputs * inputs, seed).iter().map(|w| w * 2f32.powi(power)).collect();
        let linear = packed(format, &weights, [outputs, inputs], simd(), 2);
        for (row, back) in weights.chunks(inputs).zip(unpacked(&linear).chunks(inputs)) {
            let group = group(format, inputs);
            for (row, back) in row.chunks(group).zip(back.chunks(group)) {
                let largest = row.iter().fold(0f32, |largest, w| largest.max(w.abs()));
                for (w, b) in row.iter().zip(back) {
                    let off = (w - b).abs();
                    prop_assert!(off <= bound(format) * largest + SMALL_SCALES, "{w} {b}");
                }
            }
        }
    }

    /// Any bytes at all, as long as their scales are numbers.
    #[test]
    fn stored_rows_come_back_byte_for_byte(
        format in proptest::sample::select(Format::ALL.to_vec()),
        outputs in 1usize..40,
        blocks in 1usize..4,
        threads in 1usize..4,
        seed: u32,
    ) {
        let inputs = 32 * blocks;
        let count = outputs * format.row_bytes(inputs);
        // Sign aside no byte is above 0x7b: no number among them is infinite or none.
        let byte = |x: &f32| ((x + 1.0) * 61.0) as u8 | (x.to_bits() as u8) << 7;
        let mut bytes: Vec<u8> = numbers(count, seed).iter().map(byte).collect();
        if format == Format::Fp8 {
            // The upper byte of a scale, which is to be less than 256.
            bytes.iter_mut().skip(1).step_by(34).for_each(|byte| *byte &= 0xbf);
        }
        let stored = Rows::stored(format, outputs, inputs, bytes.clone()).unwrap();
        let (pool, memory) = (Pool::new(threads), Memory::new(threads));
        let linear = PackedLinear::from_rows(&stored, simd(), &pool, &memory).unwrap();
        let back: Vec<u8> = (0..outputs).flat_map(|output| linear.stored_row(output)).collect();
        prop_assert_eq!(back, bytes);
    }

    /// An integer product is the product of the weights and the activations, but for the activations'
    /// rounding: half a step of their group's 127th for each, or of their row's 16,319th.
    #[test]
    fn integer_products_are_within_the_activations_rounding(
        format in proptest::sample::select(vec![Format::Int8, Format::Q8_0, Format::Q4_0, Format::Q4_1]),
        outputs in 1usize..40,
        inputs in 1usize..200,
        seed: u32,
    ) {
        let linear = packed(format, &numbers(outputs * inputs, seed), [outputs, inputs], simd(), 2);
        let (weights, x) = (unpacked(&linear), rows(3, inputs, seed ^ 5));
        let y = linear.apply(x.view());
        for (x, y) in x.outer_iter().zip(y.outer_iter()) {
            for (row, y) in weights.chunks(inputs).zip(y) {
                let (mut exact, mut allowed) = (0.0, 1e-5);
                let group = group(format, inputs);
                let steps = if format == Format::Int8 { 16_319.0 } else { 127.0 };
                for (w, x) in row.chunks(group).zip(x.as_slice().unwrap().chunks(group)) {
                    let step = x.iter().fold(0f32, |most, x| most.max(x.abs())) as f64 / steps;
                    for (&w, &x) in w.iter().zip(x) {
                        exact += w as f64 * x as f64;
                        allowed += w.abs() as f64 * step * 0.5001;
                    }
                }
                prop_assert!((*y as f64 - exact).abs() <= allowed, "{y}, not {exact} ± {allowed}");
            }
        }
    }
}

#[test]
fn what_a_format_can_hold_is_held_exactly() {
    let exact = |format, weights: &[f32]| {
        let linear = packed(format, weights, [1, weights.len()], simd(), 1);
        assert_eq!(unpacked(&linear), weights, "{format:?}");
    };
    exact(Format::F32, &numbers(50, 1));
    exact(
        Format::F16,
        &numbers(50, 1).iter().map(|&w| f16::from_f32(w).to_f32()).collect::<Vec<_>>(),
    );
    exact(
        Format::Bf16,
        &numbers(50, 1).iter().map(|&w| bf16::from_f32(w).to_f32()).collect::<Vec<_>>(),
    );
    // 32 of the 254 numbers that E4M3 has, the largest, the smallest and zero among them.
    let codes =
        (0..32).map(|i| [0x7e, 0x01, 0x81, 0x00].get(i).copied().unwrap_or(5 + 7 * i as u8));
    exact(Format::Fp8, &codes.map(|code| from_e4m3(code) * 0.25).collect::<Vec<_>>());
    exact(Format::Int8, &(0..50).map(|i| (i * 5 - 127) as f32 * 0.25).collect::<Vec<_>>());
    exact(Format::Q8_0, &(0..32).map(|i| (i * 8 - 127) as f32 * 0.25).collect::<Vec<_>>());
    exact(Format::Q4_0, &(0..32).map(|i| (i % 16 - 8) as f32 * 0.25).collect::<Vec<_>>());
    exact(Format::Q4_1, &(0..32).map(|i| (i % 16) as f32 * 0.25 + 3.0).collect::<Vec<_>>());
    for format in Format::ALL {
        exact(format, &[0.0; 40]);
    }
}

#[test]
fn sizes_are_what_the_formats_promise() {
    for (format, bits) in [
        (Format::F32, 32.0),
        (Format::Bf16, 16.0),
        (Format::Bf16Fast, 16.0),
        (Format::F16, 16.0),
        (Format::Fp8, 8.5),
        (Format::Q8_0, 8.5),
        // And a scale of 32 bits for 128.
        (Format::Int8, 8.25),
        (Format::Q4_1, 5.0),
        (Format::Q4_0, 4.5),
    ] {
        let linear = packed(format, &numbers(64 * 128, 1), [64, 128], simd(), 2);
        assert_eq!(linear.bytes() as f64 * 8.0, 64.0 * 128.0 * bits, "{format:?}");
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    let said = "q5".parse::<Format>().unwrap_err().to_string();
    assert_eq!(
        said,
        "weight format is q5, expected one of f32, bf16, bf16-fast, f16, fp8, q8_0, int8, q4_1, \
         q4_0"
    );
}

#[test]
fn bad_rows_are_refused() {
    let said = |format, outputs, inputs, bytes: Vec<u8>| {
        Rows::stored(format, outputs, inputs, bytes).unwrap_err().to_string()
    };
    let short = said(Format::Q8_0, 2, 32, vec![0; 67]);
    assert_eq!(short, "bytes of a q8_0 matrix is 67, expected 68 for 2 outputs x 32 inputs");
    assert!(said(Format::Q4_0, 1, 33, vec![0; 36]).contains("33 inputs"));
    assert!(said(Format::F32, 1, 0, vec![]).contains("0 inputs"));
    for (format, odd) in
        [(Format::F32, 3), (Format::F16, 1), (Format::Fp8, 1), (Format::Q8_0, 1), (Format::Q4_1, 3)]
    {
        let mut bytes = vec![0; format.row_bytes(32)];
        bytes[odd - 1..=odd].fill(0xff);
        assert!(said(format, 1, 32, bytes).ends_with("is NaN, expected finite"), "{format:?}");
    }
    let mut bytes = vec![0; Format::Fp8.row_bytes(32)];
    bytes[20] = 0xff;
    assert!(said(Format::Fp8, 1, 32, bytes).ends_with("is NaN, expected finite"));
    let mut bytes = vec![0; Format::Fp8.row_bytes(32)];
    bytes[..2].copy_from_slice(&half::f16::from_f32(-256.0).to_le_bytes());
    let large = said(Format::Fp8, 1, 32, bytes);
    assert_eq!(large, "a scale of a fp8 matrix is -256, expected less than 256 in size");
    let (pool, memory) = (Pool::new(1), Memory::new(1));
    let few = PackedLinear::from_floats(Format::F32, &[0.0; 5], 2, 3, simd(), &pool, &memory);
    let said = few.err().unwrap().to_string();
    assert_eq!(
        said,
        "weight count of a linear layer is 5, expected 2 outputs x 3 inputs, at least one of each"
    );
}

/// What is said of weights that are not packed.
fn refusal(format: Format, weights: &[f32], outputs: usize, inputs: usize) -> String {
    let (pool, memory) = (Pool::new(1), Memory::new(1));
    let linear =
        PackedLinear::from_floats(format, weights, outputs, inputs, simd(), &pool, &memory);
    linear.err().expect("they are not what they should be").to_string()
}

#[test]
fn matrices_of_nothing_or_of_more_than_there_can_be_are_refused() {
    for format in Format::ALL {
        let stored = |outputs, inputs| {
            Rows::stored(format, outputs, inputs, vec![]).unwrap_err().to_string()
        };
        for (outputs, inputs) in [(0, 0), (0, 32), (1, 0), (usize::MAX, 32)] {
            let shape = format!("{outputs} outputs x {inputs} inputs");
            assert!(refusal(format, &[], outputs, inputs).contains(&shape), "{format:?}");
            assert!(stored(outputs, inputs).contains(&shape), "{format:?}");
            Rows::encoded(format, &[], outputs, inputs).unwrap_err();
        }
    }
}

/// Sums of whole rows are kept in 32 bits.
#[test]
fn int8_rows_are_as_long_as_their_sums_allow() {
    const MOST: usize = 131_000;
    let weights = vec![1.0; MOST + 1];
    let expected = "inputs of a int8 matrix is 131001, expected at most 131000";
    assert_eq!(refusal(Format::Int8, &weights, 1, MOST + 1), expected);
    let bytes = vec![0; Format::Int8.row_bytes(MOST + 1)];
    let said = Rows::stored(Format::Int8, 1, MOST + 1, bytes).unwrap_err().to_string();
    assert_eq!(said, expected);
    packed(Format::F32, &weights, [1, MOST + 1], simd(), 1);
    let x = ndarray::Array2::from_elem((1, MOST), -1.0);
    for simd in Simd::available() {
        let y = packed(Format::Int8, &weights[..MOST], [1, MOST], simd, 1).apply(x.view());
        let off = (y[[0, 0]] + MOST as f32).abs();
        assert!(off < 1.0, "{simd:?}: {y}");
    }
}

/// Below the smallest normal number of E4M3 as above it, with the smallest scale and the largest.
#[test]
fn every_code_of_fp8_is_multiplied_as_what_it_stands_for() {
    let codes: Vec<u8> =
        (0..=u8::MAX).map(|code| if code & 0x7f == 0x7f { 0 } else { code }).collect();
    let x = Array2::<f32>::eye(32);
    for scale in [f16::from_bits(1), f16::from_f32(0.75), f16::from_f32(-255.875)] {
        let blocks = codes.chunks_exact(32).map(|codes| [&scale.to_le_bytes(), codes].concat());
        let rows = Rows::stored(Format::Fp8, 8, 32, blocks.collect::<Vec<_>>().concat()).unwrap();
        let expected = codes.iter().map(|&code| from_e4m3(code) * scale.to_f32());
        let expected = Array2::from_shape_vec((8, 32), expected.collect()).unwrap();
        for simd in Simd::available() {
            let (pool, memory) = (Pool::new(1), Memory::new(1));
            let packed = PackedLinear::from_rows(&rows, simd, &pool, &memory).unwrap();
            assert_eq!(packed.apply(x.view()), expected.t(), "{simd:?}, {scale}");
        }
    }
}

#[test]
fn weights_that_a_format_cannot_hold_are_refused() {
    let bf16_end = f32::from_bits(0x7f7f_8000);
    for (format, end, range) in [
        (Format::F16, 65_520.0, "from -6.5504e4 to 6.5504e4"),
        (Format::Q4_1, 65_520.0, "from -6.5504e4 to 6.5504e4"),
        (Format::Q4_0, 8.0 * 65_520.0, "from -5.24032e5 to 5.24032e5"),
        (Format::Q8_0, 127.0 * 65_520.0, "from -8.319008e6 to 8.319008e6"),
        (Format::Fp8, 448.0 * 255.9375, "from -1.14632e5 to 1.14632e5"),
        (Format::Int8, f32::MAX, "from -3.4028233e38 to 3.4028233e38"),
        (Format::Bf16, bf16_end, "from -3.3895314e38 to 3.3895314e38"),
        (Format::Bf16Fast, bf16_end, "from -3.3895314e38 to 3.3895314e38"),
    ] {
        let mut weights = [0.0, 1.0, 2.0, -end, 4.0, end];
        let expected = format!(
            "weight 1 of row 1 of a {} matrix is {}, expected {range}",
            format.name(),
            -end
        );
        assert_eq!(refusal(format, &weights, 3, 2), expected);
        assert_eq!(Rows::encoded(format, &weights, 3, 2).unwrap_err().to_string(), expected);
        // What is rounded to the largest number is held.
        (weights[3], weights[5]) = (-end.next_down(), end.next_down());
        let back = unpacked(&packed(format, &weights, [3, 2], simd(), 1));
        for (weight, back) in weights.iter().zip(&back) {
            assert!((weight - back).abs() <= end * (bound(format) + 0.001), "{format:?}: {back:?}");
        }
    }
}

#[test]
fn weights_that_are_infinite_or_none_are_refused_in_every_format() {
    for format in Format::ALL {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut weights = numbers(3 * 64, 1);
            weights[2 * 64 + 40] = odd;
            let words = format!("weight 40 of row 2 of a {} matrix is {odd}", format.name());
            assert!(refusal(format, &weights, 3, 64).starts_with(&words), "{format:?}");
            let said = Rows::encoded(format, &weights, 3, 64).unwrap_err().to_string();
            assert!(said.starts_with(&words), "{format:?}: {said}");
        }
    }
}
