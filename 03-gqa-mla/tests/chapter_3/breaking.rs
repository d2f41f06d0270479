//! Breaking and measuring.

use super::{feed, naive, text, windows::windowed};
use gqa_mla::faults::RollsEarly;
use gqa_mla::quality;
use gqa_mla::quantized::{Codec, Int8};
use gqa_mla::{HybridCache, Room};
use kv_cache::ContiguousStore;

#[test]
fn divergence_by_hand() {
    let (full, lossy) = ([0.7f64, 0.2, 0.1], [0.6f64, 0.3, 0.1]);
    let divergence = quality::divergence(&full.map(f64::ln), &lossy.map(f64::ln));
    assert_eq!((1000.0 * divergence).round(), 27.0);
}

#[test]
fn an_error_relative_to_an_outlier_says_nothing() {
    let mut key = [0.2; 32];
    key[7] = 64.0;
    let codec = Int8::new(32);
    let mut tile = vec![0; codec.bytes()];
    codec.encode(&key, &mut tile);
    let mut read = [0.0; 32];
    let scale = codec.numbers(&tile, 0, &mut read);
    let squares = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|x| x * x).sum::<f32>();
    let off = squares(&mut key.iter().zip(read).map(|(x, code)| x - scale * code));
    let relative = off / squares(&mut key.into_iter());
    let small: Vec<f32> = (0..32).filter(|&i| i != 7).map(|i| read[i]).collect();
    assert!(small.iter().all(|&x| x == 0.0) && relative < 0.01);
}

#[test]
fn a_full_window_shows_at_the_65th_token() {
    let model = windowed(&[Some(64)]);
    let room = Room { capacity: 80, sequences: 1, spare: 0 };
    let store = |_, shape, places| ContiguousStore::new(shape, places, 1).map(RollsEarly::new);
    let mut cache = HybridCache::over(&model, room, store).unwrap();
    let tokens = text(70);
    let clean = naive(&model, &tokens);
    let first_wrong = (0..70).find(|&slot| {
        let row = feed(&model, &mut cache, slot, &tokens[slot..=slot]);
        row.row(0) != clean.row(slot)
    });
    let first_wrong = first_wrong.unwrap();
    assert_eq!(first_wrong + 1, 65);
}

#[test]
fn factors_multiply() {
    let slots = (1.0 + 3.0 / 32.0) / 4.0;
    let times: f64 = 4.0 * (16.0 / 4.25) * 2.0 / slots;
    assert_eq!(times.round(), 110.0);
    let full = 2.0 * 32.0 * 32.0 * 128.0 * 2.0 * 32_768.0;
    assert_eq!((full / times / 1e6).round(), 156.0);
}
