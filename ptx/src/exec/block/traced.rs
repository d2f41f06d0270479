//! A step that somebody looks at.

use super::{Block, Flow};
use crate::error::Problem;
use crate::exec::warp::Warp;
use crate::trace::{Pending, PendingBarrier, Step, Trace};

impl<'a> Block<'a> {
    pub(super) fn step_traced(
        &mut self,
        warp: &mut Warp<'a>,
        trace: &mut dyn Trace,
    ) -> Result<Flow, Problem> {
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
}
