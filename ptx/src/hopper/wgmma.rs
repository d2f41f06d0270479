//! `wgmma.mma_async`: products that a warp group starts and waits for.
//!
//! Each warp of the group computes its own 16 of the 64 rows. A product is computed when its group is waited for: until
//! then the accumulators hold what they held, and whoever reads or writes them, or writes the shared memory that the
//! product reads, is stopped.

use std::collections::VecDeque;

use super::tensor_map::Swizzle;
use crate::error::{FaultKind, Problem};
use crate::exec::{self, Block, Lanes, Warp};
use crate::isa::{Instruction, Op, Operand, Reg, Wgmma, WgmmaA};
use crate::kernel::Kernel;

/// Rows that one warp computes.
const ROWS: usize = 16;

/// A product that has been started.
struct Product<'k> {
    wgmma: &'k Wgmma,
    a: Option<Matrix>,
    b: Matrix,
    accumulate: bool,
    /// 16-byte chunks of shared memory that it reads.
    chunks: Vec<u32>,
}

/// A warp's products under way.
#[derive(Default)]
pub(crate) struct Products<'k> {
    open: Vec<Product<'k>>,
    groups: VecDeque<Vec<Product<'k>>>,
    /// Registers that products under way will write, and those that they read: how many products each.
    written: Vec<(Reg, u32)>,
    read: Vec<(Reg, u32)>,
}

fn add(list: &mut Vec<(Reg, u32)>, reg: Reg) {
    match list.binary_search_by_key(&reg, |(reg, _)| *reg) {
        Ok(at) => list[at].1 += 1,
        Err(at) => list.insert(at, (reg, 1)),
    }
}

fn remove(list: &mut Vec<(Reg, u32)>, reg: Reg) {
    if let Ok(at) = list.binary_search_by_key(&reg, |(reg, _)| *reg) {
        list[at].1 -= 1;
        if list[at].1 == 0 {
            list.remove(at);
        }
    }
}

fn has(list: &[(Reg, u32)], reg: Reg) -> bool {
    list.binary_search_by_key(&reg, |(reg, _)| *reg).is_ok()
}

impl<'k> Products<'k> {
    /// Whether there is anything under way.
    pub(crate) fn any(&self) -> bool {
        !self.written.is_empty()
    }

    pub(crate) fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// That an instruction leaves alone what products under way have hold of.
    pub(crate) fn check(&self, instruction: &Instruction, kernel: &Kernel) -> Result<(), Problem> {
        let name = |reg: Reg| &kernel.registers[reg.0 as usize].name;
        let refuse = |what: String| Err(Problem::new(FaultKind::InFlight, what));
        // Products may follow one another into the same accumulators.
        let accumulators = if let Op::Wgmma(wgmma) = &instruction.op { &wgmma.d[..] } else { &[] };
        for reg in instruction.reads.iter().filter(|reg| !accumulators.contains(reg)) {
            if has(&self.written, *reg) {
                return refuse(format!(
                    "reads {}, which a wgmma under way will write: wait for its group first",
                    name(*reg)
                ));
            }
        }
        for reg in instruction.writes.iter() {
            if has(&self.written, *reg) && !accumulators.contains(reg) {
                return refuse(format!(
                    "writes {}, which a wgmma under way will write: wait for its group first",
                    name(*reg)
                ));
            }
            if has(&self.read, *reg) {
                return refuse(format!(
                    "writes {}, which a wgmma under way still reads: wait for its group first",
                    name(*reg)
                ));
            }
        }
        Ok(())
    }
}

/// A matrix in shared memory, as a descriptor says.
#[derive(Debug, Clone, Copy)]
struct Matrix {
    start: usize,
    leading: usize,
    stride: usize,
    swizzle: Swizzle,
    /// Rows are along k: `false`. Columns are: `true`.
    transposed: bool,
    element: usize,
}

impl Matrix {
    fn new(descriptor: u64, transposed: bool, element: usize) -> Result<Self, Problem> {
        let field = |shift: u32| (descriptor >> shift & 0x3fff) as usize * 16;
        if descriptor >> 49 & 7 != 0 {
            return Err(Problem::invalid(
                "the interpreter knows matrices with a base offset of 0 alone",
            ));
        }
        let swizzle = match descriptor >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::Bytes128,
            2 => Swizzle::Bytes64,
            _ => Swizzle::Bytes32,
        };
        Ok(Self {
            start: field(0),
            leading: field(16),
            stride: field(32),
            swizzle,
            transposed,
            element,
        })
    }

    /// Where element (`row`, `k`) lies; rows are those of A, or the columns of B.
    fn place(&self, row: usize, k: usize) -> usize {
        let Self { start, leading, stride, element, .. } = *self;
        let linear = match (self.swizzle.span(), self.transposed) {
            // Rows of `span` bytes along k, in groups of eight.
            (Some(span), false) => start + row / 8 * stride + row % 8 * span as usize + k * element,
            // Core matrices of eight rows of 16 bytes.
            (None, false) => {
                let byte = k * element;
                start + row / 8 * stride + row % 8 * 16 + byte / 16 * leading + byte % 16
            }
            // Rows of `span` bytes along the other dimension, one for each k, in groups of eight.
            (Some(span), true) => {
                let per = span as usize / element;
                start
                    + row / per * leading
                    + k / 8 * stride
                    + k % 8 * span as usize
                    + row % per * element
            }
            (None, true) => {
                start + row / 8 * stride + k / 8 * leading + k % 8 * 16 + row % 8 * element
            }
        };
        self.swizzle.apply(linear)
    }

    /// The 16-byte chunks of rows `first` and on.
    fn chunks(&self, first: usize, rows: usize, k: usize, found: &mut Vec<u32>) {
        for row in first..first + rows {
            for k in 0..k {
                found.push((self.place(row, k) / 16) as u32);
            }
        }
    }
}

impl<'a> Block<'a> {
    pub(crate) fn wgmma(&mut self, warp: &mut Warp<'a>, wgmma: &'a Wgmma) -> Result<(), Problem> {
        let each = wgmma.a_type.bytes();
        self.counts.tensor_flops += 2 * ROWS as u64 * wgmma.n as u64 * wgmma.k as u64;
        let b = Matrix::new(self.uniform(warp, wgmma.b, u32::MAX)?, wgmma.b_transposed, each)?;
        let a = match &wgmma.a {
            WgmmaA::Descriptor(operand) => Some(Matrix::new(
                self.uniform(warp, *operand, u32::MAX)?,
                wgmma.a_transposed,
                each,
            )?),
            WgmmaA::Registers(_) => None,
        };
        let accumulate = match warp.condition(wgmma.accumulate) {
            0 => false,
            u32::MAX => true,
            _ => {
                return Err(Problem::new(
                    FaultKind::Divergence,
                    "lanes disagree whether to add to D",
                ));
            }
        };
        let mut chunks = Vec::new();
        b.chunks(0, wgmma.n, wgmma.k, &mut chunks);
        if let Some(a) = &a {
            a.chunks(self.first_row(warp), ROWS, wgmma.k, &mut chunks);
        }
        chunks.sort_unstable();
        chunks.dedup();
        for chunk in &chunks {
            let at = self.shared.place(u64::from(*chunk) * 16, 16, 16)?;
            self.shared.shadow.read(at, 16, warp.agent())?;
            self.shared.shadow.hold(at, 16, true);
        }
        for reg in &wgmma.d {
            add(&mut warp.products.written, *reg);
        }
        for reg in a_registers(wgmma) {
            add(&mut warp.products.read, reg);
        }
        warp.products.open.push(Product { wgmma, a, b, accumulate, chunks });
        Ok(())
    }

    /// Of the 64 rows, the first that this warp computes.
    fn first_row(&self, warp: &Warp<'a>) -> usize {
        warp.index as usize % 4 * ROWS
    }

    pub(crate) fn wait_products(&mut self, warp: &mut Warp<'a>, most: u32) -> Result<(), Problem> {
        while warp.products.groups.len() > most as usize {
            let Some(group) = warp.products.groups.pop_front() else { break };
            for product in group {
                self.finish(warp, &product)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, warp: &mut Warp<'a>, product: &Product<'a>) -> Result<(), Problem> {
        let wgmma = product.wgmma;
        let (n, k, each) = (wgmma.n, wgmma.k, wgmma.a_type.bytes() as u32);
        for chunk in &product.chunks {
            let at = *chunk as usize * 16;
            self.shared.shadow.hold(at, 16, false);
            // Read until now: who overwrites it has to come after this, and not only after the start.
            self.shared.shadow.read(at, 16, warp.agent())?;
        }
        let value = |ty, matrix: &Matrix, row, k| {
            exec::element(ty, self.shared.peek(matrix.place(row, k), each))
        };
        let mut left = vec![0f64; ROWS * k];
        match (&wgmma.a, &product.a) {
            (WgmmaA::Registers(registers), _) => {
                let per_word = 4 / each as usize;
                for (word, operand) in registers.iter().enumerate() {
                    let values = warp.value(*operand, self.grid());
                    for (lane, bits) in values.iter().enumerate() {
                        let row = lane / 4 + 8 * (word & 1);
                        let first = (lane % 4 + 4 * (word >> 1)) * per_word;
                        for part in 0..per_word {
                            left[row * k + first + part] =
                                exec::element(wgmma.a_type, bits >> (8 * each as usize * part));
                        }
                    }
                }
            }
            (WgmmaA::Descriptor(_), Some(a)) => {
                let first = self.first_row(warp);
                for (index, slot) in left.iter_mut().enumerate() {
                    *slot = value(wgmma.a_type, a, first + index / k, index % k);
                }
            }
            (WgmmaA::Descriptor(_), None) => {}
        }
        if wgmma.negate_a != wgmma.negate_b {
            left.iter_mut().for_each(|value| *value = -*value);
        }
        let right: Vec<f64> =
            (0..n * k).map(|index| value(wgmma.b_type, &product.b, index / k, index % k)).collect();
        let c: Vec<Lanes> = wgmma
            .d
            .iter()
            .map(|reg| if product.accumulate { *warp.reg(*reg) } else { [0; 32] })
            .collect();
        let mut d = vec![[0; 32]; wgmma.d.len()];
        for lane in 0..32 {
            for index in 0..n / 2 {
                let row = lane / 4 + 8 * (index >> 1 & 1);
                let column = index / 4 * 8 + lane % 4 * 2 + (index & 1);
                let (x, y) = (&left[row * k..][..k], &right[column * k..][..k]);
                let sum: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
                exec::accumulate(wgmma.d_type, false, &c, &mut d, lane, index, sum);
            }
        }
        for (reg, lanes) in wgmma.d.iter().zip(&d) {
            remove(&mut warp.products.written, *reg);
            warp.put(*reg, u32::MAX, lanes);
        }
        for reg in a_registers(wgmma) {
            remove(&mut warp.products.read, reg);
        }
        Ok(())
    }
}

fn a_registers(wgmma: &Wgmma) -> Vec<Reg> {
    let WgmmaA::Registers(registers) = &wgmma.a else { return Vec::new() };
    let reg = |operand: &Operand| if let Operand::Reg(reg) = operand { Some(*reg) } else { None };
    registers.iter().filter_map(reg).collect()
}
