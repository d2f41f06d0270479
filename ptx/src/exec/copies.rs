//! `cp.async`: copies of a warp that land when it waits for them, or with an mbarrier that hears of them, and not before.

use std::collections::VecDeque;

use super::block::Block;
use super::lanes;
use super::warp::Warp;
use crate::counts;
use crate::error::{FaultKind, Problem};
use crate::hopper::{CopyGroup, Load, Piece, Report};
use crate::isa::{Address, Operand};

/// One lane's copy.
#[derive(Debug, Clone, Copy)]
struct Copy {
    lane: usize,
    to: usize,
    bytes: u32,
    data: [u8; 16],
}

impl Copy {
    fn data(&self) -> &[u8] {
        &self.data[..self.bytes as usize]
    }
}

/// A warp's copies under way, but for those that an mbarrier will hear of. Groups are each thread's own in the ISA: a warp has
/// them in common here because no lane commits or waits without the others.
#[derive(Debug, Default)]
pub(super) struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
    /// Groups that have been waited for: the number of the oldest one under way.
    over: u64,
}

impl Copies {
    pub(super) fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// The first of these lanes that has copies under way.
    pub(super) fn unfinished(&self, mask: u32) -> Option<usize> {
        let copies = self.groups.iter().flatten().chain(&self.open);
        copies.map(|copy| copy.lane).filter(|lane| mask >> lane & 1 == 1).min()
    }

    /// What these lanes have under way goes over to whoever lands what mbarriers hear of. It stays in its groups in name.
    fn hand_over(&mut self, warp: u32, mask: u32) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (number, group) in (self.over..).zip(self.groups.iter_mut().chain([&mut self.open])) {
            let group_of = Some(CopyGroup { warp, number });
            let theirs = group.extract_if(.., |copy| mask >> copy.lane & 1 == 1);
            pieces.extend(theirs.map(|copy| Piece {
                at: copy.to,
                data: copy.data().to_vec(),
                group: group_of,
            }));
        }
        pieces
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
            let copy = self.begin_copy(warp, lane, [to[lane], from[lane]], bytes, wanted[lane]);
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

    fn begin_copy(
        &mut self,
        warp: &Warp<'a>,
        lane: usize,
        [to, from]: [u64; 2],
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
        Ok(Copy { lane, to, bytes, data })
    }

    pub(super) fn wait_copies(&mut self, warp: &mut Warp<'a>, most: Option<u32>) {
        if most.is_none() {
            warp.copies.commit();
        }
        while warp.copies.groups.len() > most.unwrap_or(0) as usize {
            let Some(group) = warp.copies.groups.pop_front() else { break };
            warp.copies.over += 1;
            for copy in &group {
                self.land_copy(warp, copy.to, copy.data());
            }
        }
        for piece in self.bulk.of_groups(warp.index, warp.copies.over, &mut warp.clock) {
            self.land_copy(warp, piece.at, &piece.data);
        }
    }

    fn land_copy(&mut self, warp: &Warp<'a>, to: usize, data: &[u8]) {
        self.shared.land(to, data, warp.index, warp.clock[warp.index as usize]);
    }

    /// `cp.async.mbarrier.arrive`: each lane's arrival comes when all that it has copied so far has landed. The lanes
    /// themselves have waited for nothing.
    pub(super) fn arrive_copies(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        barrier: &Address,
        counted: bool,
    ) -> Result<(), Problem> {
        let at = self.barrier_addresses(warp, barrier);
        let (known, begun) = (warp.release(), warp.here());
        let mut rest = mask;
        while let Some(first) = lanes(rest).next() {
            let barrier = at[first];
            let same =
                lanes(rest).fold(0, |same, lane| same | u32::from(at[lane] == barrier) << lane);
            rest &= !same;
            let threads = same.count_ones();
            // Without `noinc` the barrier waits for them beside those it was made for.
            let more = if counted { 0 } else { threads };
            self.mbarriers.await_more(barrier, more).map_err(|problem| problem.at(first))?;
            let (pieces, report) =
                (warp.copies.hand_over(warp.index, same), Report::Arrivals(threads));
            self.bulk.begin(Load { pieces, report, barrier, known, begun });
        }
        Ok(())
    }
}
