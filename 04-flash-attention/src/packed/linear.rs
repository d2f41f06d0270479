//! A packed matrix.

mod multiply;

use super::encode::encode_with_one_scale;
use super::format::{Format, Rows};
use super::memory::{Block, Memory};
use super::rows::panels_of;
use crate::kernels::activations::Scaling;
use crate::kernels::{MANY, Simd};
use crate::threads::Pool;
use naive_decode::numerics::LANES;
use naive_decode::{Error, Result};
use ndarray::Array2;
use std::ops::Range;
use std::sync::Arc;

/// A matrix in panels of sixteen outputs, each thread's in its own stretch of memory.
pub struct PackedLinear {
    format: Format,
    inputs: usize,
    outputs: usize,
    scaling: Scaling,
    simd: Simd,
    pool: Arc<Pool>,
    /// One for each thread of the pool: its panels, one after another.
    shares: Arc<[Block]>,
}

impl PackedLinear {
    /// Packs rows as they are stored.
    ///
    /// # Errors
    /// If there is no memory for them.
    ///
    /// # Panics
    /// If `memory` is for another number of threads than `pool` has.
    pub fn from_rows(rows: &Rows, simd: Simd, pool: &Arc<Pool>, memory: &Memory) -> Result<Self> {
        let row_bytes = rows.format.row_bytes(rows.inputs);
        let put = |outputs: Range<usize>, panel: &mut [u8]| {
            for (lane, output) in outputs.enumerate() {
                rows.format.put(&rows.bytes[output * row_bytes..][..row_bytes], lane, panel);
            }
        };
        Self::pack(rows.format, rows.outputs, rows.inputs, simd, pool, memory, &put)
    }

    /// Packs a row-major `[outputs][inputs]` matrix of floats in the format given.
    ///
    /// # Errors
    /// If the weights are not so many, the format cannot hold one, rows are too long for it, or there is no memory.
    ///
    /// # Panics
    /// As [`PackedLinear::from_rows`].
    pub fn from_floats(
        format: Format,
        weights: &[f32],
        outputs: usize,
        inputs: usize,
        simd: Simd,
        pool: &Arc<Pool>,
        memory: &Memory,
    ) -> Result<Self> {
        check(format, weights, outputs, inputs)?;
        let put = encoded(format, weights, inputs, |row, to| format.encode(row, to));
        Self::pack(format, outputs, inputs, simd, pool, memory, &put)
    }

    /// Packs a row-major `[outputs][inputs]` matrix as LLM.int8() has it ("vector-wise", Dettmers et al.
    /// 2022, section 3.1): INT8 with one scale for each output, and activations with one for each row.
    ///
    /// # Errors
    /// As [`PackedLinear::from_floats`].
    ///
    /// # Panics
    /// As [`PackedLinear::from_rows`].
    pub fn vector_wise(
        weights: &[f32],
        outputs: usize,
        inputs: usize,
        simd: Simd,
        pool: &Arc<Pool>,
        memory: &Memory,
    ) -> Result<Self> {
        check(Format::Q8_0, weights, outputs, inputs)?;
        let put = encoded(Format::Q8_0, weights, inputs, encode_with_one_scale);
        let packed = Self::pack(Format::Q8_0, outputs, inputs, simd, pool, memory, &put)?;
        Ok(PackedLinear { scaling: Scaling::Row, ..packed })
    }

    /// Packs whatever rows `put` puts into the panel of some outputs, each thread its own.
    fn pack(
        format: Format,
        outputs: usize,
        inputs: usize,
        simd: Simd,
        pool: &Arc<Pool>,
        memory: &Memory,
        put: &(dyn Fn(Range<usize>, &mut [u8]) + Sync),
    ) -> Result<Self> {
        let panel_bytes = format.panel_bytes(inputs);
        let threads = pool.threads();
        let take =
            |thread| memory.take(thread, panels_of(outputs, threads, thread).len() * panel_bytes);
        let mut shares = (0..threads).map(take).collect::<Result<Vec<Block>>>()?;
        pool.run_chunks(&mut shares, 1, &|thread, shares| {
            let panels = panels_of(outputs, threads, thread);
            for (panel, bytes) in panels.zip(shares[0].bytes_mut().chunks_exact_mut(panel_bytes)) {
                let rows = panel * LANES..outputs.min((panel + 1) * LANES);
                if rows.len() < LANES {
                    format.clear(bytes);
                }
                put(rows, bytes);
            }
        });
        Ok(Self::from_shares(format, outputs, inputs, simd, pool, shares.into()))
    }

    /// A matrix that was packed before: each thread's panels, which are [`share_bytes`] long.
    pub(super) fn from_shares(
        format: Format,
        outputs: usize,
        inputs: usize,
        simd: Simd,
        pool: &Arc<Pool>,
        shares: Arc<[Block]>,
    ) -> Self {
        let scaling = Scaling::Group;
        PackedLinear { format, scaling, inputs, outputs, simd, pool: pool.clone(), shares }
    }

    /// Each thread's panels, for whoever keeps them.
    pub(super) fn shares(&self) -> &Arc<[Block]> {
        &self.shares
    }

    /// What the weights are stored as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The weights of one output as they are stored.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn stored_row(&self, output: usize) -> Vec<u8> {
        assert!(output < self.outputs, "output {output} of {}", self.outputs);
        let (panel, lane) = (output / LANES, output % LANES);
        let thread = (0..self.shares.len())
            .find(|&thread| self.panels_of(thread).contains(&panel))
            .expect("every panel is somebody's");
        let bytes = self.format.panel_bytes(self.inputs);
        let panel =
            &self.shares[thread].bytes()[(panel - self.panels_of(thread).start) * bytes..][..bytes];
        let mut row = vec![0; self.format.row_bytes(self.inputs)];
        self.format.take(panel, lane, &mut row);
        row
    }

    /// The weights of one output.
    ///
    /// # Panics
    /// If there is no such output, or `to` is not as long as there are inputs.
    pub fn row(&self, output: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.inputs, "a weight for each input");
        self.format.decode(&self.stored_row(output), to);
    }

    /// The weights of some outputs, `[outputs][inputs]`; threads share out many.
    ///
    /// # Panics
    /// If there is no such output.
    pub(super) fn rows(&self, outputs: &[usize]) -> Array2<f32> {
        let mut rows = Array2::zeros((outputs.len(), self.inputs));
        let numbers = rows.as_slice_mut().expect("just made");
        self.pool.run_rows(numbers, self.inputs, MANY, &|mine, numbers| {
            for (&output, row) in outputs[mine].iter().zip(numbers.chunks_exact_mut(self.inputs)) {
                self.row(output, row);
            }
        });
        rows
    }

    fn panels_of(&self, thread: usize) -> Range<usize> {
        panels_of(self.outputs, self.shares.len(), thread)
    }
}

/// What puts rows of floats into a panel as `encode` stores them.
fn encoded(
    format: Format,
    weights: &[f32],
    inputs: usize,
    encode: impl Fn(&[f32], &mut [u8]) + Sync,
) -> impl Fn(Range<usize>, &mut [u8]) + Sync {
    move |outputs, panel| {
        let mut row = vec![0; format.row_bytes(inputs)];
        for (lane, output) in outputs.enumerate() {
            encode(&weights[output * inputs..][..inputs], &mut row);
            format.put(&row, lane, panel);
        }
    }
}

/// Bytes of a thread's panels of a matrix; none if no machine has so many.
pub(super) fn share_bytes(
    format: Format,
    outputs: usize,
    inputs: usize,
    threads: usize,
    thread: usize,
) -> Option<usize> {
    panels_of(outputs, threads, thread).len().checked_mul(format.panel_bytes(inputs))
}

pub(super) fn check(format: Format, weights: &[f32], outputs: usize, inputs: usize) -> Result<()> {
    let count = outputs.checked_mul(inputs).filter(|&count| count > 0);
    if count != Some(weights.len()) {
        let expected = format!("{outputs} outputs x {inputs} inputs, at least one of each");
        return Err(Error::invalid("weight count of a linear layer", weights.len(), expected));
    }
    format.check_inputs(inputs)?;
    format.check_weights(weights, inputs)
}
