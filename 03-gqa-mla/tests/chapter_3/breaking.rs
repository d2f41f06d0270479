//! Breaking and measuring.

use super::windows::{sharing, windowed};
use super::{feed, naive, text};
use gqa_mla::faults::RollsEarly;
use gqa_mla::fit::{PUBLISHED, PublishedModel};
use gqa_mla::quality;
use gqa_mla::quantized::{Codec, Int8};
use gqa_mla::{HybridCache, Room, makers};
use kv_cache::ContiguousStore;
use naive_decode::KvSize;

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
    // Six layers with a window, two without, four times over; every other one reads its neighbour's.
    let windows: Vec<_> = (0..32).map(|layer| (layer % 8 < 6).then_some(1_024)).collect();
    let shares: Vec<_> = (0..32usize).map(|layer| (layer % 2 == 1).then(|| layer - 1)).collect();
    let makers = makers(&sharing(&windows, &shares)).unwrap();
    let request = |layers, heads, window, bits| {
        let kv = KvSize { heads, key_dim: 128, value_dim: 128 };
        PublishedModel { layers, kv, window, ..PUBLISHED[0] }.kv_bytes(32_768, bits)
    };
    let full = request(32, 32, None, 16.0);
    let kept: f64 = makers.iter().flatten().map(|made| request(1, 8, made.window, 4.25)).sum();
    assert_eq!((full / kept).round(), 110.0);
    assert_eq!([full / 1e8, kept / 1e6].map(f64::round), [172.0, 156.0]);
}
