//! Static batching: a batch at a time.

use super::draw::Draw;
use super::{Budget, Plan, Policy, State, View};

/// A batch at a time: who is inside stays until the last of them is done, and nobody comes in before.
///
/// How servers worked before continuous batching, and what that is measured against. Each request has room
/// for its longest text set aside, so nobody ever gives up a place. (Padding, which made it worse still, is not
/// imitated: rows of texts that are done are not run.)
#[derive(Debug, Clone, Copy, Default)]
pub struct StaticBatches;

impl Policy for StaticBatches {
    fn name(&self) -> &'static str {
        "static"
    }

    // ANCHOR: static
    fn schedule(&self, state: &State, budget: Budget) -> Plan {
        let mut draw = Draw::new(state, budget);
        draw.give_rows();
        if !draw.inside.is_empty() {
            return draw.plan;
        }
        let mut waiting: Vec<&View> = state.requests.iter().filter(|v| !v.is_stalled).collect();
        waiting.sort_by_key(|view| view.rank);
        let mut set_aside = state.free + state.cached;
        for view in waiting.into_iter().take(budget.running) {
            let needed = draw.blocks_for(view.longest) - draw.in_use(view);
            // The first one fits in any case: it has the pool to itself.
            if draw.prompt_rows == 0 || (needed > set_aside && !draw.inside.is_empty()) {
                break;
            }
            set_aside = set_aside.saturating_sub(needed);
            draw.admit(view);
        }
        draw.plan
    }
    // ANCHOR_END: static
}
