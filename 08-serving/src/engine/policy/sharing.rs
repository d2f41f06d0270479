//! Blocks that several have, and what comes free of them when somebody goes.

use super::View;

/// How many of those inside have each of the blocks that several may have.
///
/// What somebody gives back is no number of its own. Two who go together give back what only they share; and what one who
/// comes in begins with is no room for it, whoever held it before.
#[derive(Clone, Default)]
pub(super) struct Sharing {
    /// By the block's number.
    holders: Vec<u32>,
}

impl Sharing {
    pub(super) fn of(inside: &[&View]) -> Self {
        let mut sharing = Sharing::default();
        inside.iter().for_each(|view| sharing.add(view));
        sharing
    }

    /// One more is inside.
    pub(super) fn add(&mut self, view: &View) {
        let end = view.common.iter().max().map_or(0, |&last| last as usize + 1);
        self.holders.resize(self.holders.len().max(end), 0);
        for &block in &view.common {
            self.holders[block as usize] += 1;
        }
    }

    /// One of those inside goes: how many of its blocks nobody has any more.
    pub(super) fn remove(&mut self, view: &View) -> usize {
        let mut free = view.places - view.common.len();
        for &block in &view.common {
            let holders = &mut self.holders[block as usize];
            *holders -= 1;
            free += usize::from(*holders == 0);
        }
        free
    }

    /// How many of the blocks that are known of one that waits somebody inside has.
    pub(super) fn in_use(&self, view: &View) -> usize {
        let holders = |block: &u32| self.holders.get(*block as usize).copied().unwrap_or(0);
        view.common.iter().filter(|block| holders(block) > 0).count()
    }
}
