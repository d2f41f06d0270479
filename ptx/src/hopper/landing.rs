//! Copies into shared memory that an mbarrier hears of: bulk copies, and `cp.async` with an arrival behind it.
//!
//! Such a copy lands as late as it can: when nobody in the block can go on, and somebody waits at its own mbarrier. Devices
//! promise no order between copies, so waiting for one says nothing of another. Which of several lands first is drawn with a
//! fixed seed. Until then its bytes belong to nobody, and from then on they are known to whoever waits at that mbarrier. Of
//! `cp.async` its own warp may wait by group as well.

use crate::error::{FaultKind, Problem};
use crate::exec::{Begun, Block};
use crate::races::{self, Clock};

/// Bytes on their way.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) at: usize,
    pub(crate) data: Vec<u8>,
    /// The group that they are in, of `cp.async`.
    pub(crate) group: Option<CopyGroup>,
}

/// One of a warp's groups of `cp.async`, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyGroup {
    pub(crate) warp: u32,
    pub(crate) number: u64,
}

impl CopyGroup {
    /// Whether the warp has waited for it, which has waited for so many.
    fn is_over(self, warp: u32, over: u64) -> bool {
        self.warp == warp && self.number < over
    }
}

/// What the mbarrier hears when a copy has landed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Report {
    /// How many bytes they were.
    Bytes,
    /// That so many threads arrive.
    Arrivals(u32),
}

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) report: Report,
    pub(crate) barrier: u64,
    /// What the warp that began it knew.
    pub(crate) known: Clock,
    pub(crate) begun: Begun,
}

impl Load {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.data.len() as u64).sum()
    }
}

/// A group of which something has landed with an mbarrier: whoever waits for the group knows of it.
#[derive(Debug)]
struct Landed {
    group: CopyGroup,
    agent: u32,
    clock: u32,
}

/// A block's copies under way.
#[derive(Debug)]
pub(crate) struct BulkCopies {
    loads: Vec<Load>,
    /// Mbarriers that copies have reported to, in order: their numbers give the copies' agents.
    barriers: Vec<u64>,
    /// How many copies have landed: the last one's clock.
    landed: u32,
    by_group: Vec<Landed>,
    /// State of an xorshift generator, which decides what lands first.
    random: u64,
}

impl Default for BulkCopies {
    fn default() -> Self {
        let random = 0x9e37_79b9_7f4a_7c15;
        let (loads, barriers, by_group) = (Vec::new(), Vec::new(), Vec::new());
        Self { loads, barriers, landed: 0, by_group, random }
    }
}

impl BulkCopies {
    pub(crate) fn begin(&mut self, load: Load) {
        self.loads.push(load);
    }

    /// Bytes that have not landed.
    pub(crate) fn bytes(&self) -> u64 {
        self.loads.iter().map(Load::bytes).sum()
    }

    /// A copy that has not landed at the block's end: where it was begun, and what is wrong with that.
    pub(crate) fn unfinished(&self) -> Option<(Begun, Problem)> {
        let load = self.loads.iter().find(|load| !load.pieces.is_empty())?;
        let text = format!(
            "the block ends before {} bytes from here have landed, of which the mbarrier at {:#x} would hear; right would be that somebody waits there",
            load.bytes(),
            load.barrier
        );
        Some((load.begun, Problem::new(FaultKind::InFlight, text)))
    }

    /// What has not landed of a warp's first groups of `cp.async`, for which it has waited. Of what has, it learns.
    pub(crate) fn of_groups(&mut self, warp: u32, over: u64, clock: &mut Clock) -> Vec<Piece> {
        self.by_group.retain(|landed| {
            let is_over = landed.group.is_over(warp, over);
            if is_over {
                let known = &mut clock[landed.agent as usize];
                *known = (*known).max(landed.clock);
            }
            !is_over
        });
        let is_over =
            |piece: &mut Piece| piece.group.is_some_and(|group| group.is_over(warp, over));
        self.loads.iter_mut().flat_map(|load| load.pieces.extract_if(.., is_over)).collect()
    }

    /// One of those whose mbarriers are waited at, or, if there is none, any.
    fn next(&mut self, waited: &[u32]) -> Option<Load> {
        let is_wanted = |load: &Load| waited.iter().any(|at| u64::from(*at) == load.barrier);
        let all = 0..self.loads.len();
        let mut choice: Vec<usize> =
            all.clone().filter(|&index| is_wanted(&self.loads[index])).collect();
        if choice.is_empty() {
            choice = all.collect();
        }
        if choice.is_empty() {
            return None;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let index = choice[(self.random % choice.len() as u64) as usize];
        Some(self.loads.swap_remove(index))
    }

    /// Who writes what reports to an mbarrier.
    fn agent(&mut self, barrier: u64) -> u32 {
        let known = self.barriers.iter().position(|&at| at == barrier);
        let number = known.unwrap_or_else(|| {
            self.barriers.push(barrier);
            self.barriers.len() - 1
        });
        races::copies_agent(number)
    }
}

impl<'a> Block<'a> {
    /// Lets one copy land. False if none is under way.
    ///
    /// # Errors
    /// If the mbarrier does not wait for the arrivals of threads; where they came from is told.
    pub(crate) fn land_one(&mut self, waited: &[u32]) -> Result<bool, (Begun, Problem)> {
        let Some(mut load) = self.bulk.next(waited) else { return Ok(false) };
        let agent = self.bulk.agent(load.barrier);
        self.bulk.landed += 1;
        let clock = self.bulk.landed;
        for piece in &load.pieces {
            self.shared.land(piece.at, &piece.data, agent, clock);
        }
        let mut groups: Vec<CopyGroup> =
            load.pieces.iter().filter_map(|piece| piece.group).collect();
        groups.dedup();
        let landed = |group| Landed { group, agent, clock };
        self.bulk.by_group.extend(groups.into_iter().map(landed));
        load.known[agent as usize] = clock;
        let (barrier, known, counts) = (load.barrier, &load.known, &mut self.counts);
        match load.report {
            Report::Bytes => {
                // An mbarrier that has gone meanwhile has nobody waiting.
                let _ = self.mbarriers.complete(barrier, load.bytes(), known, counts);
            }
            Report::Arrivals(threads) => {
                for _ in 0..threads {
                    let arrived = self.mbarriers.arrive(barrier, 1, known, counts);
                    arrived.map_err(|problem| (load.begun, problem))?;
                }
            }
        }
        Ok(true)
    }
}
