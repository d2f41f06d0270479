//! What chapter 8 of the book says, made to come true: the answers of its quiz, the trace that its stepper
//! replays.

#[path = "../examples/trace_schedule.rs"]
mod trace_schedule;

use naive_decode::{Sampler, Sampling};
use serde_json::Value;
use serving::engine::policy::{LEVEL, Rank};
use std::time::Duration;

/// Passes that the eight requests took in one way.
fn passes(way: &str) -> usize {
    let trace: Value = serde_json::from_str(include_str!("../traces/schedule.json")).unwrap();
    let ways = trace["ways"].as_array().unwrap();
    let way = ways.iter().find(|found| found["name"] == way).unwrap();
    way["passes"].as_array().unwrap().len()
}

#[test]
fn a_batch_takes_as_long_as_its_longest() {
    assert_eq!(passes("a batch at a time"), 56);
}

#[test]
fn continuous_batches_leave_no_place_empty() {
    assert_eq!(passes("continuous, prompts whole"), 37);
}

#[test]
fn tokens_that_are_allowed_keep_their_odds() {
    let chances: [f32; 5] = [0.5, 0.2, 0.15, 0.1, 0.05];
    let allowed = [1, 3];
    let mut scores = chances.map(f32::ln);
    (0..5).filter(|token| !allowed.contains(token)).for_each(|t| scores[t] = f32::NEG_INFINITY);
    let sampling = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
    let mut sampler = Sampler::new(sampling).unwrap();
    let mut drawn = [0_u32; 5];
    for _ in 0..60_000 {
        drawn[sampler.sample(&scores, &[]).unwrap() as usize] += 1;
    }
    let percent = (100.0 * f64::from(drawn[1]) / 60_000.0).round();
    assert_eq!((percent, drawn[1] + drawn[3]), (67.0, 60_000));
}

#[test]
fn a_level_is_worth_ten_seconds() {
    assert_eq!(LEVEL, Duration::from_secs(10));
    let waited = Rank::new(0, Duration::from_secs(0), 1);
    let urgent = Rank::new(1, Duration::from_secs(12), 2);
    assert!(waited < urgent);
}

/// `cargo run --release -p serving --example trace_schedule > 08-serving/traces/schedule.json`
#[test]
fn the_stepper_replays_what_this_code_does() {
    assert_eq!(include_str!("../traces/schedule.json"), trace_schedule::trace().unwrap());
}
