//! One instruction of one warp.

use super::block::{Block, Flow, leave};
use super::warp::{Waiting, Warp};
use super::{alu, convert, lanes};
use crate::error::{FaultKind, Problem};
use crate::isa::{Connective, Instruction, Op, Operand, Space};
use crate::memory::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};

/// Where a state space's generic addresses begin.
fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        Space::Global | Space::Generic | Space::Const => 0,
    }
}

/// The state space that a generic address lies in, and where.
pub(super) fn locate(address: u64) -> (Space, u64) {
    for space in [Space::Shared, Space::Local, Space::Param] {
        let offset = address.wrapping_sub(window(space));
        if offset < WINDOW {
            return (space, offset);
        }
    }
    (Space::Global, address)
}

impl Warp<'_> {
    /// Whether the warp executes the instruction at which it waits again, once the wait is over.
    pub(super) fn asks_again(&self) -> bool {
        !matches!(self.waiting, None | Some(Waiting::Barrier { .. }))
    }

    /// The lanes of the path that the guard lets through.
    pub(super) fn executing(&self, instruction: &Instruction, active: u32) -> u32 {
        match instruction.guard {
            None => active,
            Some((pred, negated)) => {
                let holds = self.predicates[pred.0 as usize];
                active & if negated { !holds } else { holds }
            }
        }
    }
}

impl<'a> Block<'a> {
    pub(super) fn step(&mut self, warp: &mut Warp<'a>) -> Result<Flow, Problem> {
        let Some(top) = warp.paths.last_mut() else { return Ok(Flow::On) };
        let (pc, active) = (top.pc, top.mask);
        let kernel = warp.kernel;
        let instruction = &kernel.code[pc];
        top.pc = pc + 1;
        let executing = warp.executing(instruction, active);
        let flow = if executing == 0 {
            Flow::On
        } else {
            if warp.products.any() {
                warp.products.check(instruction, kernel)?;
            }
            self.execute(warp, &instruction.op, executing)?
        };
        warp.executed += 1;
        if warp.asks_again() {
            if let Some(top) = warp.paths.last_mut() {
                top.pc = pc;
            }
        } else {
            self.counts.warp_instructions += 1;
            self.counts.lane_instructions += u64::from(executing.count_ones());
        }
        warp.settle();
        Ok(flow)
    }

    fn execute(&mut self, warp: &mut Warp<'a>, op: &'a Op, mask: u32) -> Result<Flow, Problem> {
        let grid = self.grid;
        let value = |warp: &Warp<'a>, operand: Operand| warp.value(operand, &grid);
        match op {
            Op::Alu(i) => {
                let (a, b, c) = (value(warp, i.a), value(warp, i.b), value(warp, i.c));
                warp.put(i.dst, mask, &alu::alu(i, &a, &b, &c));
            }
            Op::Convert(i) => {
                let (a, b) = (value(warp, i.a), i.b.map_or([0; 32], |b| value(warp, b)));
                warp.put(i.dst, mask, &convert::convert(i, &a, &b));
            }
            Op::InsertBits { ty, dst, a, b, start, length } => {
                let (a, b) = (value(warp, *a), value(warp, *b));
                let (start, length) = (value(warp, *start), value(warp, *length));
                let found =
                    std::array::from_fn(|l| alu::insert(*ty, a[l], b[l], start[l], length[l]));
                warp.put(*dst, mask, &found);
            }
            Op::Pack { bits, dst, parts } => {
                let mut found = [0; 32];
                for (index, part) in parts.iter().enumerate() {
                    let part = value(warp, *part);
                    let keep = u64::MAX >> (64 - bits);
                    for (slot, part) in found.iter_mut().zip(part) {
                        *slot |= (part & keep) << (*bits as usize * index);
                    }
                }
                warp.put(*dst, mask, &found);
            }
            Op::Unpack { bits, dst, a } => {
                let (a, keep) = (value(warp, *a), u64::MAX >> (64 - bits));
                for (index, dst) in dst.iter().enumerate() {
                    if let Some(dst) = dst {
                        warp.put(*dst, mask, &a.map(|a| a >> (*bits as usize * index) & keep));
                    }
                }
            }
            Op::Compare { compare, ty, ftz, dst, inverse, a, b, with } => {
                let found = alu::compare(*compare, *ty, *ftz, &value(warp, *a), &value(warp, *b));
                let (mut yes, mut no) = (found, !found);
                if let Some((connective, other)) = with {
                    let other = warp.condition(*other);
                    (yes, no) = (connect(*connective, yes, other), connect(*connective, no, other));
                }
                warp.put_pred(*dst, mask, yes);
                if let Some(inverse) = inverse {
                    warp.put_pred(*inverse, mask, no);
                }
            }
            Op::Set { compare, ty, ftz, float, dst, a, b } => {
                let found = alu::compare(*compare, *ty, *ftz, &value(warp, *a), &value(warp, *b));
                let yes = if *float { u64::from(1f32.to_bits()) } else { 0xffff_ffff };
                let found = std::array::from_fn(|l| if found >> l & 1 == 1 { yes } else { 0 });
                warp.put(*dst, mask, &found);
            }
            Op::Select { dst, a, b, condition } => {
                let (a, b, yes) = (value(warp, *a), value(warp, *b), warp.condition(*condition));
                let found = std::array::from_fn(|l| if yes >> l & 1 == 1 { a[l] } else { b[l] });
                warp.put(*dst, mask, &found);
            }
            Op::PredMove { dst, a } => {
                let a = warp.condition(*a);
                warp.put_pred(*dst, mask, a);
            }
            Op::PredLogic { op, dst, a, b } => {
                let found = connect(*op, warp.condition(*a), warp.condition(*b));
                warp.put_pred(*dst, mask, found);
            }
            Op::PredTest { test, ty, dst, a } => {
                let found = alu::test(*test, *ty, &value(warp, *a));
                warp.put_pred(*dst, mask, found);
            }

            Op::Load { space, ty, dst_bytes, dst, from } => {
                self.load(warp, mask, *space, *ty, *dst_bytes, dst, from)?;
            }
            Op::Store { space, ty, src, to } => self.store(warp, mask, *space, *ty, src, to)?,
            Op::Atomic { space, combine, ty, dst, at, a, b } => {
                let (a, b) = (value(warp, *a), value(warp, *b));
                self.atomic(warp, mask, *space, *combine, *ty, *dst, at, &a, &b)?;
            }
            Op::ConvertAddress { space, to_generic, dst, a } => {
                let start = window(*space);
                let a = value(warp, *a);
                let found =
                    a.map(
                        |a| if *to_generic { a.wrapping_add(start) } else { a.wrapping_sub(start) },
                    );
                warp.put(*dst, mask, &found);
            }
            Op::IsSpace { space, dst, a } => {
                let a = value(warp, *a);
                let found =
                    lanes(mask).fold(0, |bits, l| bits | u32::from(locate(a[l]).0 == *space) << l);
                warp.put_pred(*dst, mask, found);
            }

            Op::Branch { target, reconverge } => {
                let active = warp.paths.last().map_or(0, |top| top.mask);
                if mask == active {
                    if let Some(top) = warp.paths.last_mut() {
                        top.pc = *target;
                    }
                } else {
                    self.counts.divergent_branches += 1;
                    warp.diverge(mask, *target, *reconverge);
                }
            }
            Op::Exit => leave(warp, mask)?,
            Op::Trap => return Err(Problem::invalid("the kernel stops itself here")),
            Op::Nothing => {}

            Op::Barrier { id, threads, kind } => {
                let id = self.uniform(warp, *id, mask)?;
                let threads = match threads {
                    Some(threads) => Some(self.uniform(warp, *threads, mask)?),
                    None => None,
                };
                return self.arrive(warp, mask, id, threads, *kind);
            }
            Op::WarpBarrier { members } => {
                let members = value(warp, *members);
                self.check_members(warp, mask, &members)?;
            }
            Op::ClusterArrive => {
                whole(warp, mask, "the cluster's barrier")?;
                self.arrive_cluster(warp)?;
            }
            Op::ClusterWait => {
                if self.cluster_generation <= warp.cluster_generation {
                    warp.waiting = Some(Waiting::Cluster { generation: warp.cluster_generation });
                    return Ok(Flow::Wait);
                }
                crate::races::join(&mut warp.clock, &self.cluster_clock);
            }

            Op::Shuffle { .. }
            | Op::Vote { .. }
            | Op::Ballot { .. }
            | Op::ActiveMask { .. }
            | Op::Match { .. }
            | Op::Reduce { .. }
            | Op::Elect { .. } => self.collective(warp, op, mask)?,

            Op::LoadMatrix { transposed, dst, from } => {
                whole(warp, mask, "a matrix load")?;
                self.load_matrix(warp, *transposed, dst, from)?;
            }
            Op::StoreMatrix { transposed, src, to } => {
                whole(warp, mask, "a matrix store")?;
                self.store_matrix(warp, *transposed, src, to)?;
            }
            Op::Mma(mma) => {
                whole(warp, mask, "a matrix product")?;
                self.mma(warp, mma);
            }

            Op::CopyAsync { to, from, bytes, source_bytes } => {
                self.copy_async(warp, mask, to, from, *bytes, *source_bytes)?;
            }
            Op::CopyAsyncCommit => {
                together(warp, mask, "a group of copies")?;
                warp.copies.commit();
            }
            Op::CopyAsyncWait { most } => {
                together(warp, mask, "a wait for copies")?;
                self.wait_copies(warp, *most);
            }
            Op::CopyAsyncArrive { barrier, counted } => {
                together(warp, mask, "an arrival after copies")?;
                self.arrive_copies(warp, mask, barrier, *counted)?
            }

            Op::Mbarrier { at, what } => return self.mbarrier(warp, mask, at, what),
            Op::Bulk(bulk) => self.bulk(warp, mask, bulk)?,
            Op::Wgmma(wgmma) => {
                whole(warp, mask, "a warp group's product")?;
                self.wgmma(warp, wgmma)?;
            }
            Op::WgmmaFence => whole(warp, mask, "a fence before products")?,
            Op::WgmmaCommit => {
                whole(warp, mask, "a group of products")?;
                warp.products.commit();
            }
            Op::WgmmaWait { most } => {
                whole(warp, mask, "a wait for products")?;
                return self.wait_products(warp, *most);
            }
        }
        Ok(Flow::On)
    }

    /// A value that all lanes have to agree on.
    pub(crate) fn uniform(
        &self,
        warp: &Warp<'a>,
        operand: Operand,
        mask: u32,
    ) -> Result<u64, Problem> {
        let values = warp.value(operand, &self.grid);
        let first = values[mask.trailing_zeros() as usize & 31];
        match lanes(mask).find(|&lane| values[lane] != first) {
            None => Ok(first),
            Some(lane) => {
                let text = format!(
                    "lanes have to agree on this operand; here it is {first:#x} and {:#x}",
                    values[lane]
                );
                Err(Problem::new(FaultKind::Divergence, text).at(lane))
            }
        }
    }
}

fn connect(connective: Connective, a: u32, b: u32) -> u32 {
    match connective {
        Connective::And => a & b,
        Connective::Or => a | b,
        Connective::Xor => a ^ b,
    }
}

/// What the ISA counts for each thread by itself, and this interpreter once for a warp: right where all lanes do it at once.
fn together(warp: &Warp<'_>, mask: u32, what: &str) -> Result<(), Problem> {
    let live = warp.live();
    if mask == live {
        return Ok(());
    }
    let text = format!(
        "{what} by some lanes alone, {mask:#010x} of {live:#010x}; the interpreter knows it for all of a warp's lanes at once"
    );
    Err(Problem::new(FaultKind::Divergence, text))
}

/// What needs all 32 lanes at the same place.
fn whole(warp: &Warp<'_>, mask: u32, what: &str) -> Result<(), Problem> {
    if mask == u32::MAX {
        return Ok(());
    }
    let text = format!("{what} needs all 32 lanes; here are {mask:#010x} of {:#010x}", warp.live());
    Err(Problem::new(FaultKind::Divergence, text))
}
