//! What is said when nobody in a block can go on.

use super::Block;
use crate::Error;
use crate::error::{FaultKind, Problem};
use crate::exec::warp::{Waiting, Warp};

impl<'a> Block<'a> {
    /// Everyone waits, and nothing is under way that could end a wait.
    pub(super) fn deadlock(&self, warps: &[Warp<'a>]) -> Error {
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
