//! Continuous batching: whoever fits comes in, in every pass.

use super::drafts::share_out;
use super::draw::{Draw, gives_way};
use super::{Budget, Plan, Policy, State, View};

/// Whoever fits comes in, in every pass, and whoever is done makes room at once.
///
/// In this order: a row for each text that is being written, so that no prompt makes it wait; what rows are left, for
/// prompts inside; new requests, as long as the pool has room for all of their prompts; and guesses, in rows that
/// would be empty otherwise.
///
/// **Coming in** is strictly in order of rank. If the first one does not fit, nobody does: small requests that
/// slip past a large one could keep it waiting for ever. Besides the blocks of its prompt there must be one more
/// for everyone, or the next pass might throw it out again.
///
/// **Going out** happens to the last in rank: when a block is short, and when somebody who does not fit otherwise is
/// of a higher priority and ranks before it. Priority alone would not do: rank is how whoever waits rises. A prompt that is
/// being read pauses for the same one where rows are short.
#[derive(Debug, Clone, Copy, Default)]
pub struct Continuous;

impl Policy for Continuous {
    fn name(&self) -> &'static str {
        "continuous"
    }

    // ANCHOR: schedule
    fn schedule(&self, state: &State, budget: Budget) -> Plan {
        let mut draw = Draw::new(state, budget);
        draw.give_rows();
        if draw.plan.preempt.is_empty() {
            admit(&mut draw, state, budget);
        }
        let unpromised = draw.blocks.saturating_sub(draw.promised());
        let mut plan = draw.plan;
        let rows = budget.rows.saturating_sub(plan.rows());
        share_out(&mut plan.spans, state, rows, unpromised);
        plan
    }
    // ANCHOR_END: schedule
}

// ANCHOR: admit
/// Lets in who waits, in order of rank.
fn admit<'a>(draw: &mut Draw<'a>, state: &'a State, budget: Budget) {
    let mut waiting: Vec<&View> =
        state.requests.iter().filter(|v| !v.is_running && !v.is_stalled).collect();
    waiting.sort_by_key(|view| view.rank);
    for view in waiting {
        if is_being_read(draw, view.behind) {
            continue; // what it shares with that one will be known soon
        }
        if !make_place(draw, view, budget) {
            break;
        }
        draw.admit(view);
    }
}
// ANCHOR_END: admit

/// Whether rows of a prompt run in this pass.
fn is_being_read(draw: &Draw, id: Option<u64>) -> bool {
    let has_rows = |id| draw.plan.spans.iter().any(|span| span.id == id);
    draw.inside.iter().any(|view| Some(view.id) == id && view.pending() > 1 && has_rows(view.id))
}

/// Whether there are a place and rows for a request, perhaps because others of lower priority that rank behind give up theirs.
fn make_place<'a>(draw: &mut Draw<'a>, view: &View, budget: Budget) -> bool {
    // Nobody goes out in vain, and no prompt pauses.
    let mut tried = draw.clone();
    while !fits(&mut tried, view, budget) {
        // Whoever came in with this plan has no place to give up yet.
        let last = tried.inside.last().filter(|last| last.is_running);
        if !last.is_some_and(|last| last.is_stalled || gives_way(last, view)) {
            return false;
        }
        tried.send_out_last();
    }
    tried.make_rows(view);
    if tried.prompt_rows == 0 {
        return false;
    }
    *draw = tried;
    true
}

fn fits(draw: &mut Draw, view: &View, budget: Budget) -> bool {
    // One alone always fits.
    if draw.inside.is_empty() || draw.inside.len() >= budget.running {
        return draw.inside.is_empty();
    }
    // The next pass may take a block for everyone, this one included.
    let spare = draw.inside.len() + 1;
    let needed = draw.blocks_for(view.text) + draw.promised() + spare;
    // Most often there is no room even if others have all that is known; then nobody counts what they have.
    needed - view.common.len() <= draw.blocks && needed - draw.in_use(view) <= draw.blocks
}
