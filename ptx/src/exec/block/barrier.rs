//! The barriers of a block: who has come, who waits, and what they learn there.

use super::{Block, Flow};
use crate::error::{FaultKind, Problem};
use crate::exec::warp::{Waiting, Warp};
use crate::isa::{BarrierKind, Connective, Pred, Reg};
use crate::races::{self, AGENTS, Clock};

/// Who waits at a barrier, and what it gets.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) warp: u32,
    mask: u32,
    result: Option<Tally>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Tally {
    Reduce(Connective, Pred),
    Count(Reg),
}

/// One of the sixteen barriers of a block.
#[derive(Debug)]
pub(super) struct Barrier {
    pub(super) arrived: u32,
    /// Threads that an arrival said there would be; `None` means all.
    pub(super) expected: Option<u32>,
    pub(super) waiters: Vec<Waiter>,
    clock: Clock,
    threads_true: u32,
    threads_voting: u32,
}

impl Default for Barrier {
    fn default() -> Self {
        Self {
            arrived: 0,
            expected: None,
            waiters: Vec::new(),
            clock: [0; AGENTS],
            threads_true: 0,
            threads_voting: 0,
        }
    }
}

/// A warp that a barrier has let go, and what it learns there.
#[derive(Debug)]
pub(super) struct Released {
    waiter: Waiter,
    clock: Clock,
    threads_true: u32,
    threads_voting: u32,
}

impl<'a> Block<'a> {
    /// One arrival of a whole warp at a barrier of the block.
    pub(in crate::exec) fn arrive(
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

    pub(super) fn complete_if_full(&mut self, id: usize) {
        let barrier = &mut self.barriers[id];
        let expected = barrier.expected.unwrap_or(self.live_warps * 32);
        if barrier.arrived == 0 || barrier.arrived < expected {
            return;
        }
        let done = std::mem::take(barrier);
        self.counts.barriers += 1;
        for waiter in done.waiters {
            self.released.push(Released {
                waiter,
                clock: done.clock,
                threads_true: done.threads_true,
                threads_voting: done.threads_voting,
            });
        }
    }

    /// Wakes whom barriers have let go.
    pub(super) fn hand_out(&mut self, warps: &mut [Warp<'a>]) {
        for released in self.released.drain(..) {
            let Released { waiter, clock, threads_true: yes, threads_voting: all } = released;
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
    pub(in crate::exec) fn arrive_cluster(&mut self, warp: &mut Warp<'a>) -> Result<(), Problem> {
        let bit = 1 << warp.index;
        if self.cluster_arrived & bit != 0 {
            return Err(Problem::invalid("the warp came to the cluster's barrier twice"));
        }
        warp.cluster_generation = self.cluster_generation;
        self.cluster_arrived |= bit;
        races::join(&mut self.cluster_clock, &warp.release());
        self.complete_cluster();
        Ok(())
    }

    /// A warp that has returned is not waited for, and stands for no other if it had come before.
    pub(super) fn leave_cluster(&mut self, warp: u32) {
        self.cluster_arrived &= !(1 << warp);
        self.complete_cluster();
    }

    fn complete_cluster(&mut self) {
        if self.cluster_arrived != 0 && self.cluster_arrived.count_ones() >= self.live_warps {
            self.cluster_arrived = 0;
            self.cluster_generation += 1;
        }
    }
}

fn people(expected: Option<u32>) -> String {
    expected.map_or_else(|| "all threads".into(), |threads| format!("{threads} threads"))
}
