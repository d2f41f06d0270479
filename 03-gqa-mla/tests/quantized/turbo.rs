//! TurboQuant's codes by themselves, against the paper.

use crate::codec::{back, length, normal};
use gqa_mla::quantized::{Codebook, Codec, TurboMse, TurboProduct};
use naive_decode::Isa;
use ndarray::{Array2, ArrayView2};

#[test]
fn codebooks_are_those_of_the_paper() {
    // Theorem 1's table: distortion at 1, 2, 3, 4 bits. The normal limit to more digits: Max 1960.
    let published = [0.36, 0.117, 0.03, 0.009];
    let max_1960 = [0.3634, 0.1175, 0.03454, 0.009497];
    for (i, (published, normal)) in published.into_iter().zip(max_1960).enumerate() {
        let bits = i + 1;
        let book = Codebook::lloyd_max(1024, bits).unwrap();
        let found = book.distortion();
        assert!((found - normal).abs() < 0.005 * normal, "{bits} bits: {found}");
        // To as many digits as are printed there.
        assert!((found - published).abs() < 0.005, "{bits} bits: {found}");
        for dim in [16, 32, 64, 128] {
            let found = Codebook::lloyd_max(dim, bits).unwrap().distortion();
            let bound = 3f64.sqrt() * std::f64::consts::PI / 2.0 * 0.25f64.powi(bits as i32);
            assert!(found < bound, "theorem 1's bound, {bits} bits, {dim} numbers: {found}");
            assert!(found < normal * 1.001, "bounded numbers are easier: {found}");
        }
        let centroids = book.centroids();
        assert_eq!(centroids.len(), 1 << bits);
        assert!(centroids.is_sorted());
        for (a, b) in centroids.iter().zip(centroids.iter().rev()) {
            assert!((a + b).abs() < 1e-5, "as the density, symmetric: {centroids:?}");
        }
    }
    // Section 3.1: ±√(2/πd), and {±0.453/√d, ±1.51/√d}.
    let scaled = |bits| {
        let book = Codebook::lloyd_max(1024, bits).unwrap();
        book.centroids().iter().map(|c| c * 32.0).collect::<Vec<f32>>()
    };
    for (found, expected) in
        [(scaled(1), vec![-0.7979, 0.7979]), (scaled(2), vec![-1.51, -0.453, 0.453, 1.51])]
    {
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() < 0.003, "{found:?}, in the paper {expected:?}");
        }
    }
    assert!(Codebook::lloyd_max(2, 2).is_err() && Codebook::lloyd_max(32, 0).is_err());
    assert!(Codebook::lloyd_max(32, 9).is_err());
}

#[test]
fn the_nearest_centroid_is_the_nearest() {
    let book = Codebook::lloyd_max(32, 3).unwrap();
    for x in (-1000..=1000).map(|i| i as f32 / 1000.0) {
        let code = book.nearest(x);
        let distance = |c: &f32| (c - x).abs();
        let best = book.centroids().iter().map(distance).fold(f32::INFINITY, f32::min);
        assert!(distance(&book.centroids()[code as usize]) <= best + 1e-7);
    }
}

/// A vector that is hard without the rotation: all its length in a few channels.
fn spiky(seed: u64, dim: usize) -> Vec<f32> {
    let mut x = normal(seed, dim);
    x[seed as usize % dim] *= 50.0;
    x
}

/// What a codec makes of a row, turned there and back.
fn there_and_back(codec: &dyn Codec, row: &[f32]) -> Vec<f32> {
    let turned = codec.turn(Array2::from_shape_vec((1, row.len()), row.to_vec()).unwrap());
    let found = back(codec, turned.as_slice().unwrap());
    let found = codec.turn_back(Array2::from_shape_vec((1, row.len()), found).unwrap());
    found.into_raw_vec_and_offset().0
}

#[test]
fn the_mean_squared_error_is_the_codebooks_whatever_the_vector() {
    let dim = 32;
    for (parts, bits) in [
        (vec![(32, 1)], vec![1]),
        (vec![(32, 2)], vec![2]),
        (vec![(32, 4)], vec![4]),
        (vec![(16, 3), (16, 2)], vec![2, 3]),
        (vec![(16, 4), (16, 3)], vec![3, 4]),
    ] {
        let distortions = bits.iter().map(|&b| Codebook::lloyd_max(dim, b).unwrap().distortion());
        let expected = distortions.sum::<f64>() / bits.len() as f64;
        let samples = 160;
        let errors: Vec<f64> = (0..samples)
            .map(|seed| {
                let codec = TurboMse::new(dim, &parts, seed, Isa::best()).unwrap();
                let x = spiky(seed / 4, dim);
                let y = there_and_back(&codec, &x);
                let off: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x - y).collect();
                f64::from(length(&off) / length(&x)).powi(2)
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / samples as f64;
        assert!((mean - expected).abs() < 0.1 * expected, "{parts:?}: {mean}, not {expected}");
    }
}

/// An inner product as attention takes it: turned query against numbers, times the factor.
fn product(codec: &dyn Codec, key: &[f32], query: &[f32]) -> f64 {
    let row = |x: &[f32]| ArrayView2::from_shape((1, x.len()), x).unwrap().to_owned();
    let query = codec.turn_queries(row(query));
    let key = codec.turn(row(key));
    let mut tile = vec![0xff; codec.bytes()];
    codec.encode(key.as_slice().unwrap(), &mut tile);
    let mut numbers = vec![0.0; query.len()];
    let factor = codec.numbers(&tile, 0, &mut numbers);
    let sum: f64 = query.iter().zip(&numbers).map(|(q, x)| f64::from(*q) * f64::from(*x)).sum();
    sum * f64::from(factor)
}

/// Mean and variance of an inner product over many rotations and sketches, both vectors of length 1,
/// and what it should be.
fn over_seeds(new: impl Fn(u64) -> Box<dyn Codec>, samples: u64) -> (f64, f64, f64) {
    let unit = |seed| {
        let x = spiky(seed, 32);
        let length = length(&x);
        x.into_iter().map(|x| x / length).collect::<Vec<f32>>()
    };
    let key = unit(5);
    let query: Vec<f32> = unit(9).iter().zip(&key).map(|(a, b)| 0.6 * a + 0.8 * b).collect();
    let truth = query.iter().zip(&key).map(|(a, b)| f64::from(a * b)).sum();
    let found: Vec<f64> = (0..samples).map(|seed| product(&*new(seed), &key, &query)).collect();
    let mean = found.iter().sum::<f64>() / samples as f64;
    let variance = found.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / samples as f64;
    let size = length(&query).powi(2);
    (mean - truth, variance / f64::from(size), truth)
}

#[test]
fn with_signs_inner_products_are_right_on_average_and_without_them_too_small() {
    let samples = 300;
    for bits in [2, 3, 4] {
        let new = |seed| -> Box<dyn Codec> {
            Box::new(TurboProduct::new(32, &[(32, bits)], seed, Isa::best()).unwrap())
        };
        let (bias, variance, truth) = over_seeds(new, samples);
        let deviation = (variance / samples as f64).sqrt();
        assert!(bias.abs() < 4.0 * deviation, "{bits} bits: off by {bias} of {truth}");
        // Theorem 2: √3·π²/d · 4^-b bounds the error, π/2d · the codes' distortion is what it is.
        let rest = Codebook::lloyd_max(32, bits - 1).unwrap().distortion();
        let expected = std::f64::consts::FRAC_PI_2 * rest / 32.0;
        assert!(variance < 1.25 * expected, "{bits} bits: variance {variance}, bound {expected}");
        assert!(variance > 0.3 * expected, "{bits} bits: variance {variance}, bound {expected}");
        let theorem = 3f64.sqrt() * std::f64::consts::PI.powi(2) / 32.0 * 0.25f64.powi(bits as i32);
        assert!(variance < theorem, "{bits} bits: variance {variance}, theorem 2 {theorem}");

        let new = |seed| -> Box<dyn Codec> {
            Box::new(TurboMse::new(32, &[(32, bits - 1)], seed, Isa::best()).unwrap())
        };
        let (bias, _, truth) = over_seeds(new, samples);
        // The codes keep 1 - distortion of the length along the vector itself.
        assert!((bias / truth + rest).abs() < 0.3 * rest, "{bits} bits: {bias} of {truth}, {rest}");
    }
}

#[test]
fn one_bit_without_signs_keeps_two_thirds_of_a_product() {
    let new = |seed| -> Box<dyn Codec> {
        Box::new(TurboMse::new(32, &[(32, 1)], seed, Isa::best()).unwrap())
    };
    let (bias, _, truth) = over_seeds(new, 300);
    // Section 3.2: 2/π of it.
    let kept = 1.0 + bias / truth;
    assert!((kept - std::f64::consts::FRAC_2_PI).abs() < 0.03, "{kept}");
}

#[test]
fn a_rotation_keeps_dot_products() {
    for seed in 0..20 {
        let codec = TurboMse::new(32, &[(32, 2)], seed, Isa::best()).unwrap();
        let (query, key) = (spiky(seed, 32), spiky(seed + 100, 32));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let turn = |x: &[f32]| {
            codec
                .turn(Array2::from_shape_vec((1, 32), x.to_vec()).unwrap())
                .into_raw_vec_and_offset()
                .0
        };
        let (plain, turned) = (dot(&query, &key), dot(&turn(&query), &turn(&key)));
        let lengths = length(&query) * length(&key);
        assert!((turned - plain).abs() < 1e-5 * lengths);
        let there = Array2::from_shape_vec((1, 32), turn(&key)).unwrap();
        for (x, y) in key.iter().zip(codec.turn_back(there)) {
            assert!((x - y).abs() < 1e-5 * length(&key));
        }
        // And it does spread what was in one channel.
        let largest = |x: &[f32]| x.iter().fold(0.0f32, |a, x| a.max(x.abs())) / length(x);
        assert!(largest(&key) > 0.8 && largest(&turn(&key)) < 0.8, "{}", largest(&turn(&key)));
    }
}

#[test]
fn a_quarter_of_the_channels_adds_a_quarter_of_a_bit() {
    assert_eq!((32.0 * 3.0 + 96.0 * 2.0) / 128.0, 2.25);
    let codec = TurboMse::new(128, &[(32, 3), (96, 2)], 1, Isa::best()).unwrap();
    assert_eq!((codec.bytes() - 2) as f64 * 8.0 / 128.0, 2.25);
    let codec = TurboMse::new(128, &[(64, 3), (64, 2)], 1, Isa::best()).unwrap();
    assert_eq!((codec.bytes() - 2) as f64 * 8.0 / 128.0, 2.5);
}

#[test]
fn what_turboquant_cannot_do_is_refused() {
    let new = |dim, parts: &[(usize, usize)]| TurboMse::new(dim, parts, 1, Isa::best()).err();
    let words = "channels in all parts is 31, expected 32, the width";
    assert_eq!(new(32, &[(16, 3), (15, 2)]).unwrap().to_string(), words);
    let words = "bits of a codebook is 9, expected between 1 and 8";
    assert_eq!(new(32, &[(32, 9)]).unwrap().to_string(), words);
    let words = "width to rotate is 2, expected at least 3";
    assert_eq!(new(2, &[(2, 2)]).unwrap().to_string(), words);
    let words = "bits with a sign among them is 1, expected at least 2";
    let error = TurboProduct::new(32, &[(32, 1)], 1, Isa::best()).err().unwrap();
    assert_eq!(error.to_string(), words);
    let codec = TurboProduct::new(4, &[(4, 3)], 1, Isa::best()).unwrap();
    assert_eq!(product(&codec, &[0.0; 4], &[1.0, 2.0, 3.0, 4.0]), 0.0);
}
