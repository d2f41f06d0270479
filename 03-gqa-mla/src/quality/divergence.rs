//! Probabilities from logits, and how far apart two predictions are. In double precision and with one
//! library's functions, so that figures are the same everywhere.

/// Natural logarithms of the softmax of a row of logits.
pub(super) fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let highest = logits.iter().fold(f64::NEG_INFINITY, |high, &l| high.max(f64::from(l)));
    let total: f64 = logits.iter().map(|&l| libm::exp(f64::from(l) - highest)).sum();
    let normalizer = highest + libm::log(total);
    logits.iter().map(|&l| f64::from(l) - normalizer).collect()
}

/// Kullback-Leibler divergence `Σ p · (ln p - ln q)` in nats, from logarithms: what it costs to expect
/// `q` where `p` is true. Zero if they are the same, and never below but for rounding.
pub fn divergence(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).map(|(p, q)| libm::exp(*p) * (p - q)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergences_of_coins() {
        let coin = |heads: f32| log_probabilities(&[heads.ln() + 3.0, (1.0 - heads).ln() + 3.0]);
        let (fair, loaded) = (coin(0.5), coin(0.75));
        assert!((fair[0] - 0.5f64.ln()).abs() < 1e-7);
        assert_eq!(divergence(&fair, &fair), 0.0);
        // 0.5 ln(0.5/0.75) + 0.5 ln(0.5/0.25)
        assert!((divergence(&fair, &loaded) - 0.143_841).abs() < 1e-6);
        // 0.75 ln(0.75/0.5) + 0.25 ln(0.25/0.5)
        assert!((divergence(&loaded, &fair) - 0.130_812).abs() < 1e-6);
        let giants = log_probabilities(&[-1e30, 3e38]);
        assert_eq!(giants[1], 0.0);
    }
}
