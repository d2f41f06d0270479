//! A plan in the making: rows and blocks that are left.

use super::sharing::Sharing;
use super::{Budget, Plan, PlannedSpan, State, View};

/// What has been given out so far. Requests inside are in order of rank, stalled ones last: the last goes
/// first when blocks are short.
#[derive(Clone)]
pub(super) struct Draw<'a> {
    pub(super) plan: Plan,
    pub(super) inside: Vec<&'a View>,
    /// Blocks that can still be taken.
    pub(super) blocks: usize,
    /// Rows for prompts. Each text has a row set aside, so that none waits for another's prompt.
    pub(super) prompt_rows: usize,
    block: usize,
    /// Who shares what of those inside; counted when it is first asked for, as most passes do not.
    sharing: Option<Sharing>,
}

impl<'a> Draw<'a> {
    pub(super) fn new(state: &'a State, budget: Budget) -> Self {
        let mut inside: Vec<&View> = state.requests.iter().filter(|v| v.is_running).collect();
        inside.sort_by_key(|view| (view.is_stalled, view.rank));
        let texts = inside.iter().filter(|v| has_turn(v) && v.pending() == 1).count();
        Draw {
            plan: Plan::default(),
            inside,
            blocks: state.free + state.cached,
            prompt_rows: budget.rows.saturating_sub(texts),
            block: state.block,
            sharing: None,
        }
    }

    pub(super) fn blocks_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block)
    }

    fn sharing(&mut self) -> &mut Sharing {
        self.sharing.get_or_insert_with(|| Sharing::of(&self.inside))
    }

    /// Blocks that a request that waits finds in others' hands: they take no room.
    pub(super) fn in_use(&mut self, view: &View) -> usize {
        if view.common.is_empty() { 0 } else { self.sharing().in_use(view) }
    }

    // ANCHOR: rows
    /// Rows for everyone inside, the first in rank first: a text's next row, or a prompt's next chunk.
    ///
    /// When there is no block for one more row, the last in rank gives up its place. Nobody does so for somebody
    /// who stands behind: the last one just waits. So the first in rank goes on in every pass, and whoever
    /// is first goes on until it is done.
    pub(super) fn give_rows(&mut self) {
        let mut turn = 0;
        while let Some(&view) = self.inside.get(turn) {
            let (text, pending) = (view.pending() == 1, view.pending());
            let wanted = if text { 1 } else { pending.min(self.prompt_rows) };
            if !has_turn(view) || wanted == 0 {
                turn += 1;
                continue;
            }
            let room = ((view.places + self.blocks) * self.block).saturating_sub(view.held);
            let rows = wanted.min(room);
            if rows == 0 && turn + 1 < self.inside.len() {
                self.send_out_last();
                continue;
            }
            if rows > 0 {
                self.blocks -= self.blocks_for(view.held + rows).saturating_sub(view.places);
                self.prompt_rows -= if text { 0 } else { rows };
                self.plan.spans.push(PlannedSpan { id: view.id, rows, guesses: 0 });
            }
            turn += 1;
        }
    }
    // ANCHOR_END: rows

    /// The last in rank gives up its place.
    pub(super) fn send_out_last(&mut self) {
        let Some(&view) = self.inside.last() else { return };
        self.blocks += self.sharing().remove(view);
        self.inside.pop();
        self.take_rows(view, usize::MAX);
        self.plan.preempt.push(view.id);
    }

    /// Rows for the prompt of somebody who comes in, also those of prompts inside that give way to it: the last in rank
    /// pauses first.
    pub(super) fn make_rows(&mut self, view: &View) {
        for paused in self.inside.clone().into_iter().rev() {
            if paused.pending() > 1 && gives_way(paused, view) {
                self.take_rows(paused, view.pending().saturating_sub(self.prompt_rows));
            }
        }
    }

    /// Takes back up to so many rows of a request, and the blocks that they were to take.
    fn take_rows(&mut self, view: &View, most: usize) {
        let Some(at) = self.plan.spans.iter().position(|span| span.id == view.id) else { return };
        let rows = self.plan.spans[at].rows;
        let left = rows.saturating_sub(most);
        let taken = |rows| self.blocks_for(view.held + rows).saturating_sub(view.places);
        self.blocks += taken(rows) - taken(left);
        self.prompt_rows += rows - left;
        match left {
            0 => drop(self.plan.spans.remove(at)),
            _ => self.plan.spans[at].rows = left,
        }
    }

    /// A request comes in, with as much of its prompt as there are rows for.
    pub(super) fn admit(&mut self, view: &'a View) {
        let in_use = self.in_use(view);
        let room = ((in_use + self.blocks) * self.block).saturating_sub(view.held);
        let rows = view.pending().min(self.prompt_rows).min(room);
        self.blocks -= (self.blocks_for(view.held + rows) - in_use).min(self.blocks);
        self.sharing().add(view);
        self.prompt_rows -= rows;
        self.plan.admit.push(view.id);
        self.plan.spans.push(PlannedSpan { id: view.id, rows, guesses: 0 });
        self.inside.push(view);
    }

    /// Blocks that those inside will still need for what they have to read.
    pub(super) fn promised(&self) -> usize {
        let rest = |view: &&View| {
            let rows = self.plan.spans.iter().find(|s| s.id == view.id).map_or(0, |s| s.rows);
            let has = self.blocks_for(view.held + rows).max(view.places);
            self.blocks_for(view.text).saturating_sub(has)
        };
        self.inside.iter().map(rest).sum()
    }
}

/// Whether a request inside may have rows.
fn has_turn(view: &View) -> bool {
    !view.is_stalled && !view.is_paused
}

/// Whether a request inside makes room for another: one of a higher priority that ranks before it. Who came in with this plan
/// has nothing to give up yet.
pub(super) fn gives_way(inside: &View, other: &View) -> bool {
    inside.is_running && inside.priority < other.priority && other.rank < inside.rank
}
