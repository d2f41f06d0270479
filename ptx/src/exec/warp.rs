//! A warp: registers of 32 lanes, and which of them are where in the code.

use super::Lanes;
use super::copies::Copies;
use crate::cfg::NEVER;
use crate::hopper::{BulkGroups, Products};
use crate::isa::{Address, Condition, Operand, Pred, Reg, Special};
use crate::kernel::Kernel;
use crate::races::{AGENTS, Agent, Clock};

/// Lanes that go the same way, until they meet others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) pc: usize,
    pub(super) reconverge: usize,
    pub(super) mask: u32,
}

/// What a warp waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A barrier of the block.
    Barrier { id: usize },
    /// All warps' arrival at the cluster's barrier.
    Cluster { generation: u64 },
    /// A phase of the mbarrier at this address.
    Mbarrier { at: u32, until: Until },
    /// The other warps of the warp group, to start their part of this product.
    Product { number: u32 },
}

/// When a wait at an mbarrier is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The phase of this parity is complete.
    Parity(u32),
    /// The phase of this number is complete.
    Phase(u64),
}

/// The instruction that something began with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(super) warp: u32,
    pub(super) pc: usize,
}

pub(crate) struct Warp<'k> {
    pub(super) kernel: &'k Kernel,
    pub(crate) index: u32,
    registers: Vec<Lanes>,
    pub(super) predicates: Vec<u32>,
    pub(super) paths: Vec<Path>,
    pub(crate) waiting: Option<Waiting>,
    pub(super) executed: u64,
    pub(crate) clock: Clock,
    pub(super) copies: Copies,
    pub(crate) bulk: BulkGroups,
    pub(crate) products: Products<'k>,
    /// Local memory: each lane's bytes, one lane after another.
    pub(super) local: Vec<u8>,
    /// Of each dimension, the lanes' places in the block.
    tid: [[u32; 32]; 3],
    pub(super) cluster_generation: u64,
}

/// The lanes of a mask.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

impl<'k> Warp<'k> {
    /// Warp `index` of a block of so many threads in each dimension.
    pub(super) fn new(kernel: &'k Kernel, index: u32, block: [u32; 3]) -> Self {
        let mut tid = [[0; 32]; 3];
        let mut mask = 0;
        for lane in 0..32 {
            let thread = index * 32 + lane;
            if thread < block[0] * block[1] * block[2] {
                mask |= 1 << lane;
                tid[0][lane as usize] = thread % block[0];
                tid[1][lane as usize] = thread / block[0] % block[1];
                tid[2][lane as usize] = thread / block[0] / block[1];
            }
        }
        let mut clock = [0; AGENTS];
        clock[index as usize] = 1;
        Self {
            kernel,
            index,
            registers: vec![[0; 32]; kernel.registers.len()],
            predicates: vec![0; kernel.predicates.len()],
            paths: vec![Path { pc: 0, reconverge: NEVER, mask }],
            waiting: None,
            executed: 0,
            clock,
            copies: Copies::default(),
            bulk: BulkGroups::default(),
            products: Products::default(),
            local: vec![0xff; 32 * kernel.local_bytes as usize],
            tid,
            cluster_generation: 0,
        }
    }

    /// The instruction under way: the path is past it.
    pub(crate) fn here(&self) -> Begun {
        let next = self.paths.last().map_or(0, |path| path.pc);
        Begun { warp: self.index, pc: next.saturating_sub(1) }
    }

    pub(super) fn is_done(&self) -> bool {
        self.paths.is_empty()
    }

    /// All lanes that have not returned.
    pub(super) fn live(&self) -> u32 {
        self.paths.iter().fold(0, |mask, path| mask | path.mask)
    }

    /// Leaves paths that are empty or have come to where they meet others.
    pub(super) fn settle(&mut self) {
        while let Some(top) = self.paths.last() {
            if top.mask != 0 && top.pc != top.reconverge {
                break;
            }
            self.paths.pop();
        }
    }

    /// Some lanes of the current path go to `target`, the others on; all meet at `meet`.
    pub(super) fn diverge(&mut self, taken: u32, target: usize, meet: usize) {
        let Some(top) = self.paths.last_mut() else { return };
        let (next, others) = (top.pc, top.mask & !taken);
        let meet = if meet == NEVER { top.reconverge } else { meet };
        if meet == top.reconverge {
            self.paths.pop();
        } else {
            top.pc = meet;
        }
        self.paths.push(Path { pc: next, reconverge: meet, mask: others });
        // Whoever falls through to the meeting point is there already.
        if next == meet {
            self.paths.pop();
        }
        if target != meet {
            self.paths.push(Path { pc: target, reconverge: meet, mask: taken });
        }
    }

    pub(super) fn exit(&mut self, gone: u32) {
        for path in &mut self.paths {
            path.mask &= !gone;
        }
    }

    /// Other warps may take over what this one knows now; what it does from here on is later.
    pub(crate) fn release(&mut self) -> Clock {
        let known = self.clock;
        self.clock[self.index as usize] += 1;
        known
    }

    pub(crate) fn agent(&self) -> Agent<'_> {
        Agent { warp: self.index, clock: &self.clock }
    }

    pub(crate) fn reg(&self, reg: Reg) -> &Lanes {
        &self.registers[reg.0 as usize]
    }

    pub(crate) fn value(&self, operand: Operand, grid: &super::Grid) -> Lanes {
        match operand {
            Operand::Reg(reg) => self.registers[reg.0 as usize],
            Operand::Constant(bits) => [bits; 32],
            Operand::Special(special) => self.special(special, grid),
        }
    }

    fn special(&self, special: Special, grid: &super::Grid) -> Lanes {
        let by_lane = |f: fn(u32) -> u32| std::array::from_fn(|lane| u64::from(f(lane as u32)));
        match special {
            Special::Tid(axis) => self.tid[axis as usize].map(u64::from),
            Special::Ntid(axis) => [u64::from(grid.threads[axis as usize]); 32],
            Special::Ctaid(axis) => [u64::from(grid.index[axis as usize]); 32],
            Special::Nctaid(axis) => [u64::from(grid.blocks[axis as usize]); 32],
            Special::LaneId => by_lane(|lane| lane),
            Special::WarpId => [u64::from(self.index); 32],
            Special::WarpCount => {
                [grid.threads.iter().map(|&n| u64::from(n)).product::<u64>().div_ceil(32); 32]
            }
            Special::LanesBelow => by_lane(|lane| (1 << lane) - 1),
            Special::LanesUpTo => by_lane(|lane| u32::MAX >> (31 - lane)),
            Special::LanesAbove => by_lane(|lane| !(u32::MAX >> (31 - lane))),
            Special::LanesFrom => by_lane(|lane| !((1 << lane) - 1)),
            Special::LaneBit => by_lane(|lane| 1 << lane),
            Special::DynamicShared => [u64::from(grid.dynamic_shared); 32],
            Special::TotalShared => {
                [u64::from(grid.dynamic_shared + self.kernel.static_shared); 32]
            }
            Special::Clock => [self.executed; 32],
            Special::Zero => [0; 32],
            Special::One => [1; 32],
        }
    }

    pub(crate) fn put(&mut self, dst: Reg, mask: u32, values: &Lanes) {
        let lanes = &mut self.registers[dst.0 as usize];
        if mask == u32::MAX {
            *lanes = *values;
            return;
        }
        for (lane, (slot, value)) in lanes.iter_mut().zip(values).enumerate() {
            if mask >> lane & 1 == 1 {
                *slot = *value;
            }
        }
    }

    pub(crate) fn put_one(&mut self, dst: Reg, lane: usize, value: u64) {
        self.registers[dst.0 as usize][lane] = value;
    }

    pub(crate) fn condition(&self, condition: Condition) -> u32 {
        match condition {
            Condition::Constant(value) => {
                if value {
                    u32::MAX
                } else {
                    0
                }
            }
            Condition::Pred { pred, negated } => {
                self.predicates[pred.0 as usize] ^ if negated { u32::MAX } else { 0 }
            }
        }
    }

    pub(crate) fn put_pred(&mut self, dst: Pred, mask: u32, values: u32) {
        let slot = &mut self.predicates[dst.0 as usize];
        *slot = *slot & !mask | values & mask;
    }

    pub(crate) fn addresses(&self, address: &Address, grid: &super::Grid) -> Lanes {
        self.value(address.base, grid).map(|base| base.wrapping_add(address.offset as u64))
    }
}
