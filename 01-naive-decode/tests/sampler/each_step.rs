//! Each step, by hand.

use super::{assert_close, distribution, logits_of, plain};
use naive_decode::{Sampler, Sampling, argmax};

#[test]
fn the_default_is_greedy_and_ties_go_to_the_lowest_id() {
    let mut sampler = Sampler::new(Sampling::default()).unwrap();
    assert_eq!(sampler.distribution(&[1.0, 3.0, 3.0, 2.0], &[]).unwrap(), [0.0, 1.0, 0.0, 0.0]);
    for _ in 0..100 {
        assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0], &[]).unwrap(), 1);
    }
    assert_eq!(argmax(&[-0.0, 0.0]).unwrap(), 0);
}

#[test]
fn temperature_is_a_power_of_the_probabilities() {
    let logits = logits_of(&[0.6, 0.3, 0.1]);
    assert_close(&distribution(&plain(), &logits, &[]), &[0.6, 0.3, 0.1]);
    // T = 1/2 squares them: 0.36, 0.09, 0.01.
    let cold = Sampling { temperature: 0.5, ..plain() };
    assert_close(&distribution(&cold, &logits, &[]), &[36.0 / 46.0, 9.0 / 46.0, 1.0 / 46.0]);
    // So small a temperature that score / temperature would overflow: greedy, not NaN.
    let coldest = Sampling { temperature: 1e-44, ..plain() };
    assert_close(&distribution(&coldest, &[3e38, 2.9e38, -3e38], &[]), &[1.0, 0.0, 0.0]);
}

#[test]
fn top_k_keeps_k_and_breaks_ties_by_id() {
    let top_2 = Sampling { top_k: Some(2), ..plain() };
    let logits = logits_of(&[0.1, 0.6, 0.3]);
    assert_close(&distribution(&top_2, &logits, &[]), &[0.0, 6.0 / 9.0, 3.0 / 9.0]);
    assert_close(&distribution(&top_2, &[0.0; 4], &[]), &[0.5, 0.5, 0.0, 0.0]);
    let more_than_there_are = Sampling { top_k: Some(9), ..plain() };
    assert_close(&distribution(&more_than_there_are, &logits, &[]), &[0.1, 0.6, 0.3]);
}

#[test]
fn top_p_keeps_the_fewest_that_reach_p() {
    let logits = logits_of(&[0.1, 0.5, 0.4]);
    let top = |p| Sampling { top_p: p, ..plain() };
    assert_close(&distribution(&top(0.45), &logits, &[]), &[0.0, 1.0, 0.0]);
    assert_close(&distribution(&top(0.8), &logits, &[]), &[0.0, 5.0 / 9.0, 4.0 / 9.0]);
    assert_close(&distribution(&top(0.95), &logits, &[]), &[0.1, 0.5, 0.4]);
    assert_close(&distribution(&top(1.0), &logits, &[]), &[0.1, 0.5, 0.4]);
    // Four exact quarters: two reach 0.5, so the third, though it starts at 0.5, is out.
    assert_close(&distribution(&top(0.5), &[0.0; 4], &[]), &[0.5, 0.5, 0.0, 0.0]);
    // Never fewer than one.
    assert_close(&distribution(&top(1e-30), &logits, &[]), &[0.0, 1.0, 0.0]);
}

#[test]
fn min_p_is_relative_to_the_most_probable() {
    let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
    let min = |p| Sampling { min_p: p, ..plain() };
    // The bar is 0.4 x 0.5 = 0.2; as an absolute bar, 0.4 would leave the first alone.
    assert_close(&distribution(&min(0.4), &logits, &[]), &[5.0 / 8.0, 3.0 / 8.0, 0.0, 0.0]);
    // Exactly at the bar stays.
    assert_close(&distribution(&min(1.0), &[0.0, 0.0], &[]), &[0.5, 0.5]);
}

#[test]
fn repetition_penalty_divides_positive_scores_and_multiplies_negative_ones() {
    let sampling = Sampling { repetition_penalty: 2.0, ..plain() };
    let sampler = Sampler::new(sampling).unwrap().with_prompt_length(2);
    // Tokens 0 and 1 stand in the prompt, 0 twice more in the answer: penalised once all the same.
    let found = sampler.distribution(&[2.0, -1.0, 0.5], &[0, 1, 0, 0]).unwrap();
    let weights = [1f64.exp(), (-2f64).exp(), 0.5f64.exp()];
    let total: f64 = weights.iter().sum();
    assert_close(&found, &weights.map(|w| w / total));
}

#[test]
fn presence_counts_once_frequency_each_time_and_neither_counts_the_prompt() {
    let sampling = Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, ..plain() };
    let context = [2, 2, 0, 1, 1, 1];
    let expect = |scores: [f64; 3], sampler: Sampler| {
        let weights = scores.map(f64::exp);
        let total: f64 = weights.iter().sum();
        let found = sampler.distribution(&[1.0, 1.0, 1.0], &context).unwrap();
        assert_close(&found, &weights.map(|w| w / total));
    };
    let sampler = Sampler::new(sampling).unwrap();
    // Prompt of two tokens: 0 was generated once, 1 three times, 2 never.
    expect([1.0 - 0.75, 1.0 - 1.25, 1.0], sampler.clone().with_prompt_length(2));
    // No prompt: 2 was generated twice.
    expect([1.0 - 0.75, 1.0 - 1.25, 1.0 - 1.0], sampler);
}

#[test]
fn logit_bias_adds_and_forbids() {
    let logits = logits_of(&[0.5, 0.25, 0.25]);
    let doubled = Sampling { logit_bias: vec![(1, 2f32.ln())], ..plain() };
    assert_close(&distribution(&doubled, &logits, &[]), &[0.4, 0.4, 0.2]);
    let forbidden = vec![(0, f32::NEG_INFINITY)];
    let sampling = Sampling { logit_bias: forbidden.clone(), ..plain() };
    assert_close(&distribution(&sampling, &logits, &[]), &[0.0, 0.5, 0.5]);
    let greedy = Sampling { logit_bias: forbidden, ..Sampling::default() };
    assert_close(&distribution(&greedy, &logits, &[]), &[0.0, 1.0, 0.0]);
}
