//! `wgmma.mma_async`: products that the four warps of a group start, and wait for.
//!
//! A product is the group's: it is computed when the first of the warps waits for it, and not before all four have started
//! their part. Until a warp has waited, the accumulators hold what they held, and whoever reads or writes them, or writes
//! the shared memory that the product reads, is stopped. What the product has read counts as read by the group's tensor
//! cores, of which only those know who have waited, or heard of it from somebody who has.

use std::collections::{HashMap, VecDeque};

use super::descriptor::Matrix;
use crate::error::{FaultKind, Problem};
use crate::exec::{self, Block, Flow, Lanes, Waiting, Warp};
use crate::isa::{Instruction, Op, Operand, Reg, Wgmma, WgmmaA};
use crate::kernel::Kernel;
use crate::races::{self, AGENTS, Agent, Clock};

/// Rows that one warp has of a product's 64.
const ROWS: usize = 16;
/// Warps of a group.
const WARPS: usize = 4;

/// One warp's part of a product.
struct Part {
    /// `[16][k]`, if A comes from registers.
    left: Option<Vec<f64>>,
    /// 16-byte chunks of shared memory that the part reads.
    chunks: Vec<u32>,
    /// `[16][n]`, once the product is computed.
    sums: Vec<f64>,
}

/// A product of a warp group.
struct Product<'k> {
    wgmma: &'k Wgmma,
    a: Option<Matrix>,
    b: Matrix,
    parts: [Option<Part>; WARPS],
    computed: bool,
    /// What the warps knew when they started it.
    known: Clock,
}

/// The products under way of one warp group.
#[derive(Default)]
struct Group<'k> {
    /// How many each warp has started.
    started: [u32; WARPS],
    products: HashMap<u32, Product<'k>>,
}

/// The warp groups of a block.
pub(crate) struct WarpGroups<'k>(Vec<Group<'k>>);

impl WarpGroups<'_> {
    /// Whole groups only: what is left over of a block's warps is none.
    pub(crate) fn new(threads: [u32; 3]) -> Self {
        let count = threads.iter().product::<u32>() / (32 * WARPS as u32);
        Self((0..count).map(|_| Group::default()).collect())
    }

    /// Whether all warps of the group have started a product.
    pub(crate) fn is_started(&self, warp: u32, number: u32) -> bool {
        let group = self.0.get(warp as usize / WARPS);
        group.is_none_or(|group| group.started.iter().all(|&started| started >= number))
    }
}

/// A warp's side of a product.
struct Started<'k> {
    wgmma: &'k Wgmma,
    /// Which of the group's products it is, from 1.
    number: u32,
    accumulate: bool,
}

/// A warp's products under way.
#[derive(Default)]
pub(crate) struct Products<'k> {
    open: Vec<Started<'k>>,
    groups: VecDeque<Vec<Started<'k>>>,
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

impl Products<'_> {
    /// Whether there is anything under way.
    pub(crate) fn any(&self) -> bool {
        !self.written.is_empty()
    }

    /// How many are under way.
    pub(crate) fn count(&self) -> usize {
        self.open.len() + self.groups.iter().map(Vec::len).sum::<usize>()
    }

    pub(crate) fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// That an instruction leaves alone what products under way have hold of.
    pub(crate) fn check(&self, instruction: &Instruction, kernel: &Kernel) -> Result<(), Problem> {
        let refuse = |does: &str, reg: Reg, will: &str| {
            let name = &kernel.registers[reg.0 as usize].name;
            let text =
                format!("{does} {name}, which a wgmma under way {will}: wait for its group first");
            Err(Problem::new(FaultKind::InFlight, text))
        };
        // Products may follow one another into the same accumulators.
        let accumulators = if let Op::Wgmma(wgmma) = &instruction.op { &wgmma.d[..] } else { &[] };
        for reg in instruction.reads.iter().filter(|reg| !accumulators.contains(reg)) {
            if has(&self.written, *reg) {
                return refuse("reads", *reg, "will write");
            }
        }
        for reg in instruction.writes.iter() {
            if has(&self.written, *reg) && !accumulators.contains(reg) {
                return refuse("writes", *reg, "will write");
            }
            if has(&self.read, *reg) {
                return refuse("writes", *reg, "still reads");
            }
        }
        Ok(())
    }
}

impl<'a> Block<'a> {
    pub(crate) fn wgmma(&mut self, warp: &mut Warp<'a>, wgmma: &'a Wgmma) -> Result<(), Problem> {
        let each = wgmma.a_type.bytes();
        let b = Matrix::new(self.uniform(warp, wgmma.b, u32::MAX)?, wgmma.b_transposed, each)?;
        let (a, left) = match &wgmma.a {
            WgmmaA::Descriptor(operand) => {
                let descriptor = self.uniform(warp, *operand, u32::MAX)?;
                (Some(Matrix::new(descriptor, wgmma.a_transposed, each)?), None)
            }
            WgmmaA::Registers(registers) => (None, Some(self.left(warp, wgmma, registers))),
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
        self.counts.tensor_flops += 2 * ROWS as u64 * wgmma.n as u64 * wgmma.k as u64;

        let (index, quarter) = (warp.index as usize / WARPS, warp.index as usize % WARPS);
        let Some(group) = self.warp_groups.0.get_mut(index) else {
            return Err(Problem::invalid(
                "a warp group is four warps; the block's last warps are fewer",
            ));
        };
        group.started[quarter] += 1;
        let number = group.started[quarter];
        let product = group.products.entry(number).or_insert_with(|| {
            let (parts, known) = ([const { None }; WARPS], [0; AGENTS]);
            Product { wgmma, a, b, parts, computed: false, known }
        });
        if !std::ptr::eq(product.wgmma, wgmma) || product.a != a || product.b != b {
            let text =
                "the warps of a warp group start different products, or with different descriptors";
            return Err(Problem::new(FaultKind::Divergence, text));
        }
        let mut chunks = Vec::new();
        b.chunks(0, wgmma.n, wgmma.k, &mut chunks);
        if let Some(a) = &a {
            a.chunks(quarter * ROWS, ROWS, wgmma.k, &mut chunks);
        }
        chunks.sort_unstable();
        chunks.dedup();
        races::join(&mut product.known, &warp.clock);
        // Read by the tensor cores, on behalf of a warp that knows what it knows.
        let agent = races::tensor_agent(warp.index);
        let mut clock = warp.clock;
        clock[agent as usize] = number;
        for chunk in &chunks {
            let at = self.shared.place(u64::from(*chunk) * 16, 16, 16)?;
            self.shared.shadow.read(at, 16, Agent { warp: agent, clock: &clock })?;
            self.shared.shadow.hold(at, 16, true);
        }
        product.parts[quarter] = Some(Part { left, chunks, sums: Vec::new() });
        warp.release();
        for reg in &wgmma.d {
            add(&mut warp.products.written, *reg);
        }
        for reg in a_registers(wgmma) {
            add(&mut warp.products.read, reg);
        }
        warp.products.open.push(Started { wgmma, number, accumulate });
        Ok(())
    }

    /// A warp's rows of A, `[16][k]`, from its registers.
    fn left(&self, warp: &Warp<'a>, wgmma: &Wgmma, registers: &[Operand]) -> Vec<f64> {
        let (k, each) = (wgmma.k, wgmma.a_type.bytes());
        let per_word = 4 / each;
        let mut left = vec![0f64; ROWS * k];
        for (word, operand) in registers.iter().enumerate() {
            for (lane, bits) in warp.value(*operand, self.grid()).iter().enumerate() {
                let row = lane / 4 + 8 * (word & 1);
                let first = (lane % 4 + 4 * (word >> 1)) * per_word;
                for part in 0..per_word {
                    left[row * k + first + part] =
                        exec::element(wgmma.a_type, bits >> (8 * each * part));
                }
            }
        }
        left
    }

    pub(crate) fn wait_products(
        &mut self,
        warp: &mut Warp<'a>,
        most: u32,
    ) -> Result<Flow, Problem> {
        let over = warp.products.groups.len().saturating_sub(most as usize);
        let last =
            warp.products.groups.iter().take(over).flatten().last().map(|started| started.number);
        let Some(last) = last else {
            warp.products.groups.drain(..over);
            return Ok(Flow::On);
        };
        if !self.warp_groups.is_started(warp.index, last) {
            warp.waiting = Some(Waiting::Product { number: last });
            return Ok(Flow::Wait);
        }
        for group in warp.products.groups.drain(..over).collect::<Vec<_>>() {
            for started in group {
                self.finish(warp, &started);
            }
        }
        // From here on the warp knows that the tensor cores are done with what these products read.
        let agent = races::tensor_agent(warp.index) as usize;
        warp.clock[agent] = warp.clock[agent].max(last);
        Ok(Flow::On)
    }

    /// A warp's accumulators get what a product has for them.
    fn finish(&mut self, warp: &mut Warp<'a>, started: &Started<'a>) {
        let (index, quarter) = (warp.index as usize / WARPS, warp.index as usize % WARPS);
        let group = &mut self.warp_groups.0[index];
        let Some(mut product) = group.products.remove(&started.number) else { return };
        if !product.computed {
            self.compute(&mut product);
        }
        races::join(&mut warp.clock, &product.known);
        let wgmma = started.wgmma;
        if let Some(part) = product.parts[quarter].take() {
            let old = |reg: &Reg| if started.accumulate { *warp.reg(*reg) } else { [0; 32] };
            let c: Vec<Lanes> = wgmma.d.iter().map(old).collect();
            let mut d = vec![[0; 32]; wgmma.d.len()];
            for lane in 0..32 {
                for index in 0..wgmma.n / 2 {
                    let row = lane / 4 + 8 * (index >> 1 & 1);
                    let column = index / 4 * 8 + lane % 4 * 2 + (index & 1);
                    let sum = part.sums[row * wgmma.n + column];
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
        }
        if product.parts.iter().any(Option::is_some) {
            self.warp_groups.0[index].products.insert(started.number, product);
        }
    }

    /// `A x B` of all four warps, from what shared memory holds now.
    fn compute(&mut self, product: &mut Product<'a>) {
        product.computed = true;
        let wgmma = product.wgmma;
        let (n, k, each) = (wgmma.n, wgmma.k, wgmma.a_type.bytes() as u32);
        // [k][n]: so that a row of sums is worked through in its order in memory.
        let mut right = vec![0f64; k * n];
        for (index, slot) in right.iter_mut().enumerate() {
            let bits = self.shared.peek(product.b.place(index % n, index / n), each);
            *slot = exec::element(wgmma.b_type, bits);
        }
        let sign = if wgmma.negate_a == wgmma.negate_b { 1.0 } else { -1.0 };
        for (quarter, part) in product.parts.iter_mut().enumerate() {
            let Some(part) = part else { continue };
            let left = match (&part.left, &product.a) {
                (Some(left), _) => left.clone(),
                (None, Some(a)) => (0..ROWS * k)
                    .map(|index| {
                        let at = a.place(quarter * ROWS + index / k, index % k);
                        exec::element(wgmma.a_type, self.shared.peek(at, each))
                    })
                    .collect(),
                (None, None) => vec![0.0; ROWS * k],
            };
            part.sums = vec![0f64; ROWS * n];
            for (left, sums) in left.chunks(k).zip(part.sums.chunks_mut(n)) {
                for (x, right) in left.iter().zip(right.chunks(n)) {
                    for (sum, y) in sums.iter_mut().zip(right) {
                        *sum += sign * x * y;
                    }
                }
            }
            for chunk in &part.chunks {
                self.shared.shadow.hold(*chunk as usize * 16, 16, false);
            }
        }
    }
}

fn a_registers(wgmma: &Wgmma) -> Vec<Reg> {
    let WgmmaA::Registers(registers) = &wgmma.a else { return Vec::new() };
    let reg = |operand: &Operand| if let Operand::Reg(reg) = operand { Some(*reg) } else { None };
    registers.iter().filter_map(reg).collect()
}
