//! Narrower numbers.

use super::target;
use gqa_mla::faults::OneScale;
use gqa_mla::quantized::{Codebook, Codec, Int8, Kivi, TurboMse, from_e4m3, methods, to_e4m3};
use kv_cache::KvShape;
use naive_decode::Isa;
use ndarray::Array2;

const VECTOR: [f32; 4] = [0.5, -1.0, 0.25, 8.0];

#[test]
fn int8_by_hand() {
    let codec = Int8::new(4);
    let mut tile = vec![0; codec.bytes()];
    codec.encode(&VECTOR, &mut tile);
    let codes: Vec<i8> = tile[2..].iter().map(|&code| code as i8).collect();
    assert_eq!(codes, [8, -16, 4, 127]);
    let mut read = [0.0; 4];
    let scale = codec.numbers(&tile, 0, &mut read);
    assert_eq!((1e5 * scale).round(), 6_305.0);
    assert_eq!(read.map(|code| (1e3 * scale * code).round()), [504.0, -1_009.0, 252.0, 8_007.0]);
    let off = |x: f32, code: f32| (x - scale * code).abs();
    assert!(VECTOR.iter().zip(read).all(|(&x, code)| off(x, code) <= 0.5 * scale));
    // A scale that is a hundred's leaves one number of four as it was.
    let coarse = OneScale::new(4, 100.0);
    let mut tile = vec![0; coarse.bytes()];
    coarse.encode(&VECTOR, &mut tile);
    let step = coarse.numbers(&tile, 0, &mut read);
    assert_eq!(read.map(|code| (100.0 * step * code).round()), [79.0, -79.0, 0.0, 787.0]);
}

#[test]
fn e4m3_by_hand() {
    assert_eq!(from_e4m3(to_e4m3(100.0)), 96.0);
    let read = [0.3, 0.001, 1_000.0].map(|x| from_e4m3(to_e4m3(x)));
    assert_eq!(read, [0.3125, 1.0 / 512.0, 448.0]);
}

#[test]
fn kivi_by_hand() {
    let shape = KvShape { key_dim: 4, value_dim: 4, ..KvShape::of(&target()) };
    let kivi = Kivi { group: 4, residual: 4, ..Kivi::new(2) };
    let codec = kivi.scheme(shape).unwrap().values;
    let mut tile = vec![0; codec.bytes()];
    codec.encode(&[1.0, 2.0, 4.0, 7.0], &mut tile);
    let mut read = [0.0; 4];
    codec.numbers(&tile, 0, &mut read);
    assert_eq!(read, [1.0, 1.0, 5.0, 7.0]);
}

#[test]
fn bits_that_are_kept() {
    let model = target();
    let numbers = KvShape::of(&model).bytes_per_token() as f64 / 4.0;
    let bytes_per_token = |name| {
        let method = methods().into_iter().find(|method| method.name == name).unwrap();
        (method.make)(&model, 64, 1).unwrap().bytes_per_token() as f64
    };
    let bits = |name| 8.0 * bytes_per_token(name) / numbers;
    assert_eq!(bits("KIVI 2 bits"), 3.0);
    let table = [
        ("INT8", 816.0, 8.5, 1.9),
        ("FP8 E4M3", 768.0, 8.0, 2.0),
        ("KIVI 4 bits", 480.0, 5.0, 3.2),
        ("TurboQuant 3.5 bits", 408.0, 4.25, 3.8),
        ("TurboQuant 2.5 bits", 312.0, 3.25, 4.9),
        ("KIVI 2 bits", 288.0, 3.0, 5.3),
        ("TurboQuant 2.5 bits, no signs", 288.0, 3.0, 5.3),
    ];
    for (name, bytes, wide, times) in table {
        assert_eq!(bytes_per_token(name), bytes, "{name}");
        assert_eq!((8.0 * bytes / numbers, (15_360.0 / bytes).round() / 10.0), (wide, times));
    }
}

#[test]
fn a_rotation_keeps_dot_products() {
    let codec = TurboMse::new(32, &[(32, 2)], 3, Isa::best()).unwrap();
    let (q, k) = (row(|i| (i as f32).sin()), row(|i| if i == 5 { 30.0 } else { 0.1 }));
    let dot = |a: &Array2<f32>, b: &Array2<f32>| (a * b).sum();
    let (tq, tk) = (codec.turn_queries(q.clone()), codec.turn(k.clone()));
    let (plain, turned) = (dot(&q, &k), dot(&tq, &tk));
    let lengths = (dot(&q, &q) * dot(&k, &k)).sqrt();
    assert!((turned - plain).abs() < 1e-5 * lengths);
    // One number was nearly all of the key. Now none is.
    assert!(tk.iter().all(|x| x.abs() < 0.75 * 30.0));
}

fn row(number: impl Fn(usize) -> f32) -> Array2<f32> {
    Array2::from_shape_fn((1, 32), |(_, i)| number(i))
}

#[test]
fn the_best_four_numbers_are_known_beforehand() {
    let book = Codebook::lloyd_max(4_096, 2).unwrap();
    let deviations: Vec<f32> = book.centroids().iter().map(|c| (c * 64_000.0).round()).collect();
    assert_eq!(deviations, [-1_510.0, -453.0, 453.0, 1_510.0]);
    assert_eq!((1000.0 * book.distortion()).floor(), 117.0);
    let one_bit = Codebook::lloyd_max(4_096, 1).unwrap();
    assert_eq!((100.0 * one_bit.distortion()).round(), 36.0);
}

#[test]
fn a_quarter_of_the_channels_adds_a_quarter_of_a_bit() {
    let codec = TurboMse::new(128, &[(32, 3), (96, 2)], 1, Isa::best()).unwrap();
    let length = 2;
    assert_eq!(8.0 * (codec.bytes() - length) as f64 / 128.0, 2.25);
}
