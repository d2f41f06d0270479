//! Random matrices from a seed, the same on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Independent normal numbers with mean 0 and variance 1.
pub fn normal(seed: u64, count: usize) -> Vec<f64> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut generator = ChaCha8Rng::from_seed(key);
    // In (0, 1]: its logarithm is finite.
    let mut uniform = || ((generator.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    // Box and Muller 1958.
    let mut one = || {
        let radius = libm::sqrt(-2.0 * libm::log(uniform()));
        radius * libm::cos(std::f64::consts::TAU * uniform())
    };
    (0..count).map(|_| one()).collect()
}

/// A rotation (or reflection) drawn evenly from all there are: the rows of a normal matrix, each made
/// perpendicular to those before it and of length 1. Row-major `[dim][dim]`.
pub fn orthogonal(seed: u64, dim: usize) -> Vec<f64> {
    let mut matrix = normal(seed, dim * dim);
    for i in 0..dim {
        let (before, row) = matrix.split_at_mut(i * dim);
        let row = &mut row[..dim];
        // Twice: what rounding leaves of the first time is gone after the second.
        for earlier in before.chunks_exact(dim).chain(before.chunks_exact(dim)) {
            let along: f64 = earlier.iter().zip(&*row).map(|(a, b)| a * b).sum();
            row.iter_mut().zip(earlier).for_each(|(x, e)| *x -= along * e);
        }
        let length = libm::sqrt(row.iter().map(|x| x * x).sum());
        row.iter_mut().for_each(|x| *x /= length);
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_the_right_moments() {
        let numbers = normal(1, 100_000);
        let mean = |power: i32| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / 1e5;
        assert!(mean(1).abs() < 0.02 && (mean(2) - 1.0).abs() < 0.02, "{} {}", mean(1), mean(2));
        assert!(mean(3).abs() < 0.05 && (mean(4) - 3.0).abs() < 0.15, "{} {}", mean(3), mean(4));
        assert_ne!(numbers[..4], normal(2, 4));
    }

    #[test]
    fn rows_are_perpendicular_and_of_length_one() {
        for dim in [3, 32, 128] {
            let matrix = orthogonal(5, dim);
            for i in 0..dim {
                for j in 0..=i {
                    let dot: f64 =
                        (0..dim).map(|k| matrix[i * dim + k] * matrix[j * dim + k]).sum();
                    assert!((dot - f64::from(i == j)).abs() < 1e-12, "{dim}: {i} {j} {dot}");
                }
            }
        }
    }
}
