//! A block: its warps in turns.
//!
//! | File | Holds |
//! |---|---|
//! | `barrier.rs` | its barriers: who has come, who waits, and what they learn there |
//! | `traced.rs` | a step that somebody looks at |
//! | `deadlock.rs` | what is said when nobody can go on |
//! | `leaving.rs` | what threads may not leave unfinished |

mod barrier;
mod deadlock;
mod leaving;
mod traced;

use super::warp::{Waiting, Warp};
use super::{Grid, Shared};
use crate::Error;
use crate::counts::Counts;
use crate::error::{Fault, FaultKind, Problem};
use crate::hopper::{BulkCopies, Mbarriers, WarpGroups};
use crate::kernel::Kernel;
use crate::memory::Device;
use crate::races::{AGENTS, Clock};
use crate::trace::Trace;
use barrier::{Barrier, Released};
pub(super) use leaving::leave;

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
    released: Vec<Released>,
    /// The warps that have come to the cluster's barrier and have not returned since, one bit for each.
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
                return self.end(&warps);
            }
            if !progress
                && !self
                    .land_one(&waited(&warps))
                    .map_err(|(at, why)| self.fault_of(&warps, at, why))?
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
                let index = warp.index;
                self.leave_cluster(index);
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
}

/// The mbarriers at which warps wait.
fn waited(warps: &[Warp<'_>]) -> Vec<u32> {
    let at = |warp: &Warp<'_>| match warp.waiting {
        Some(Waiting::Mbarrier { at, .. }) => Some(at),
        _ => None,
    };
    warps.iter().filter_map(at).collect()
}
