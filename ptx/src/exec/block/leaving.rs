//! What threads may not leave unfinished: nobody else can wait for it, and the memory it works on is given to others.

use super::Block;
use crate::Error;
use crate::counts::Counts;
use crate::error::{FaultKind, Problem};
use crate::exec::warp::{Begun, Warp};

/// Some lanes of a warp return.
pub(in crate::exec) fn leave(warp: &mut Warp<'_>, gone: u32) -> Result<(), Problem> {
    let unfinished = |what: &str, right: &str| {
        let text = format!("returns with {what} under way; right would be {right} before");
        Problem::new(FaultKind::InFlight, text)
    };
    if let Some((lane, right)) = warp.bulk.unfinished(gone) {
        return Err(unfinished("bulk copies out of shared memory", right).at(lane));
    }
    if let Some(lane) = warp.copies.unfinished(gone) {
        let right = "to wait for all groups, or to let an mbarrier hear of them";
        return Err(unfinished("`cp.async` copies", right).at(lane));
    }
    if warp.products.count() > 0 {
        return Err(unfinished("`wgmma` products", "to commit them and to wait for their groups"));
    }
    warp.exit(gone);
    Ok(())
}

impl<'a> Block<'a> {
    /// Everyone has returned.
    pub(super) fn end(self, warps: &[Warp<'a>]) -> Result<Counts, Error> {
        match self.bulk.unfinished() {
            None => Ok(self.counts),
            Some((begun, problem)) => Err(self.fault_of(warps, begun, problem)),
        }
    }

    /// A fault of what a warp began some time ago.
    pub(super) fn fault_of(&self, warps: &[Warp<'a>], begun: Begun, problem: Problem) -> Error {
        self.fault(&warps[begun.warp as usize], begun.pc, problem)
    }
}
