//! Rotary position embedding (Su et al. 2021): a position is an angle.
//!
//! Each pair of numbers in a query or key is turned by an angle that grows with its position, so
//! that the dot product of a query and a key depends only on how far apart they are. Pairs are
//! `(j, j + head_dim / 2)`, as in the Hugging Face Llama.

use crate::error::{Error, Result};
use crate::kernels::{Isa, Kernel, Vector};
use std::sync::OnceLock;

/// Cosines and sines for every position up to a limit.
#[derive(Clone)]
pub struct Rope {
    frequencies: Vec<f64>,
    magnitude: f64,
    positions: usize,
    /// Pages of the table, in shelves of 1, 2, 4, … of them. Shelves and pages are made when a position
    /// on them is first asked for: a checkpoint may claim a context of millions that nobody uses.
    shelves: Vec<Shelf>,
}

type Shelf = OnceLock<Vec<OnceLock<Page>>>;

/// `[PAGE][2][half]`: the cosines of a position, then its sines.
type Page = Vec<f32>;

/// Positions to a page of the table.
const PAGE: usize = 256;

impl Rope {
    // ANCHOR: new
    /// RoPE as trained: pair `j` of `head_dim / 2` turns by `theta^(-2j / head_dim)` a position.
    pub fn new(theta: f64, head_dim: usize, positions: usize) -> Self {
        let frequencies =
            (0..head_dim / 2).map(|j| libm::pow(theta, -2.0 * j as f64 / head_dim as f64));
        Rope::with_frequencies(frequencies.collect(), 1.0, positions)
    }
    // ANCHOR_END: new

    /// RoPE with frequencies of one's own, one per pair, in radians a position.
    ///
    /// Context extension is a choice of these. `magnitude` multiplies every cosine and sine, and so
    /// scales queries and keys alike; it is 1 but in YaRN.
    pub fn with_frequencies(frequencies: Vec<f64>, magnitude: f64, positions: usize) -> Self {
        // Enough for every number that a position can be.
        let shelves = vec![OnceLock::new(); usize::BITS as usize];
        Rope { frequencies, magnitude, positions, shelves }
    }

    /// Radians a position, one per pair.
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// How many positions there are.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// The cosine of each pair at a position below [`Rope::positions`], and the sine of each.
    fn turns(&self, position: usize) -> (&[f32], &[f32]) {
        let first = position / PAGE * PAGE;
        // Shelf `n` has the pages from 2^n - 1 on.
        let number = position / PAGE + 1;
        let shelf = number.ilog2();
        let pages = self.shelves[shelf as usize].get_or_init(|| vec![OnceLock::new(); 1 << shelf]);
        let page = pages[number - (1 << shelf)].get_or_init(|| {
            let turns = |position: usize| {
                // The `libm` crate rather than the platform's: the same table on every system.
                let turn = |frequency: &f64| libm::sincos(position as f64 * frequency);
                let (sines, cosines): (Vec<_>, Vec<_>) = self.frequencies.iter().map(turn).unzip();
                cosines.into_iter().chain(sines).map(|part| (part * self.magnitude) as f32)
            };
            (first..first + PAGE).flat_map(turns).collect()
        });
        let half = self.frequencies.len();
        page[(position - first) * 2 * half..][..2 * half].split_at(half)
    }

    /// Refuses positions that [`Rope::rotate`] would refuse.
    ///
    /// # Errors
    /// If one lies past the table.
    pub fn check(&self, positions: &[usize]) -> Result<()> {
        match positions.iter().find(|&&position| position >= self.positions()) {
            None => Ok(()),
            Some(&position) => Err(Error::Capacity {
                what: "the model's context".into(),
                capacity: self.positions(),
                asked: position.saturating_add(1),
            }),
        }
    }

    /// Turns every head of one row in place; `heads` is `[heads][head_dim]`.
    ///
    /// # Errors
    /// If the position lies past the table.
    pub fn rotate(&self, heads: &mut [f32], position: usize) -> Result<()> {
        self.rotate_with(Isa::SCALAR, heads, position)
    }

    /// As [`Rope::rotate`], with an instruction set's registers. The numbers are the same.
    ///
    /// # Errors
    /// As [`Rope::rotate`].
    pub fn rotate_with(&self, isa: Isa, heads: &mut [f32], position: usize) -> Result<()> {
        self.check(&[position])?;
        let (cosines, sines) = self.turns(position);
        isa.run(Rotate { heads, cosines, sines });
        Ok(())
    }
}

struct Rotate<'a> {
    heads: &'a mut [f32],
    cosines: &'a [f32],
    sines: &'a [f32],
}

impl Kernel for Rotate<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        turn(self.heads, self.cosines, self.sines);
    }
}

// ANCHOR: rotate
/// Turns every head of one row, `[heads][head_dim]`: pair `j` by an angle of which the cosine and the sine are given.
#[inline(always)]
fn turn(heads: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let half = cosines.len();
    for head in heads.chunks_exact_mut(2 * half) {
        let (low, high) = head.split_at_mut(half);
        let pairs = low.iter_mut().zip(high).zip(cosines.iter().zip(sines));
        for ((a, b), (cosine, sine)) in pairs {
            (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
        }
    }
}
// ANCHOR_END: rotate

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn only_the_distance_matters() {
        let rope = Rope::new(10_000.0, 8, 200);
        let q = [0.3, -0.8, 0.5, 0.1, 0.9, -0.2, 0.4, 0.7];
        let k = [0.6, 0.2, -0.5, 0.8, -0.1, 0.3, 0.7, -0.9];
        let at = |position_q, position_k| {
            let (mut q, mut k) = (q, k);
            rope.rotate(&mut q, position_q).unwrap();
            rope.rotate(&mut k, position_k).unwrap();
            dot(&q, &k)
        };
        assert!((at(17, 5) - at(112, 100)).abs() < 1e-5);
        assert!((at(17, 5) - at(17, 6)).abs() > 1e-2, "and it does matter");
    }

    #[test]
    fn every_instruction_set_turns_alike() {
        let rope = Rope::with_frequencies(vec![0.3, 1.1, 0.02, 2.5, 0.7], 1.25, 32);
        let row: Vec<f32> = (0..30).map(|i| (i as f32 * 0.37).sin()).collect();
        let turned = |isa, position| {
            let mut row = row.clone();
            rope.rotate_with(isa, &mut row, position).unwrap();
            row
        };
        for position in [0, 1, 31] {
            let mut expected = row.clone();
            rope.rotate(&mut expected, position).unwrap();
            for isa in Isa::available() {
                assert_eq!(turned(isa, position), expected, "{isa:?} at {position}");
            }
        }
    }

    #[test]
    fn position_zero_is_no_turn_and_lengths_are_kept() {
        let rope = Rope::new(10_000.0, 4, 64);
        let mut head = [1.0, 2.0, 3.0, 4.0];
        rope.rotate(&mut head, 0).unwrap();
        assert_eq!(head, [1.0, 2.0, 3.0, 4.0]);
        rope.rotate(&mut head, 63).unwrap();
        assert!((dot(&head, &head) - 30.0).abs() < 1e-4);
    }

    #[test]
    fn every_position_has_its_own_turn_however_many_are_claimed() {
        let rope = Rope::new(10_000.0, 2, usize::MAX);
        assert_eq!(rope.positions(), usize::MAX);
        for position in [0, 1, PAGE - 1, PAGE, 3 * PAGE - 1, 3 * PAGE, 7 * PAGE + 5, 100_000] {
            let mut head = [1.0, 0.0];
            rope.rotate(&mut head, position).unwrap();
            let (sine, cosine) = libm::sincos(position as f64);
            assert_eq!(head, [cosine as f32, sine as f32], "{position}");
        }
        let made: usize = rope.shelves.iter().filter_map(OnceLock::get).map(Vec::len).sum();
        assert!(made < 1_024, "{made} pages have a place");
    }

    #[test]
    fn a_position_past_the_table_is_an_error() {
        let error = Rope::new(10_000.0, 4, 64).rotate(&mut [0.0; 4], 64).unwrap_err();
        assert_eq!(error.to_string(), "the model's context holds 64 tokens; 65 were asked for");
        Rope::new(10_000.0, 4, 64).rotate(&mut [0.0; 4], usize::MAX).unwrap_err();
    }
}
