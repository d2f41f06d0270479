//! Which guesses are worth a row.

use super::{PlannedSpan, State};

/// More tokens a second must be promised than this, as a factor, before anything is guessed.
const WORTH_IT: f64 = 1.03;

/// Guesses of a probe.
const PROBE: usize = 2;

// ANCHOR: share_out
/// Adds guesses to the spans of a plan, in `rows` rows and `blocks` blocks that would be empty otherwise.
///
/// A row with a guess makes the pass longer, for everyone in it, and brings a token with some chance. So rows are
/// added where the chance is best, as many as make the tokens a second of the whole pass largest.
/// With one request in the batch a pass takes hardly longer for a few rows more, and guesses pay; with many
/// of them it does, and they stop by themselves.
pub fn share_out(spans: &mut [PlannedSpan], state: &State, rows: usize, blocks: usize) {
    let view = |id: u64| state.requests.iter().find(|view| view.id == id);
    let mut chances: Vec<(f64, usize)> = Vec::new();
    let (mut probed, mut texts) = (0, 0);
    for (at, span) in spans.iter_mut().enumerate() {
        let Some(view) = view(span.id).filter(|view| view.pending() == span.rows) else { continue };
        texts += 1;
        if view.probes {
            span.guesses = view.guesses.len().min(PROBE).min(rows - probed);
            probed += span.guesses;
        }
        chances.extend(view.guesses.iter().skip(span.guesses).map(|&chance| (chance, at)));
    }
    // Stable, and chances only fall along a text's guesses, which stand level by level: they stay in order.
    chances.sort_by(|a, b| b.0.total_cmp(&a.0));
    let base = spans.iter().map(|span| span.rows + span.guesses).sum::<usize>();
    let Some(plain) = state.times.seconds(base) else { return limit(spans, state, blocks) };
    let (mut tokens, mut best) = (texts as f64, (WORTH_IT * texts as f64 / plain, 0));
    for (added, (chance, _)) in chances.iter().take(rows - probed).enumerate() {
        tokens += chance;
        let Some(seconds) = state.times.seconds(base + added + 1) else { break };
        if tokens / seconds > best.0 {
            best = (tokens / seconds, added + 1);
        }
    }
    for &(_, at) in &chances[..best.1] {
        spans[at].guesses += 1;
    }
    limit(spans, state, blocks);
}
// ANCHOR_END: share_out

/// Takes guesses back for which there are no blocks: nobody gives up a place for a guess.
fn limit(spans: &mut [PlannedSpan], state: &State, mut blocks: usize) {
    for span in spans.iter_mut().filter(|span| span.guesses > 0) {
        let Some(view) = state.requests.iter().find(|view| view.id == span.id) else { continue };
        let text = view.text.div_ceil(state.block);
        let most = (text + blocks) * state.block - view.text;
        span.guesses = span.guesses.min(most);
        blocks -= (view.text + span.guesses).div_ceil(state.block) - text;
    }
}
