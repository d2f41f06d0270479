//! Past the trained length.

use super::target_config;
use kv_cache::RopeScaling;
use naive_decode::Rope;
use std::f64::consts::TAU;

#[test]
fn pairs_that_never_finish_a_turn() {
    let config = target_config();
    let rope = Rope::new(config.rope_theta, config.head_dim, 1);
    let turns = |frequency: &f64| frequency * config.trained_context as f64 / TAU;
    let unfinished = rope.frequencies().iter().filter(|f| turns(f) < 1.0).count();
    assert_eq!(unfinished, 8);
    assert_eq!(rope.frequencies().len(), 16);
    assert_eq!(turns(&rope.frequencies()[0]).round(), 81.0);
    assert!((turns(&rope.frequencies()[15]) - 0.0145).abs() < 1e-4);
}

#[test]
fn interpolation_blurs_neighbours() {
    let frequencies =
        |scaling: RopeScaling| scaling.rope(&target_config(), 1).frequencies().to_vec();
    let linear = frequencies(RopeScaling::Linear { factor: 4.0, trained: 512 });
    assert_eq!(linear[0], 0.25);
    let ntk = frequencies(RopeScaling::Ntk { factor: 4.0 });
    assert_eq!(ntk[0], 1.0);
    let yarn = frequencies(RopeScaling::yarn(4.0, 512));
    assert_eq!(yarn[..2], Rope::new(10_000.0, 32, 1).frequencies()[..2]);
    // What each pair is slowed by, as the chapter's table has it.
    let plain = Rope::new(10_000.0, 32, 1).frequencies().to_vec();
    let slowed = |by: &[f64], pair: usize| (100.0 * plain[pair] / by[pair]).round() / 100.0;
    assert_eq!([0, 4, 8, 12, 15].map(|pair| slowed(&ntk, pair)), [1.0, 1.45, 2.09, 3.03, 4.0]);
    assert_eq!([0, 4, 8, 12, 15].map(|pair| slowed(&yarn, pair)), [1.0, 1.47, 4.0, 4.0, 4.0]);
    // The slowest pair, which has to be slowed in any case, is slowed alike by all three.
    for slowest in [linear[15], ntk[15], yarn[15]] {
        assert!((slowest / linear[15] - 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_factor_of_one_is_no_scaling() {
    let plain = Rope::new(10_000.0, 32, 1).frequencies().to_vec();
    let largest_difference = |scaling: RopeScaling| {
        let scaled = scaling.rope(&target_config(), 1);
        let pairs = scaled.frequencies().iter().zip(&plain);
        pairs.map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max)
    };
    assert_eq!(largest_difference(RopeScaling::Linear { factor: 1.0, trained: 512 }), 0.0);
    assert_eq!(largest_difference(RopeScaling::Ntk { factor: 1.0 }), 0.0);
    assert!(largest_difference(RopeScaling::yarn(1.0, 512)) < 1e-15);
}
