//! The best few numbers to stand for all that a random rotation makes.

use naive_decode::{Error, Result};

/// A scalar codebook for the coordinates of random unit vectors.
///
/// One coordinate of a unit vector of `dim` numbers that points anywhere, equally likely, has density
/// proportional to `(1 - x²)^((dim - 3) / 2)` (TurboQuant, Zandieh et al. 2025, arXiv 2504.19874,
/// lemma 1). The codebook with the least mean squared error is found by the Lloyd-Max iteration: each
/// number goes to its nearest centroid, each centroid to the mean of its numbers, until nothing moves.
#[derive(Debug, Clone, PartialEq)]
pub struct Codebook {
    /// `[2^bits]`, ascending.
    centroids: Vec<f32>,
    /// `[2^bits - 1]`, halfway between neighbours.
    boundaries: Vec<f32>,
    distortion: f64,
}

/// Steps in which the density is added up.
const STEPS: usize = 1 << 13;

/// Standard deviations to either side that the steps cover: past them nothing is left to add.
const REACH: f64 = 10.0;

/// The iteration gains ever less; this many rounds are far more than it needs at eight bits or fewer.
const ROUNDS: usize = 3_000;

impl Codebook {
    /// The codebook of `2^bits` numbers for unit vectors of `dim` numbers.
    ///
    /// # Errors
    /// If there are fewer than 3 dimensions, or not between 1 and 8 bits.
    pub fn lloyd_max(dim: usize, bits: usize) -> Result<Self> {
        if dim < 3 {
            return Err(Error::invalid("width to rotate", dim, "at least 3"));
        }
        if !(1..=8).contains(&bits) {
            return Err(Error::invalid("bits of a codebook", bits, "between 1 and 8"));
        }
        let sums = Sums::new(dim);
        let count = 1 << bits;
        // Begin where the numbers lie, in equal steps over four standard deviations.
        let deviation = 1.0 / (dim as f64).sqrt();
        let place = |i: usize| (2 * i + 1) as f64 / count as f64 - 1.0;
        let mut centroids: Vec<f64> = (0..count).map(|i| 2.0 * deviation * place(i)).collect();
        // ANCHOR: lloyd
        for _ in 0..ROUNDS {
            let between = boundaries(&centroids);
            let lower = std::iter::once(-1.0).chain(between.iter().copied());
            let upper = between.iter().copied().chain(std::iter::once(1.0));
            let means: Vec<f64> = lower.zip(upper).map(|(a, b)| sums.mean(a, b)).collect();
            let moved =
                means.iter().zip(&centroids).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            centroids = means;
            if moved < 1e-7 * deviation {
                break;
            }
        }
        // ANCHOR_END: lloyd
        let distortion = dim as f64 * sums.squared_error(&centroids);
        let boundaries = boundaries(&centroids);
        let narrow = |numbers: Vec<f64>| numbers.into_iter().map(|x| x as f32).collect();
        Ok(Codebook { centroids: narrow(centroids), boundaries: narrow(boundaries), distortion })
    }

    /// The numbers, `[2^bits]`, ascending.
    pub fn centroids(&self) -> &[f32] {
        &self.centroids
    }

    /// Mean squared error of a whole unit vector: the paper's distortion (theorem 1).
    pub fn distortion(&self) -> f64 {
        self.distortion
    }

    /// The code of the nearest centroid.
    pub fn nearest(&self, x: f32) -> u8 {
        self.boundaries.partition_point(|&boundary| boundary < x) as u8
    }
}

/// Halfway between neighbours.
fn boundaries(centroids: &[f64]) -> Vec<f64> {
    centroids.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect()
}

/// Running sums of the density, and of the density times x, over even steps.
struct Sums {
    reach: f64,
    /// `[STEPS + 1]` of (density, density · x), the density adding up to 1.
    sums: Vec<(f64, f64)>,
    /// Mean of x².
    square: f64,
}

impl Sums {
    fn new(dim: usize) -> Self {
        let reach = (REACH / (dim as f64).sqrt()).min(1.0);
        let middle = |i: usize| ((i as f64 + 0.5) / STEPS as f64 * 2.0 - 1.0) * reach;
        let density = |x: f64| libm::pow(1.0 - x * x, (dim as f64 - 3.0) / 2.0);
        let total: f64 = (0..STEPS).map(|i| density(middle(i))).sum();
        let (mut sums, mut sum, mut square) = (vec![(0.0, 0.0)], (0.0, 0.0), 0.0);
        for x in (0..STEPS).map(middle) {
            let weight = density(x) / total;
            sum = (sum.0 + weight, sum.1 + weight * x);
            square += weight * x * x;
            sums.push(sum);
        }
        Sums { reach, sums, square }
    }

    /// Both sums up to `x`, in between steps along a straight line.
    fn until(&self, x: f64) -> (f64, f64) {
        let at = ((x / self.reach + 1.0) / 2.0).clamp(0.0, 1.0) * STEPS as f64;
        let step = (at as usize).min(STEPS - 1);
        let ((w0, x0), (w1, x1)) = (self.sums[step], self.sums[step + 1]);
        let part = at - step as f64;
        (w0 + part * (w1 - w0), x0 + part * (x1 - x0))
    }

    /// Mean of what lies between `a` and `b`; halfway between them if nothing does.
    fn mean(&self, a: f64, b: f64) -> f64 {
        let ((w0, x0), (w1, x1)) = (self.until(a), self.until(b));
        if w1 - w0 > 1e-300 { (x1 - x0) / (w1 - w0) } else { (a + b) / 2.0 }
    }

    /// Mean of (x - its centroid)², centroids being the means of their cells: what is left of the mean
    /// of x² once theirs is taken off.
    fn squared_error(&self, centroids: &[f64]) -> f64 {
        let between = boundaries(centroids);
        let lower = std::iter::once(-1.0).chain(between.iter().copied());
        let upper = between.iter().copied().chain(std::iter::once(1.0));
        let taken = lower.zip(upper).zip(centroids).map(|((a, b), c)| {
            let ((w0, x0), (w1, x1)) = (self.until(a), self.until(b));
            2.0 * c * (x1 - x0) - c * c * (w1 - w0)
        });
        self.square - taken.sum::<f64>()
    }
}
