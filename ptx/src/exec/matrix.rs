//! `ldmatrix`, `stmatrix` and `mma.sync`: matrices spread over the registers of a warp.

use super::Lanes;
use super::block::Block;
use super::float;
use super::warp::Warp;
use crate::error::Problem;
use crate::isa::{Address, Element, Mma, Operand, Reg, Type};

/// Rows of an 8x8 matrix of 2-byte elements.
const ROWS: usize = 8;

impl<'a> Block<'a> {
    /// Addresses of the eight rows of matrix `index`: lanes `8 * index` and on give them.
    fn rows(
        &mut self,
        addresses: &Lanes,
        index: usize,
        writes: bool,
    ) -> Result<[usize; ROWS], Problem> {
        let mut rows = [0; ROWS];
        let mut listed = Vec::with_capacity(ROWS);
        for (row, slot) in rows.iter_mut().enumerate() {
            let lane = index * ROWS + row;
            *slot =
                self.shared.place(addresses[lane], 16, 16).map_err(|problem| problem.at(lane))?;
            listed.push((lane as u32, *slot as u32));
        }
        self.shared.count_matrix(&mut self.counts, &listed, writes);
        Ok(rows)
    }

    pub(super) fn load_matrix(
        &mut self,
        warp: &mut Warp<'a>,
        transposed: bool,
        dst: &[Reg],
        from: &Address,
    ) -> Result<(), Problem> {
        let addresses = self.matrix_addresses(warp, from);
        // All matrices are read before a register is written: the address may be one of them.
        let mut found = [[0; 32]; 4];
        for (index, lanes) in found.iter_mut().enumerate().take(dst.len()) {
            let rows = self.rows(&addresses, index, false)?;
            for (row, at) in rows.iter().enumerate() {
                let read = self.shared.shadow.read(*at, 16, warp.agent());
                read.map_err(|problem| problem.at(index * ROWS + row))?;
            }
            for (lane, slot) in lanes.iter_mut().enumerate() {
                *slot = (0..2).fold(0, |value, half| {
                    let (row, column) = place(lane, half, transposed);
                    value | self.shared.peek(rows[row] + 2 * column, 2) << (16 * half)
                });
            }
        }
        for (dst, lanes) in dst.iter().zip(&found) {
            warp.put(*dst, u32::MAX, lanes);
        }
        Ok(())
    }

    pub(super) fn store_matrix(
        &mut self,
        warp: &mut Warp<'a>,
        transposed: bool,
        src: &[Operand],
        to: &Address,
    ) -> Result<(), Problem> {
        let addresses = self.matrix_addresses(warp, to);
        for (index, src) in src.iter().enumerate() {
            let values = warp.value(*src, &self.grid);
            let rows = self.rows(&addresses, index, true)?;
            for (lane, value) in values.iter().enumerate() {
                for half in 0..2 {
                    let (row, column) = place(lane, half, transposed);
                    let value = value >> (16 * half) & 0xffff;
                    let stored = self.shared.store(rows[row] + 2 * column, 2, value, warp.agent());
                    stored.map_err(|problem| problem.at(index * ROWS + row))?;
                }
            }
        }
        Ok(())
    }

    /// Addresses in shared memory; generic ones are brought there.
    fn matrix_addresses(&self, warp: &Warp<'a>, address: &Address) -> Lanes {
        warp.addresses(address, &self.grid).map(super::in_shared)
    }

    pub(super) fn mma(&mut self, warp: &mut Warp<'a>, mma: &Mma) {
        let (k, each) = (mma.k, mma.a_type.bytes());
        self.counts.tensor_flops += 2 * 16 * 8 * k as u64;
        let read = |operands: &[Operand]| -> Vec<Lanes> {
            operands.iter().map(|operand| warp.value(*operand, &self.grid)).collect()
        };
        let (a, b, c) = (read(&mma.a), read(&mma.b), read(&mma.c));
        let per_word = 4 / each;
        // A: [16][k], B: [8][k]: both with k innermost, as the product wants them.
        let (mut left, mut right) = ([0f64; 16 * 32], [0f64; 8 * 32]);
        for lane in 0..32 {
            let (group, place) = (lane / 4, lane % 4);
            for (word, values) in a.iter().enumerate() {
                let row = group + 8 * (word & 1);
                let first = (place + 4 * (word >> 1)) * per_word;
                for part in 0..per_word {
                    left[row * k + first + part] =
                        element(mma.a_type, values[lane] >> (8 * each * part));
                }
            }
            for (word, values) in b.iter().enumerate() {
                let first = (place + 4 * word) * per_word;
                for part in 0..per_word {
                    right[group * k + first + part] =
                        element(mma.b_type, values[lane] >> (8 * each * part));
                }
            }
        }
        let mut d = vec![[0; 32]; mma.d.len()];
        for lane in 0..32 {
            for index in 0..4 {
                let (row, column) = (lane / 4 + 8 * (index >> 1), lane % 4 * 2 + (index & 1));
                let x = &left[row * k..][..k];
                let y = &right[column * k..][..k];
                let product: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
                accumulate(mma.d_type, mma.saturate, &c, &mut d, lane, index, product);
            }
        }
        for (dst, lanes) in mma.d.iter().zip(&d) {
            warp.put(*dst, u32::MAX, lanes);
        }
    }
}

/// Which element of an 8x8 matrix is half `half` of a lane's register.
fn place(lane: usize, half: usize, transposed: bool) -> (usize, usize) {
    let (row, column) = (lane / 4, lane % 4 * 2 + half);
    if transposed { (column, row) } else { (row, column) }
}

/// An element's value from the lower bits of a word.
pub(crate) fn element(ty: Element, bits: u64) -> f64 {
    match ty {
        Element::F16 => float::from_half(Type::F16, bits as u16).into(),
        Element::BF16 => float::from_half(Type::BF16, bits as u16).into(),
        // The lower 13 bits do not take part.
        Element::TF32 => f32::from_bits(bits as u32 & !0x1fff).into(),
        Element::E4M3 => float::from_eight(Type::E4M3, bits as u8).into(),
        Element::E5M2 => float::from_eight(Type::E5M2, bits as u8).into(),
        Element::S8 => f64::from(bits as u8 as i8),
        Element::U8 => f64::from(bits as u8),
    }
}

/// `d = c + product` for element `index` of a lane's accumulators.
///
/// Devices differ in how they round inside of a product. Here the sum of the products is taken in double precision, in
/// which each product of two elements is exact, and rounded once with the accumulator.
pub(crate) fn accumulate(
    ty: Type,
    saturate: bool,
    c: &[Lanes],
    d: &mut [Lanes],
    lane: usize,
    index: usize,
    product: f64,
) {
    match ty {
        Type::S32 => {
            let sum = i64::from(c[index][lane] as u32 as i32) + product as i64;
            let sum = if saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
            d[index][lane] = u64::from(sum as u32);
        }
        Type::F16 => {
            let (word, shift) = (index / 2, 16 * (index % 2));
            let old = float::from_half(Type::F16, (c[word][lane] >> shift) as u16);
            let sum = float::to_half(Type::F16, f64::from(old) + product);
            d[word][lane] |= u64::from(sum) << shift;
        }
        _ => {
            let old = f64::from(float::single(c[index][lane]));
            d[index][lane] = float::bits((old + product) as f32);
        }
    }
}
