//! AWQ (Lin et al. 2023, arXiv 2306.00978): columns that meet large activations are made larger before weights
//! are rounded, and the activations smaller by as much.
//!
//! The product stays what it was; the rounding does not. A group's scale is set by its largest weight, so a column
//! that is twice as large loses half as much of itself, and its neighbours perhaps a little more. Which columns are
//! worth that, a text tells that is let through beforehand: `scale = (mean size of the column's activations)^a`, and
//! `a` is tried from 0, which changes nothing, to 1 (section 3.2 of the paper).

use super::calibration::{InOrder, Seen};
use super::format::Format;
use super::linear::{PackedLinear, check};
use super::memory::Memory;
use crate::kernels::Simd;
use crate::threads::Pool;
use naive_decode::{Error, Isa, Linear, Packing, Result};
use ndarray::{Array2, ArrayView1, ArrayView2};
use rayon::prelude::*;
use std::sync::Arc;

/// Exponents that are tried, from 0 to 1.
const TRIED: usize = 21;

/// A matrix whose columns were scaled before they were rounded.
pub struct Scaled {
    /// `[inputs]`: what activations are multiplied by, one over the columns' scales.
    inverse: Vec<f32>,
    inner: PackedLinear,
}

impl Scaled {
    /// Packs a row-major `[outputs][inputs]` matrix in the format given, with the scales that lose the least on
    /// what was seen.
    ///
    /// # Errors
    /// If the weights are not so many, something was seen of other inputs, the format cannot hold one, scaled or not, or
    /// there is no memory.
    ///
    /// # Panics
    /// If `memory` is not for the pool's threads.
    pub fn new(
        format: Format,
        mut weights: Vec<f32>,
        (outputs, inputs): (usize, usize),
        seen: &Seen,
        simd: Simd,
        pool: &Arc<Pool>,
        memory: &Memory,
    ) -> Result<Self> {
        check(format, &weights, outputs, inputs)?;
        if let Some(odd) = [&seen.sizes, &seen.squares].into_iter().find(|of| of.len() != inputs) {
            let what = "columns whose activations were seen";
            return Err(Error::invalid(what, odd.len(), format!("the matrix's {inputs}")));
        }
        let scales = best_scales(format, &weights, seen);
        for row in weights.chunks_exact_mut(inputs) {
            row.iter_mut().zip(&scales).for_each(|(weight, scale)| *weight *= scale);
        }
        let inner =
            PackedLinear::from_floats(format, &weights, outputs, inputs, simd, pool, memory)?;
        Ok(Scaled { inverse: scales.iter().map(|scale| 1.0 / scale).collect(), inner })
    }
}

/// The scales that lose the least.
fn best_scales(format: Format, weights: &[f32], seen: &Seen) -> Vec<f32> {
    let tried: Vec<Vec<f32>> =
        (0..TRIED).map(|i| scales(seen, i as f32 / (TRIED - 1) as f32)).collect();
    let loss = |scales: &Vec<f32>| match loss(format, weights, seen, scales) {
        // Infinity over infinity, say: of either sign, as the instruction set has it, and below or above all numbers by it.
        loss if loss.is_nan() => f64::INFINITY,
        loss => loss,
    };
    let losses: Vec<f64> = tried.par_iter().map(loss).collect();
    // The first of equals: no scaling, if nothing is gained by any.
    let best = (0..TRIED).min_by(|&a, &b| losses[a].total_cmp(&losses[b]));
    tried.into_iter().nth(best.unwrap_or(0)).expect("that many were tried")
}

// ANCHOR: awq
/// Each column's scale for one exponent. All are multiplied by what makes the largest and the smallest each
/// other's inverse: only their ratios matter.
fn scales(seen: &Seen, exponent: f32) -> Vec<f32> {
    let rows = seen.rows.max(1) as f32;
    // A column that met nothing gets no scale that is zero.
    let power = |size: &f32| libm::powf((size / rows).max(1e-4), exponent);
    let powers: Vec<f32> = seen.sizes.iter().map(power).collect();
    let most = powers.iter().fold(f32::MIN_POSITIVE, |most, power| most.max(*power));
    let least = powers.iter().fold(f32::MAX, |least, power| least.min(*power));
    let middle = (most * least).sqrt();
    powers.iter().map(|power| power / middle).collect()
}

/// How far outputs are off, squared and summed over outputs, if columns are taken for independent: each weight's
/// error squared, times the mean square of what it meets.
fn loss(format: Format, weights: &[f32], seen: &Seen, scales: &[f32]) -> f64 {
    let inputs = scales.len();
    let (mut stored, mut back) = (vec![0; format.row_bytes(inputs)], vec![0.0; inputs]);
    let mut loss = 0.0;
    for row in weights.chunks_exact(inputs) {
        let scaled: Vec<f32> = row.iter().zip(scales).map(|(w, scale)| w * scale).collect();
        format.encode(&scaled, &mut stored);
        format.decode(&stored, &mut back);
        for (column, (w, back)) in row.iter().zip(&back).enumerate() {
            let error = w - back / scales[column];
            loss += f64::from(error * error * seen.squares[column]);
        }
    }
    loss
}
// ANCHOR_END: awq

impl Linear for Scaled {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.inner.apply((&x * &ArrayView1::from(&self.inverse)).view())
    }

    fn inputs(&self) -> usize {
        self.inner.inputs()
    }

    fn outputs(&self) -> usize {
        self.inner.outputs()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + size_of_val(self.inverse.as_slice())
    }
}

/// Packs a model's matrices as [`Scaled`]. What was `seen` is of as many matrices, in the same order.
pub fn awq_packer(
    format: Format,
    seen: &[Seen],
    isa: Isa,
    pool: &Arc<Pool>,
) -> impl Packing + use<> {
    let (simd, pool, memory) = (Simd::within(isa), pool.clone(), Memory::new(pool.threads()));
    InOrder::new(seen.to_vec(), move |weights: Vec<f32>, outputs, inputs, seen: &Seen| {
        Scaled::new(format, weights, (outputs, inputs), seen, simd, &pool, &memory)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(count: usize) -> Vec<f32> {
        naive_decode::break_it::noise(3, count)
    }

    /// Most columns meet little, every sixteenth much.
    fn seen(inputs: usize) -> Seen {
        let sizes: Vec<f32> = (0..inputs).map(|i| if i % 16 == 5 { 80.0 } else { 2.0 }).collect();
        let squares = sizes.iter().map(|size| size * size / 8.0).collect();
        Seen { rows: 8, largest: sizes.clone(), sizes, squares }
    }

    #[test]
    fn columns_that_meet_much_are_made_larger_and_outputs_come_nearer() {
        let (outputs, inputs) = (48, 128);
        let (weights, seen) = (noise(outputs * inputs), seen(inputs));
        let scales = best_scales(Format::Q4_0, &weights, &seen);
        assert!(scales[5] > 1.2 * scales[6], "{} against {}", scales[5], scales[6]);
        let plain = loss(Format::Q4_0, &weights, &seen, &vec![1.0; inputs]);
        let scaled = loss(Format::Q4_0, &weights, &seen, &scales);
        assert!(scaled < 0.8 * plain, "{scaled} against {plain}");
    }

    #[test]
    fn what_comes_out_is_nearer_too() {
        let (outputs, inputs, rows) = (48, 128, 8);
        let (pool, memory) = (Pool::new(1), Memory::new(1));
        let (weights, seen, simd) =
            (noise(outputs * inputs), seen(inputs), Simd::within(Isa::best()));
        let mut x = Array2::from_shape_vec((rows, inputs), noise(rows * inputs)).unwrap();
        x.columns_mut().into_iter().skip(5).step_by(16).for_each(|mut column| column *= 40.0);
        let matrix = ArrayView2::from_shape((outputs, inputs), &weights).unwrap();
        let off = |found: Array2<f32>| (found - x.dot(&matrix.t())).mapv(|off| off * off).sum();
        let (format, size) = (Format::Q4_0, (outputs, inputs));
        let plain =
            PackedLinear::from_floats(format, &weights, outputs, inputs, simd, &pool, &memory);
        let scaled =
            Scaled::new(format, weights.clone(), size, &seen, simd, &pool, &memory).unwrap();
        let [plain, scaled] = [plain.unwrap().apply(x.view()), scaled.apply(x.view())].map(off);
        assert!(scaled < 0.8 * plain, "{scaled} against {plain}");
    }

    #[test]
    fn where_all_columns_meet_as_much_none_is_scaled() {
        let inputs = 64;
        let even = Seen {
            rows: 1,
            largest: vec![3.0; inputs],
            sizes: vec![3.0; inputs],
            squares: vec![9.0; inputs],
        };
        let best = best_scales(Format::Q4_0, &noise(16 * inputs), &even);
        for scales in [best, scales(&even, 0.5), scales(&even, 1.0)] {
            assert!(scales.iter().all(|scale| (scale - 1.0).abs() < 1e-6), "{scales:?}");
        }
    }

    #[test]
    fn scales_that_lose_what_is_no_number_are_not_the_best() {
        let inputs = 64;
        let weights = noise(16 * inputs);
        let mut seen = seen(inputs);
        seen.sizes[7] = f32::INFINITY;
        assert_eq!(best_scales(Format::Q4_0, &weights, &seen), vec![1.0; inputs]);
    }

    #[test]
    fn the_product_is_that_of_the_matrix() {
        let (outputs, inputs) = (20, 96);
        let (pool, memory) = (Pool::new(2), Memory::new(2));
        let (weights, simd) = (noise(outputs * inputs), Simd::within(Isa::best()));
        let x = Array2::from_shape_vec((3, inputs), noise(3 * inputs)).unwrap();
        let make = |seen: &Seen| {
            let size = (outputs, inputs);
            Scaled::new(Format::F32, weights.clone(), size, seen, simd, &pool, &memory)
        };
        let matrix = ArrayView2::from_shape((outputs, inputs), &weights).unwrap();
        // Not the first of equals, but what scaling by any scales must give.
        let found = make(&seen(inputs)).unwrap().apply(x.view());
        let off = found - x.dot(&matrix.t());
        assert!(off.iter().all(|off| off.abs() < 1e-4), "{off}");
        let said = make(&seen(inputs - 1)).err().unwrap().to_string();
        assert!(said.contains("95, expected the matrix's 96"), "{said}");
        let odd = Seen { squares: Vec::new(), ..seen(inputs) };
        let said = make(&odd).err().unwrap().to_string();
        assert!(said.contains("0, expected the matrix's 96"), "{said}");
    }
}
