//! Heads in the kernels' sizes.
//!
//! The kernels have heads of 64 or 128 elements. A narrower head becomes one of those, with zeros between: a score is the
//! same sum with some zeros added, and what comes of the zeros of a value meets zeros of the output's matrix. RoPE turns
//! element i with element i + head_dim / 2, in the kernels as in the model. So each half of a head goes to the beginning of
//! a half of the wider one. What it costs is memory of keys and values, and time.

use naive_decode::{Error, Result};

/// From a model's heads to the kernels'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heads {
    /// Elements of a head in the model; even.
    pub(crate) narrow: usize,
    /// Elements of a head in the kernels.
    pub(crate) wide: usize,
}

impl Heads {
    /// The kernels' heads for a model's.
    ///
    /// # Errors
    /// If they are wider than the kernels' widest, or odd.
    pub(crate) fn of(head_dim: usize) -> Result<Self> {
        let wide = [64, 128].into_iter().find(|&wide| head_dim <= wide);
        match wide.filter(|_| head_dim > 0 && head_dim.is_multiple_of(2)) {
            Some(wide) => Ok(Heads { narrow: head_dim, wide }),
            None => Err(Error::invalid("head_dim for CUDA", head_dim, "an even number up to 128")),
        }
    }

    /// Where an element of a row of narrow heads goes in a row of wide ones.
    fn place(self, element: usize) -> usize {
        let (head, within, half) = (element / self.narrow, element % self.narrow, self.narrow / 2);
        head * self.wide + within / half * (self.wide / 2) + within % half
    }

    /// A matrix whose outputs are heads, `[heads * narrow][inputs]`: `[heads * wide][inputs]`.
    pub(crate) fn outputs(self, matrix: Vec<f32>, inputs: usize) -> Vec<f32> {
        if self.narrow == self.wide {
            return matrix;
        }
        let mut wide = vec![0.0; matrix.len() / self.narrow * self.wide];
        for (output, row) in matrix.chunks(inputs).enumerate() {
            wide[self.place(output) * inputs..][..inputs].copy_from_slice(row);
        }
        wide
    }

    /// A matrix whose inputs are heads, `[outputs][heads * narrow]`: `[outputs][heads * wide]`.
    pub(crate) fn inputs(self, matrix: Vec<f32>, heads: usize) -> Vec<f32> {
        if self.narrow == self.wide {
            return matrix;
        }
        let mut wide = vec![0.0; matrix.len() / self.narrow * self.wide];
        let rows = matrix.chunks(heads * self.narrow).zip(wide.chunks_mut(heads * self.wide));
        for (row, wide) in rows {
            for (input, &number) in row.iter().enumerate() {
                wide[self.place(input)] = number;
            }
        }
        wide
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_narrow_head_begin_the_halves_of_a_wide_one() {
        let heads = Heads::of(6).unwrap();
        assert_eq!(heads, Heads { narrow: 6, wide: 64 });
        let places = [0, 2, 3, 5, 6, 9].map(|element| heads.place(element));
        assert_eq!(places, [0, 2, 32, 34, 64, 96]);
        // One input, two heads.
        let matrix: Vec<f32> = (1..=12).map(|x| x as f32).collect();
        let wide = heads.outputs(matrix.clone(), 1);
        assert_eq!((wide.len(), wide[34], wide[64], wide[98]), (128, 6.0, 7.0, 12.0));
        assert_eq!(wide.iter().filter(|&&x| x != 0.0).count(), 12);
        assert_eq!(heads.inputs(matrix, 2), wide, "one output");
        assert_eq!(Heads::of(128).unwrap().outputs(vec![1.0; 128], 1), [1.0; 128]);
        assert_eq!(Heads::of(66).unwrap().wide, 128);
        assert!(Heads::of(130).is_err() && Heads::of(7).is_err() && Heads::of(0).is_err());
    }
}
