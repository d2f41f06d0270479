//! Holds every verdict to the arithmetic, and the figures of the book's chapter 0 with it.

use std::collections::HashSet;

use super::formulas::*;
use super::{Row, Verdict, rows};

/// A gigabyte is 7.4 % less than a gibibyte; a figure that mixes them is off by no more.
const WIDEST_MIX: f64 = (1u64 << 30) as f64 / 1e9;

fn contradiction(row: &Row) -> Option<String> {
    let truth = (row.recompute)();
    let consistent = match row.verdict {
        Verdict::Holds => row.is_within_rounding(),
        Verdict::Wrong | Verdict::Incomplete | Verdict::Bug => !row.is_within_rounding(),
        Verdict::UnitsMixed => {
            !row.is_within_rounding() && (1.0..=WIDEST_MIX).contains(&(truth / row.claimed))
        }
    };
    let Row { id, claimed, unit, verdict, .. } = row;
    (!consistent).then(|| {
        format!(
            "{id}: claimed {claimed} {unit}, recomputed {truth}; that is not `{}`",
            verdict.label()
        )
    })
}

#[test]
fn every_verdict_follows_from_the_arithmetic() {
    let wrong: Vec<_> = rows().filter_map(contradiction).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_verdict_that_does_not_follow_is_noticed() {
    let row = |claimed, verdict| Row {
        id: "x",
        source: super::Source::MicroGptNotes,
        claim: "",
        claimed,
        rounding: 0.5,
        unit: "GB",
        recompute: || 100.0,
        verdict,
        why: "",
    };
    assert!(contradiction(&row(100.4, Verdict::Holds)).is_none());
    assert!(contradiction(&row(100.6, Verdict::Holds)).is_some());
    assert!(contradiction(&row(100.4, Verdict::Wrong)).is_some());
    assert!(contradiction(&row(95.0, Verdict::UnitsMixed)).is_none());
    assert!(contradiction(&row(90.0, Verdict::UnitsMixed)).is_some());
}

#[test]
fn rows_have_names_of_their_own_and_say_why() {
    let mut seen = HashSet::new();
    for row in rows() {
        assert!(seen.insert(row.id), "two rows are called {}", row.id);
        assert!(row.why.ends_with('.') && !row.claim.ends_with('.'), "{}", row.id);
    }
    assert!(seen.len() > 50);
}

/// A wider bound would let a wrong claim hold.
#[test]
fn a_claim_may_be_off_by_its_last_digit_alone() {
    for Row { id, claimed, rounding, why, .. } in rows() {
        if *rounding == 0.0 {
            continue;
        }
        let step = if why.contains("cut rather than rounded") { *rounding } else { 2.0 * rounding };
        let digits = [step.log10(), claimed / step];
        let is_whole = |x: f64| (x - x.round()).abs() < 1e-9 * x.abs().max(1.0);
        assert!(digits.into_iter().all(is_whole), "{id}: {claimed} give or take {rounding}");
    }
}

// The figures of the book's chapter 0. Its quiz shows these assertions to the reader.

#[test]
fn a_token_meets_every_weight_of_the_embedded_target_once() {
    assert_eq!(EMBEDDED_TARGET.layer_matrices(), 704_512);
    assert_eq!(EMBEDDED_TARGET.parameters(), 4_754_688.0);
    assert_eq!(EMBEDDED_TARGET.multiplied_weights(), 4_751_360.0);
    assert_eq!(EMBEDDED_TARGET.matrix_flops_per_token(), 9_502_720.0);
}

#[test]
fn a_token_of_llama_2_70b_takes_137_gigaflop() {
    assert_eq!(LLAMA_2_70B.parameters(), 68_976_648_192.0);
    assert_eq!(LLAMA_2_70B.matrix_flops_per_token(), 137_426_370_560.0);
    assert_eq!(LLAMA_2_70B.attention_flops(4096), 10_737_418_240.0);
}

#[test]
fn attention_at_the_trained_length_is_a_third_of_the_matrices() {
    let (attention, matrices) =
        (EMBEDDED_TARGET.attention_flops(512), EMBEDDED_TARGET.matrix_flops_per_token());
    assert_eq!(attention, 3_145_728.0);
    assert_eq!((100.0 * attention / matrices).round(), 33.0);
}

#[test]
fn a_token_of_cache_is_small_until_there_are_many() {
    assert_eq!(EMBEDDED_TARGET.kv_bytes_per_token(4), 3_072.0);
    assert_eq!(EMBEDDED_TARGET.kv_bytes_per_token(2), 1_536.0);
    assert_eq!(LLAMA_2_70B.kv_bytes_per_token(2), 327_680.0);
}

#[test]
fn intensity_follows_the_rows_until_the_rows_themselves_weigh() {
    let intensity = |rows| (arithmetic_intensity(rows, 4096, 11008) * 10.0).round() / 10.0;
    assert_eq!([1, 32, 64, 295, 4096].map(intensity), [1.0, 31.7, 62.7, 268.5, 1726.7]);
    // The embedded model's gate in prefill; four bytes a number halve the intensity.
    assert_eq!((arithmetic_intensity(512, 256, 704) / 2.0 * 10.0).round() / 10.0, 68.7);
}

#[test]
fn rows_that_bring_a_matrix_to_the_ridge_point() {
    let ridge = ridge_point(H100.flops_per_second, H100.bytes_per_second);
    let rows = (1..).find(|&rows| arithmetic_intensity(rows, 4096, 11008) >= ridge);
    assert_eq!(rows, Some(328));
}

/// A decode step of Llama-2-13B with 1,024 tokens of cache for each request, on one H100: memory decides.
fn step_of_13b(batch: u64) -> f64 {
    (26e9 + kv_bytes(40, 40, 128, 1024, batch, 2)) / H100.bytes_per_second
}

#[test]
fn a_second_request_in_the_batch_is_nearly_free() {
    let longer_by_percent = 100.0 * (step_of_13b(2) / step_of_13b(1) - 1.0);
    assert_eq!(longer_by_percent.round(), 3.0);
}

#[test]
fn the_caches_of_31_requests_weigh_as_much_as_the_weights() {
    let cache = |batch| kv_bytes(40, 40, 128, 1024, batch, 2);
    assert!(cache(30) < 25.7e9 && cache(31) >= 25.7e9);
}

#[test]
fn the_first_token_of_a_short_prompt_waits_for_memory() {
    let weights = 2.0 * LLAMA_2_70B.parameters();
    let milliseconds = |rows: f64| {
        roofline_seconds(rows * LLAMA_2_70B.matrix_flops_per_token(), weights, H100) * 1e3
    };
    assert_eq!((milliseconds(1.0) * 10.0).round() / 10.0, 41.2);
    assert_eq!((milliseconds(100.0) * 10.0).round() / 10.0, 41.2);
    assert_eq!(milliseconds(4096.0).round(), 569.0);
}

#[test]
fn cached_keys_and_values_weigh_as_much_as_the_embedded_target_at_6191_tokens() {
    let weights = 4.0 * EMBEDDED_TARGET.parameters();
    assert_eq!((weights / EMBEDDED_TARGET.kv_bytes_per_token(4)).floor(), 6_191.0);
}
