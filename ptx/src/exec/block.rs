//! A block: its warps in turns, its barriers, and what happens when nobody can go on.

use super::warp::{Waiting, Warp};
use super::{Grid, Shared};
use crate::Error;
use crate::counts::Counts;
use crate::error::{Fault, FaultKind, Problem};
use crate::hopper::{BulkCopies, Mbarriers, WarpGroups};
use crate::isa::{BarrierKind, Connective, Pred, Reg};
use crate::kernel::Kernel;
use crate::memory::Device;
use crate::races::{self, AGENTS, Clock};
use crate::trace::{Pending, PendingBarrier, Step, Trace};

/// Instructions that a warp executes before the next one has its turn.
const TURN: usize = 1000;
/// More instructions than this in one warp are taken for a loop without end. A warp that does real work is far below.
const MOST_INSTRUCTIONS: u64 = 20_000_000;

/// How an instruction left its warp.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// On to the next one.
    On,
    /// The warp waits now.
    Wait,
    /// The warp asked for something that is not there yet, and others should have their turn.
    Yield,
}

/// Who waits at a barrier, and what it gets.
#[derive(Debug)]
struct Waiter {
    warp: u32,
    mask: u32,
    result: Option<Tally>,
}

#[derive(Debug, Clone, Copy)]
enum Tally {
    Reduce(Connective, Pred),
    Count(Reg),
}

/// One of the sixteen barriers of a block.
#[derive(Debug)]
struct Barrier {
    arrived: u32,
    /// Threads that an arrival said there would be; `None` means all.
    expected: Option<u32>,
    waiters: Vec<Waiter>,
    clock: Clock,
    threads_true: u32,
    threads_voting: u32,
}

impl Default for Barrier {
    fn default() -> Self {
        let waiters = Vec::new();
        Self {
            arrived: 0,
            expected: None,
            waiters,
            clock: [0; AGENTS],
            threads_true: 0,
            threads_voting: 0,
        }
    }
}

/// A block and what it shares.
pub(crate) struct Block<'a> {
    pub(super) kernel: &'a Kernel,
    pub(crate) device: &'a Device,
    pub(crate) parameters: &'a [u8],
    pub(super) grid: Grid,
    pub(crate) shared: Shared,
    pub(crate) counts: Counts,
    barriers: [Barrier; 16],
    pub(crate) mbarriers: Mbarriers,
    pub(crate) bulk: BulkCopies,
    pub(crate) warp_groups: WarpGroups<'a>,
    live_warps: u32,
    /// Warps that a barrier has let go, by what they learn there.
    released: Vec<(Waiter, Clock, u32, u32)>,
    cluster_arrived: u32,
    pub(super) cluster_generation: u64,
    pub(super) cluster_clock: Clock,
}

impl<'a> Block<'a> {
    pub(super) fn new(
        kernel: &'a Kernel,
        device: &'a Device,
        parameters: &'a [u8],
        grid: Grid,
    ) -> Self {
        Self {
            kernel,
            device,
            parameters,
            grid,
            shared: Shared::new((kernel.static_shared + grid.dynamic_shared) as usize),
            counts: Counts::default(),
            barriers: Default::default(),
            mbarriers: Mbarriers::default(),
            bulk: BulkCopies::default(),
            warp_groups: WarpGroups::new(grid.threads),
            live_warps: 0,
            released: Vec::new(),
            cluster_arrived: 0,
            cluster_generation: 0,
            cluster_clock: [0; AGENTS],
        }
    }

    pub(crate) fn grid(&self) -> &Grid {
        &self.grid
    }

    /// To the end of every thread.
    pub(super) fn run(mut self, mut trace: Option<&mut dyn Trace>) -> Result<Counts, Error> {
        let threads = self.grid.threads.iter().product::<u32>();
        let mut warps: Vec<Warp<'a>> = (0..threads.div_ceil(32))
            .map(|index| Warp::new(self.kernel, index, self.grid.threads))
            .collect();
        self.live_warps = warps.len() as u32;
        if trace.is_some() {
            self.shared.observed = Some(Vec::new());
        }
        loop {
            let (mut progress, mut alive) = (false, false);
            for at in 0..warps.len() {
                if warps[at].is_done() {
                    continue;
                }
                alive = true;
                if !self.may_run(&mut warps[at]) {
                    continue;
                }
                progress |= self.turn(&mut warps, at, &mut trace)?;
            }
            if !alive {
                return Ok(self.counts);
            }
            if !progress
                && !self.land_one(&waited(&warps))
                && warps.iter().all(|warp| warp.is_done() || warp.waiting.is_some())
            {
                return Err(self.deadlock(&warps));
            }
        }
    }

    /// Up to [`TURN`] instructions of one warp. False if it only found that it has to ask again.
    fn turn(
        &mut self,
        warps: &mut [Warp<'a>],
        at: usize,
        trace: &mut Option<&mut dyn Trace>,
    ) -> Result<bool, Error> {
        for _ in 0..TURN {
            let warp = &mut warps[at];
            let Some(top) = warp.paths.last().copied() else { break };
            let result = match trace {
                None => self.step(warp),
                Some(trace) => self.step_traced(warp, &mut **trace),
            };
            let flow = result.map_err(|problem| self.fault(&warps[at], top.pc, problem))?;
            let warp = &mut warps[at];
            if warp.executed > MOST_INSTRUCTIONS {
                let text = format!(
                    "this warp has executed {MOST_INSTRUCTIONS} instructions: a loop without end"
                );
                return Err(self.fault(warp, top.pc, Problem::new(FaultKind::Endless, text)));
            }
            if warp.is_done() {
                self.live_warps -= 1;
                // Who has returned is not waited for.
                (0..16).for_each(|id| self.complete_if_full(id));
                self.complete_cluster();
            }
            self.hand_out(warps);
            match flow {
                Flow::On if warps[at].is_done() => break,
                Flow::On => {}
                Flow::Wait => break,
                Flow::Yield => return Ok(false),
            }
        }
        Ok(true)
    }

    fn step_traced(&mut self, warp: &mut Warp<'a>, trace: &mut dyn Trace) -> Result<Flow, Problem> {
        let Some(top) = warp.paths.last().copied() else { return Ok(Flow::On) };
        let instruction = &warp.kernel.code[top.pc];
        let executing = warp.executing(instruction, top.mask);
        let before = warp.predicates.clone();
        if let Some(observed) = &mut self.shared.observed {
            observed.clear();
        }
        let flow = self.step(warp)?;
        // Who waits for anything but a barrier executes the instruction again: one step when it is over.
        if warp.asks_again() {
            return Ok(flow);
        }
        let text = warp.kernel.text_of(instruction);
        let written: Vec<(&str, [u64; 32])> = instruction
            .writes
            .iter()
            .map(|reg| (warp.kernel.registers[reg.0 as usize].name.as_str(), *warp.reg(*reg)))
            .collect();
        let changed = before.iter().zip(&warp.predicates).zip(&warp.kernel.predicates);
        let predicates: Vec<(&str, u32)> = changed
            .filter(|((old, new), _)| old != new)
            .map(|((_, new), name)| (name.as_str(), *new))
            .collect();
        trace.step(&Step {
            block: self.grid.index,
            warp: warp.index,
            pc: top.pc,
            line: instruction.line,
            text: &text,
            active: top.mask,
            executing,
            written: &written,
            predicates: &predicates,
            shared: self.shared.observed.as_deref().unwrap_or_default(),
            pending: &self.pending(warp),
        });
        Ok(flow)
    }

    /// What the block and this warp have begun and not finished.
    fn pending(&self, warp: &Warp<'a>) -> Pending {
        let begun = self.barriers.iter().enumerate().filter(|(_, barrier)| barrier.arrived > 0);
        let barriers = begun.map(|(id, barrier)| PendingBarrier {
            id,
            arrived: barrier.arrived,
            expected: barrier.expected.unwrap_or(self.live_warps * 32),
            waiting: barrier.waiters.iter().map(|waiter| waiter.warp).collect(),
        });
        Pending {
            barriers: barriers.collect(),
            mbarriers: self.mbarriers.phases(),
            bulk_bytes: self.bulk.bytes(),
            copies: warp.copies.bytes(),
            products: warp.products.count(),
        }
    }

    /// Whether a warp's wait, if it has one, is over.
    fn may_run(&mut self, warp: &mut Warp<'a>) -> bool {
        let over = match &warp.waiting {
            None => true,
            Some(Waiting::Barrier { .. }) => false,
            Some(Waiting::Cluster { generation }) => self.cluster_generation > *generation,
            Some(Waiting::Mbarrier { at, until }) => self.mbarriers.is_over(*at, *until),
            Some(Waiting::Product { number }) => self.warp_groups.is_started(warp.index, *number),
        };
        if over {
            warp.waiting = None;
        }
        over
    }

    /// One arrival of a whole warp at a barrier of the block.
    pub(super) fn arrive(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        id: u64,
        threads: Option<u64>,
        kind: BarrierKind,
    ) -> Result<Flow, Problem> {
        let id = usize::try_from(id).ok().filter(|&id| id < 16);
        let id = id.ok_or_else(|| Problem::invalid("barriers have numbers from 0 to 15"))?;
        if let Some(threads) =
            threads.filter(|threads| threads % 32 != 0 || *threads == 0 || *threads > 1024)
        {
            let text =
                format!("a barrier for {threads} threads; it is for a multiple of 32, up to 1024");
            return Err(Problem::invalid(text));
        }
        if warp.live() != mask {
            let text = format!(
                "lanes {:#010x} of the warp come to the barrier and lanes {:#010x} do not",
                mask,
                warp.live() & !mask
            );
            return Err(Problem::new(FaultKind::Divergence, text));
        }
        let expected = threads.map(|threads| threads as u32);
        let barrier = &mut self.barriers[id];
        if barrier.arrived > 0 && barrier.expected != expected {
            let text = format!(
                "barrier {id} for {}; others came to it for {}",
                people(expected),
                people(barrier.expected)
            );
            return Err(Problem::invalid(text));
        }
        if barrier.waiters.iter().any(|waiter| waiter.warp == warp.index) {
            return Err(Problem::invalid(format!("the warp came to barrier {id} twice")));
        }
        barrier.expected = expected;
        barrier.arrived += 32;
        races::join(&mut barrier.clock, &warp.release());
        let value = match kind {
            BarrierKind::Reduce { value, .. } | BarrierKind::Count { value, .. } => {
                warp.condition(value) & mask
            }
            _ => 0,
        };
        barrier.threads_true += value.count_ones();
        barrier.threads_voting += mask.count_ones();
        let result = match kind {
            BarrierKind::Reduce { op, dst, .. } => Some(Tally::Reduce(op, dst)),
            BarrierKind::Count { dst, .. } => Some(Tally::Count(dst)),
            _ => None,
        };
        let waits = kind != BarrierKind::Arrive;
        if waits {
            barrier.waiters.push(Waiter { warp: warp.index, mask, result });
            warp.waiting = Some(Waiting::Barrier { id });
        }
        if barrier.arrived > barrier.expected.unwrap_or(self.live_warps * 32) {
            return Err(Problem::invalid(format!(
                "more threads came to barrier {id} than the {} it is for",
                people(expected)
            )));
        }
        self.complete_if_full(id);
        Ok(if waits { Flow::Wait } else { Flow::On })
    }

    fn complete_if_full(&mut self, id: usize) {
        let barrier = &mut self.barriers[id];
        let expected = barrier.expected.unwrap_or(self.live_warps * 32);
        if barrier.arrived == 0 || barrier.arrived < expected {
            return;
        }
        let done = std::mem::take(barrier);
        self.counts.barriers += 1;
        for waiter in done.waiters {
            self.released.push((waiter, done.clock, done.threads_true, done.threads_voting));
        }
    }

    /// Wakes whom barriers have let go.
    fn hand_out(&mut self, warps: &mut [Warp<'a>]) {
        for (waiter, clock, yes, all) in self.released.drain(..) {
            let warp = &mut warps[waiter.warp as usize];
            races::join(&mut warp.clock, &clock);
            warp.waiting = None;
            match waiter.result {
                None => {}
                Some(Tally::Count(dst)) => warp.put(dst, waiter.mask, &[yes.into(); 32]),
                Some(Tally::Reduce(op, dst)) => {
                    let holds = if op == Connective::And { yes == all } else { yes > 0 };
                    warp.put_pred(dst, waiter.mask, if holds { u32::MAX } else { 0 });
                }
            }
        }
    }

    /// `barrier.cluster.arrive` of a cluster of one block.
    pub(super) fn arrive_cluster(&mut self, warp: &mut Warp<'a>) {
        warp.cluster_generation = self.cluster_generation;
        self.cluster_arrived += 1;
        races::join(&mut self.cluster_clock, &warp.release());
        self.complete_cluster();
    }

    fn complete_cluster(&mut self) {
        if self.cluster_arrived > 0 && self.cluster_arrived >= self.live_warps {
            self.cluster_arrived = 0;
            self.cluster_generation += 1;
        }
    }

    fn fault(&self, warp: &Warp<'a>, pc: usize, problem: Problem) -> Error {
        let instruction = &self.kernel.code[pc];
        Error::Fault(Box::new(Fault {
            kind: problem.kind,
            kernel: self.kernel.name.clone(),
            block: self.grid.index,
            warp: warp.index,
            lane: problem.lane,
            line: instruction.line,
            text: self.kernel.text_of(instruction),
            problem: problem.text,
        }))
    }

    /// Everyone waits, and nothing is under way that could end a wait.
    fn deadlock(&self, warps: &[Warp<'a>]) -> Error {
        let mut waits: Vec<(String, Vec<u32>)> = Vec::new();
        let blocked = warps.iter().filter(|warp| !warp.is_done());
        for warp in blocked.clone() {
            let what = match &warp.waiting {
                Some(Waiting::Barrier { id }) => {
                    let barrier = &self.barriers[*id];
                    let expected = barrier.expected.unwrap_or(self.live_warps * 32);
                    format!(
                        "at barrier {id}, where {} of {expected} threads have arrived",
                        barrier.arrived
                    )
                }
                Some(Waiting::Cluster { .. }) => "at the cluster's barrier".into(),
                Some(Waiting::Mbarrier { at, until }) => self.mbarriers.describe(*at, *until),
                Some(Waiting::Product { number }) => {
                    format!("for the rest of their warp group to start its wgmma number {number}")
                }
                None => continue,
            };
            match waits.iter_mut().find(|(known, _)| *known == what) {
                Some((_, who)) => who.push(warp.index),
                None => waits.push((what, vec![warp.index])),
            }
        }
        let lines: Vec<String> =
            waits.iter().map(|(what, who)| format!("warps {who:?} wait {what}")).collect();
        let text = format!("nobody in the block can go on: {}", lines.join("; "));
        let first = blocked.clone().next().unwrap_or(&warps[0]);
        let pc = first.paths.last().map_or(0, |path| path.pc);
        // Past a barrier the warp is at the instruction after it.
        let at_barrier = matches!(first.waiting, Some(Waiting::Barrier { .. }));
        self.fault(
            first,
            pc.saturating_sub(usize::from(at_barrier)),
            Problem::new(FaultKind::Deadlock, text),
        )
    }
}

fn people(expected: Option<u32>) -> String {
    expected.map_or_else(|| "all threads".into(), |threads| format!("{threads} threads"))
}

/// The mbarriers at which warps wait.
fn waited(warps: &[Warp<'_>]) -> Vec<u32> {
    let at = |warp: &Warp<'_>| match warp.waiting {
        Some(Waiting::Mbarrier { at, .. }) => Some(at),
        _ => None,
    };
    warps.iter().filter_map(at).collect()
}
