//! Whether counts may well come from a distribution.

/// The probability that a chi-square variable with `2a` degrees of freedom exceeds `2x`: the
/// regularised upper incomplete gamma function Q(a, x).
fn upper_gamma(a: f64, x: f64) -> f64 {
    let scale = (a * x.ln() - x - libm::lgamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for n in 1..10_000 {
            term *= x / (a + f64::from(n));
            sum += term;
        }
        return 1.0 - sum * scale;
    }
    // Lentz's continued fraction.
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for n in 1..10_000 {
        let n = f64::from(n);
        let step = n * (a - n);
        b += 2.0;
        d = 1.0 / (step * d + b);
        c = b + step / c;
        fraction *= c * d;
    }
    fraction * scale
}

/// How probable counts at least this far from `expected` probabilities are, if those are true.
pub(crate) fn p_value(counts: &[u32], expected: &[f64]) -> f64 {
    let draws = f64::from(counts.iter().sum::<u32>());
    let (mut statistic, mut cells) = (0.0, 0.0);
    let mut rare = (0.0, 0.0);
    for (&count, &p) in counts.iter().zip(expected) {
        if p == 0.0 && count > 0 {
            return 0.0; // impossible, and it happened
        }
        // The chi-square approximation wants at least five expected in a cell, so pool the rest.
        if p * draws < 5.0 {
            rare = (rare.0 + f64::from(count), rare.1 + p * draws);
        } else {
            statistic += (f64::from(count) - p * draws).powi(2) / (p * draws);
            cells += 1.0;
        }
    }
    if rare.1 >= 5.0 {
        statistic += (rare.0 - rare.1).powi(2) / rare.1;
        cells += 1.0;
    }
    assert!(cells > 1.0, "one cell can never be surprising");
    upper_gamma((cells - 1.0) / 2.0, statistic / 2.0)
}

#[test]
fn p_values_are_those_of_the_tables() {
    for (statistic, degrees, p) in
        [(3.841, 1.0, 0.05), (18.307, 10.0, 0.05), (29.588, 10.0, 0.001), (30.0, 40.0, 0.8752)]
    {
        let found: f64 = upper_gamma(degrees / 2.0, statistic / 2.0);
        assert!((found / p - 1.0).abs() < 2e-3, "{statistic} with {degrees}: {found}, table {p}");
    }
}
