//! Llama 3's stretched RoPE, which GGUF keeps as a tensor of divisors.
//!
//! Llama 3.1 divides slow frequencies by a factor, leaves fast ones, and blends between
//! (Grattafiori et al. 2024; the rule is in Hugging Face's `rope_type` "llama3"). llama.cpp's
//! conversion writes down what comes out of that rule, one divisor a frequency, and forgets the
//! rule. A config wants the rule, so here it is found again: its constants are the published ones,
//! and the divisors must agree.

use naive_decode::{Error, Result};
use serde_json::{Value, json};
use std::f64::consts::TAU;

/// The context before stretching, and how often a frequency turns in it where blending begins and
/// ends: the same in every Llama 3.
const TRAINED: f64 = 8_192.0;
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;

/// How far a divisor may be from the rule's, relative to it: they are kept in f32.
const TOLERANCE: f64 = 1e-4;

/// The `rope_scaling` of a config that makes `divisors` at the base `theta`; none if they stretch
/// nothing.
///
/// # Errors
/// If the divisors are not Llama 3's.
pub(super) fn scaling(file: &str, divisors: &[f32], theta: f64) -> Result<Option<Value>> {
    let factor = f64::from(divisors.iter().copied().fold(1.0, f32::max));
    let count = divisors.len() as f64;
    let follow_rule = divisors.iter().enumerate().all(|(j, &divisor)| {
        let turns = TRAINED * theta.powf(-(j as f64) / count) / TAU;
        let blend = ((turns - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        let expected = 1.0 / ((1.0 - blend) / factor + blend);
        (f64::from(divisor) - expected).abs() <= TOLERANCE * expected
    });
    if factor == 1.0 && divisors.iter().all(|&divisor| divisor == 1.0) {
        return Ok(None);
    }
    if !follow_rule {
        let problem = "tensor `rope_freqs.weight` holds divisors of RoPE's frequencies that are \
                       not those of Llama 3, expected its rule or no such tensor";
        return Err(Error::file(file, problem));
    }
    Ok(Some(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": TRAINED as u64,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule as Hugging Face states it, by wavelengths.
    fn divisors(factor: f64, theta: f64, head_dim: usize) -> Vec<f32> {
        let divisor = |j: usize| {
            let wavelength = TAU * theta.powf(2.0 * j as f64 / head_dim as f64);
            if wavelength < 8_192.0 / 4.0 {
                return 1.0;
            }
            if wavelength > 8_192.0 {
                return factor;
            }
            let smooth = (8_192.0 / wavelength - 1.0) / 3.0;
            1.0 / ((1.0 - smooth) / factor + smooth)
        };
        (0..head_dim / 2).map(|j| divisor(j) as f32).collect()
    }

    #[test]
    fn published_divisors_are_recognised() {
        for (factor, head_dim) in [(8.0, 128), (32.0, 64), (32.0, 128)] {
            let found = scaling("f", &divisors(factor, 5e5, head_dim), 5e5).unwrap().unwrap();
            assert_eq!(
                (&found["rope_type"], found["factor"].as_f64()),
                (&json!("llama3"), Some(factor))
            );
        }
        assert_eq!(scaling("f", &[1.0; 32], 5e5).unwrap(), None);
    }

    #[test]
    fn others_are_refused() {
        let good = divisors(8.0, 5e5, 128);
        assert!(scaling("f", &good, 1e4).is_err());
        for (at, to) in [(0, 1.5), (40, 1.0), (63, f32::NAN), (63, 0.0), (63, f32::INFINITY)] {
            let mut odd = good.clone();
            odd[at] = to;
            let said = scaling("file", &odd, 5e5).unwrap_err().to_string();
            assert!(said.contains("file") && said.contains("rope_freqs.weight"), "{said}");
        }
        assert!(scaling("f", &[0.5; 32], 5e5).is_err());
    }
}
