//! Bulk copies out of shared memory, in groups that each thread commits and waits for by itself.

use std::collections::VecDeque;

use crate::error::Problem;
use crate::exec::{Block, Warp, lanes};

/// Bytes of shared memory that a copy out of it reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct BulkRead {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// One thread's copies.
#[derive(Debug, Default)]
struct Stores {
    open: Vec<BulkRead>,
    groups: VecDeque<Vec<BulkRead>>,
}

/// A warp's copies, lane by lane: who waits has waited for its own alone.
#[derive(Debug, Default)]
pub(crate) struct BulkGroups([Stores; 32]);

impl BulkGroups {
    pub(super) fn begin(&mut self, lane: usize, read: BulkRead) {
        self.0[lane].open.push(read);
    }

    pub(super) fn commit(&mut self, mask: u32) {
        for lane in lanes(mask) {
            let Stores { open, groups } = &mut self.0[lane];
            groups.push_back(std::mem::take(open));
        }
    }

    /// The first of these lanes that has copies under way, and what it should have done about them.
    pub(crate) fn unfinished(&self, mask: u32) -> Option<(usize, &'static str)> {
        lanes(mask).find_map(|lane| {
            let Stores { open, groups } = &self.0[lane];
            if !open.is_empty() {
                return Some((lane, "to commit them to a group, and to wait for it"));
            }
            let waits = groups.iter().any(|group| !group.is_empty());
            waits.then_some((lane, "to wait for their group"))
        })
    }
}

impl<'a> Block<'a> {
    /// Until each of these lanes has at most so many groups under way.
    pub(super) fn wait_bulk(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        most: u32,
    ) -> Result<(), Problem> {
        for lane in lanes(mask) {
            let groups = &mut warp.bulk.0[lane].groups;
            let over = groups.len().saturating_sub(most as usize);
            for read in groups.drain(..over).flatten().collect::<Vec<_>>() {
                self.shared.shadow.hold(read.at, read.len, false);
                let read = self.shared.shadow.read(read.at, read.len, warp.agent());
                read.map_err(|problem| problem.at(lane))?;
            }
        }
        Ok(())
    }
}
