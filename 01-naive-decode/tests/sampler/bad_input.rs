//! Parameters and logits that are refused.

use super::plain;
use naive_decode::{Sampler, Sampling};

#[test]
fn parameters_out_of_range_are_named() {
    let nan = f32::NAN;
    let cases = [
        (Sampling { temperature: -1.0, ..plain() }, "temperature is -1"),
        (Sampling { temperature: nan, ..plain() }, "temperature is NaN"),
        (Sampling { temperature: f32::INFINITY, ..plain() }, "temperature is inf"),
        (Sampling { top_k: Some(0), ..plain() }, "top_k is 0"),
        (Sampling { top_p: 0.0, ..plain() }, "top_p is 0"),
        (Sampling { top_p: 1.5, ..plain() }, "top_p is 1.5"),
        (Sampling { top_p: nan, ..plain() }, "top_p is NaN"),
        (Sampling { min_p: -0.1, ..plain() }, "min_p is -0.1"),
        (Sampling { min_p: nan, ..plain() }, "min_p is NaN"),
        (Sampling { repetition_penalty: 0.0, ..plain() }, "repetition_penalty is 0"),
        (Sampling { repetition_penalty: nan, ..plain() }, "repetition_penalty is NaN"),
        // A score of 1 divided by it is infinite.
        (Sampling { repetition_penalty: 1e-39, ..plain() }, "repetition_penalty is 0.00"),
        (Sampling { repetition_penalty: 101.0, ..plain() }, "repetition_penalty is 101"),
        (Sampling { presence_penalty: nan, ..plain() }, "presence_penalty is NaN"),
        (Sampling { frequency_penalty: f32::INFINITY, ..plain() }, "frequency_penalty is inf"),
        (Sampling { logit_bias: vec![(7, nan)], ..plain() }, "logit_bias of token 7 is NaN"),
    ];
    for (sampling, begins) in cases {
        let message = Sampler::new(sampling).unwrap_err().to_string();
        assert!(message.starts_with(begins), "{message}");
        assert!(message.contains("expected "), "{message}");
    }
}

#[test]
fn logits_that_leave_no_choice_are_refused_not_a_panic() {
    let refuse = |sampling: &Sampling, logits: &[f32], context: &[u32], begins: &str| {
        let mut sampler = Sampler::new(sampling.clone()).unwrap();
        let message = sampler.sample(logits, context).unwrap_err().to_string();
        assert!(message.starts_with(begins), "{message}");
    };
    let penalised = Sampling { presence_penalty: 1.0, ..plain() };
    for sampling in [Sampling::default(), plain(), penalised.clone()] {
        refuse(&sampling, &[1.0, f32::NAN, 2.0], &[], "score of token 1 is NaN");
        refuse(&sampling, &[1.0, 0.0, f32::INFINITY], &[], "score of token 2 is inf");
        refuse(&sampling, &[f32::NEG_INFINITY; 3], &[], "number of tokens that may come next is 0");
        refuse(&sampling, &[], &[], "number of tokens that may come next is 0");
    }
    refuse(&penalised, &[1.0, 2.0], &[0, 5], "a token in the context is 5");
    let biased = Sampling { logit_bias: vec![(9, 1.0)], ..plain() };
    refuse(&biased, &[1.0, 2.0], &[], "a token in the logit_bias is 9");
}
