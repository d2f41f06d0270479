//! `cp.async`: copies of a warp that land when it waits for them, and not before.

use std::collections::VecDeque;

use super::block::Block;
use super::lanes;
use super::warp::Warp;
use crate::counts;
use crate::error::{FaultKind, Problem};
use crate::hopper::BulkRead;
use crate::isa::{Address, Operand};

/// One lane's copy.
#[derive(Debug, Clone, Copy)]
struct Copy {
    to: usize,
    bytes: u32,
    data: [u8; 16],
}

/// A warp's copies under way. Groups are each thread's own in the ISA: a warp has them in common here because no lane commits or
/// waits without the others.
#[derive(Debug, Default)]
pub(super) struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

impl Copies {
    pub(super) fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Bytes of each group, and last of those that are in none yet; empty if nothing is under way.
    pub(super) fn bytes(&self) -> Vec<u64> {
        if self.open.is_empty() && self.groups.is_empty() {
            return Vec::new();
        }
        let sum = |copies: &Vec<Copy>| copies.iter().map(|copy| u64::from(copy.bytes)).sum();
        self.groups.iter().chain([&self.open]).map(sum).collect()
    }
}

/// A warp's bulk copies out of shared memory, by group.
#[derive(Debug, Default)]
pub(crate) struct BulkGroups {
    pub(crate) open: Vec<BulkRead>,
    pub(crate) groups: VecDeque<Vec<BulkRead>>,
}

impl<'a> Block<'a> {
    pub(super) fn copy_async(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        to: &Address,
        from: &Address,
        bytes: u32,
        source_bytes: Option<Operand>,
    ) -> Result<(), Problem> {
        let (to, from) = (warp.addresses(to, &self.grid), warp.addresses(from, &self.grid));
        let wanted = match source_bytes {
            Some(operand) => warp.value(operand, &self.grid).map(|count| count & 0xffff_ffff),
            None => [bytes.into(); 32],
        };
        let mut sources = Vec::with_capacity(32);
        let mut targets = Vec::with_capacity(32);
        for lane in lanes(mask) {
            let copy = self.begin(warp, to[lane], from[lane], bytes, wanted[lane]);
            let copy = copy.map_err(|problem| problem.at(lane))?;
            targets.push((lane as u32, copy.to as u32));
            if wanted[lane] > 0 {
                sources.push(from[lane]);
                self.counts.global_load_bytes += wanted[lane];
            }
            warp.copies.open.push(copy);
        }
        self.counts.global_load_requests += u64::from(!sources.is_empty());
        self.counts.global_load_sectors += counts::sectors(sources.into_iter(), bytes.into());
        self.shared.count(&mut self.counts, &targets, bytes, true);
        Ok(())
    }

    fn begin(
        &mut self,
        warp: &Warp<'a>,
        to: u64,
        from: u64,
        bytes: u32,
        wanted: u64,
    ) -> Result<Copy, Problem> {
        let to = self.shared.place(to, bytes, bytes)?;
        if wanted > u64::from(bytes) {
            return Err(Problem::invalid(format!(
                "{wanted} bytes of a source for a copy of {bytes}"
            )));
        }
        let mut data = [0; 16];
        if !from.is_multiple_of(u64::from(bytes)) {
            let text = format!(
                "{bytes} bytes at {from:#x} of global memory; right would be a multiple of {bytes}"
            );
            return Err(Problem::new(FaultKind::Misaligned, text));
        }
        // What is not wanted is not read, and arrives as zeros.
        if wanted > 0 {
            let (allocation, offset) = self.global(from, wanted)?;
            allocation.read_bytes(offset, &mut data[..wanted as usize]);
        }
        self.shared.shadow.begin_copy(to, bytes as usize, warp.agent())?;
        Ok(Copy { to, bytes, data })
    }

    pub(super) fn wait_copies(&mut self, warp: &mut Warp<'a>, most: Option<u32>) {
        if most.is_none() {
            warp.copies.commit();
        }
        while warp.copies.groups.len() > most.unwrap_or(0) as usize {
            let Some(group) = warp.copies.groups.pop_front() else { break };
            self.land_copies(warp, &group);
        }
    }

    fn land_copies(&mut self, warp: &Warp<'a>, copies: &[Copy]) {
        for copy in copies {
            let data = &copy.data[..copy.bytes as usize];
            self.shared.land(copy.to, data, warp.index, warp.clock[warp.index as usize]);
        }
    }

    /// `cp.async.mbarrier.arrive`: everything so far lands, then the barrier hears of it.
    pub(super) fn arrive_copies(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        barrier: &Address,
        counted: bool,
    ) -> Result<(), Problem> {
        warp.copies.commit();
        self.wait_copies(warp, Some(0));
        let at = warp.addresses(barrier, &self.grid);
        let known = warp.release();
        for lane in lanes(mask) {
            // Without `noinc` the barrier expects one arrival more, which is this one: nothing is left to count.
            let count = u32::from(counted);
            self.mbarriers
                .arrive(at[lane], count, &known, &mut self.counts)
                .map_err(|problem| problem.at(lane))?;
        }
        Ok(())
    }
}
