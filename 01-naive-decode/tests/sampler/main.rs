//! The sampler against exact distributions: worked out by hand, computed by a slow reference, and
//! compared with tens of thousands of draws.

mod bad_input;
mod chi_square;
mod draws;
mod each_step;
mod invariants;
mod order;

use naive_decode::{Sampler, Sampling};

/// Sampling at temperature 1 with everything else off.
fn plain() -> Sampling {
    Sampling { temperature: 1.0, ..Sampling::default() }
}

fn distribution(sampling: &Sampling, logits: &[f32], context: &[u32]) -> Vec<f32> {
    Sampler::new(sampling.clone()).unwrap().distribution(logits, context).unwrap()
}

/// Logits whose softmax is exactly what is given, as far as f32 goes.
fn logits_of(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}

fn assert_close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (id, (&f, &e)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(f) - e).abs() < 1e-6, "token {id}: {found:?}, expected {expected:?}");
        assert_eq!(f == 0.0, e == 0.0, "token {id}: {found:?}, expected {expected:?}");
    }
}
