//! Order of the steps: each pair in a case where the other order gives another answer.

use super::{assert_close, distribution, logits_of, plain};
use naive_decode::Sampling;

#[test]
fn bias_comes_before_repetition_penalty() {
    // (1 + 2) / 3 = 1; the other way round 1/3 + 2.
    let sampling =
        Sampling { logit_bias: vec![(0, 2.0)], repetition_penalty: 3.0, ..Sampling::default() };
    assert_eq!(distribution(&sampling, &[1.0, 1.5], &[0]), [0.0, 1.0]);
}

#[test]
fn repetition_penalty_comes_before_presence_penalty() {
    // 3/2 - 1 = 0.5 loses to 0.75; (3 - 1)/2 = 1 would win.
    let sampling =
        Sampling { repetition_penalty: 2.0, presence_penalty: 1.0, ..Sampling::default() };
    assert_eq!(distribution(&sampling, &[3.0, 0.75], &[0]), [0.0, 1.0]);
}

#[test]
fn penalties_come_before_temperature() {
    // The penalty halves the odds of token 0; after a temperature of 1/2 it would take only as
    // much as half of that in logits.
    let sampling = Sampling { temperature: 0.5, presence_penalty: 2f32.ln(), ..plain() };
    assert_close(&distribution(&sampling, &[0.0, 0.0], &[0]), &[0.2, 0.8]);
}

#[test]
fn penalties_come_before_top_k() {
    let sampling = Sampling { top_k: Some(1), presence_penalty: 1.0, ..plain() };
    assert_eq!(distribution(&sampling, &[1.0, 0.5], &[0]), [0.0, 1.0]);
}

#[test]
fn temperature_comes_before_top_p() {
    // Squared: 0.36, 0.16, 0.04 of 0.56 = 64 %, 29 %, 7 %, so two reach 0.9. Unsquared: three.
    let sampling = Sampling { temperature: 0.5, top_p: 0.9, ..plain() };
    let logits = logits_of(&[0.6, 0.4 / 1.5, 0.2 / 1.5]);
    let found = distribution(&sampling, &logits, &[]);
    assert_eq!(found.iter().map(|p| *p > 0.0).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn temperature_comes_before_min_p() {
    // 0.3 / 0.6 = 0.5 is over the bar of 0.4; squared, 0.25 is under it.
    let sampling = Sampling { temperature: 0.5, min_p: 0.4, ..plain() };
    assert_close(&distribution(&sampling, &logits_of(&[0.6, 0.3, 0.1]), &[]), &[1.0, 0.0, 0.0]);
}

#[test]
fn top_k_comes_before_top_p_which_counts_what_is_left() {
    // After top-2: 4/7 and 3/7, so 0.5 needs one token. Of the whole, it would need two.
    let sampling = Sampling { top_k: Some(2), top_p: 0.5, ..plain() };
    let logits = logits_of(&[0.4, 0.3, 0.2, 0.1]);
    assert_close(&distribution(&sampling, &logits, &[]), &[1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn top_p_comes_before_min_p() {
    let logits = logits_of(&[0.4, 0.3, 0.1, 0.1, 0.1]);
    let sampling = Sampling { top_p: 0.55, min_p: 0.5, ..plain() };
    // 0.55 of the whole needs 0.4 + 0.3. Of what min-p would leave, 4/7 and 3/7, the first will do.
    assert_close(&distribution(&sampling, &logits, &[]), &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0, 0.0]);
}
