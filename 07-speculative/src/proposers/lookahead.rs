//! What the target itself said of guesses about its future.
//!
//! Text is a fixed point: the token in each place is what the target says after all tokens before it. So
//! guess the next few tokens, ask the target about all of them at once, put its answers in the guesses' place,
//! and ask again (Jacobi iteration). The first place is right after one pass, the second after two at the
//! latest; often several come right at once. On the way, short runs of tokens come by that fit together, and
//! those go into a pool: when the text reaches the token that a run begins with, the run is proposed too
//! (lookahead decoding, Fu et al. 2024). No model but the target, and the only price is a wider pass.
//!
//! Here the guesses are one branch of the draft tree and the runs of the pool are others, so that the target
//! says something about all of them in the pass that verifies them.

use crate::proposer::{Proposer, Verdict};
use crate::tree::DraftTree;
use naive_decode::{Result, Sampler, argmax};
use std::collections::{HashMap, VecDeque};

/// Tokens of a run in the pool, the one that it begins with not counted.
const RUN: usize = 4;

/// Runs kept for each first token, the latest.
const RUNS: usize = 4;

// ANCHOR: lookahead
/// A window of guesses and a pool of runs.
#[derive(Debug, Clone, Default)]
pub struct Lookahead {
    /// Guesses for the places after the text.
    window: Vec<u32>,
    /// Runs by their first token, the latest last.
    pool: HashMap<u32, VecDeque<[u32; RUN]>>,
    /// The nodes of the last tree that were the window.
    window_nodes: Vec<usize>,
}
// ANCHOR_END: lookahead

impl Lookahead {
    /// An empty window and an empty pool.
    pub fn new() -> Self {
        Lookahead::default()
    }

    /// Keeps a run.
    fn keep(&mut self, first: u32, run: [u32; RUN]) {
        let runs = self.pool.entry(first).or_default();
        runs.retain(|known| *known != run);
        runs.push_back(run);
        if runs.len() > RUNS {
            runs.pop_front();
        }
    }

    /// Keeps the runs in a stretch of tokens.
    fn keep_all(&mut self, tokens: &[u32]) {
        for window in tokens.windows(RUN + 1) {
            self.keep(window[0], window[1..].try_into().expect("a run is so long"));
        }
    }
}

impl Proposer for Lookahead {
    fn name(&self) -> &'static str {
        "lookahead"
    }

    // ANCHOR: propose
    fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
        let Some(&last) = context.last() else { return Ok(DraftTree::empty()) };
        let mut tree = DraftTree::empty();
        // The latest run is the likeliest, and stands in line with the text.
        for run in self.pool.get(&last).into_iter().flatten().rev() {
            tree.add_chain(None, &run[..RUN.min(depth)]);
        }
        // Nothing is known about places never asked about: any token of the text will do to begin with.
        let unknown = context.iter().copied().cycle().skip(context.len() / 2);
        self.window.extend(unknown.take(depth.saturating_sub(self.window.len())));
        let end = tree.add_chain(None, &self.window[..depth]);
        self.window_nodes = end.map_or(Vec::new(), |end| tree.path(end));
        Ok(tree)
    }
    // ANCHOR_END: propose

    fn nodes(&self, depth: usize) -> usize {
        let runs = self.pool.values().map(VecDeque::len).max().unwrap_or(0);
        runs * RUN.min(depth) + depth
    }

    // ANCHOR: learn
    /// Puts the target's answers in the guesses' place, as far behind the text as it has come.
    fn learn(&mut self, verdict: &Verdict) {
        let answer = |row: usize| argmax(&verdict.logits.row(row).to_vec());
        // After the text's last token, and after each guess that there was room for.
        let window = self.window_nodes.iter().filter(|&&node| node < verdict.tree.len());
        let rows = std::iter::once(0).chain(window.map(|node| node + 1));
        let Ok(answers) = rows.map(answer).collect::<Result<Vec<u32>>>() else { return };
        self.keep_all(&answers);
        let come = verdict.path.len() + 1;
        let latest: Vec<u32> =
            verdict.path.iter().map(|&n| verdict.tree.nodes()[n].token).collect();
        let text = &verdict.context[verdict.context.len().saturating_sub(RUN + 1)..];
        self.keep_all(&[text, &latest, &[verdict.next]].concat());
        // Places further on, that were not asked about, keep what was guessed.
        let further = self.window.get(answers.len()..).unwrap_or_default();
        let guesses = [&answers[..], further].concat();
        self.window = guesses.get(come..).unwrap_or_default().to_vec();
    }
    // ANCHOR_END: learn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::accept;
    use naive_decode::Sampling;
    use ndarray::Array2;

    const VOCAB: usize = 6;

    /// A cycle under a target that says `says(place, token)` after the token in a place; gives how many guesses are kept.
    fn cycle(
        lookahead: &mut Lookahead,
        context: &mut Vec<u32>,
        depth: usize,
        says: impl Fn(usize, u32) -> usize,
    ) -> usize {
        let mut sampler = Sampler::new(Sampling::default()).unwrap();
        let tree = lookahead.propose(context, depth, &mut sampler).unwrap();
        let last = context.len() - 1;
        let mut answers = vec![says(last, context[last])];
        for (node, depth) in tree.nodes().iter().zip(tree.depths()) {
            answers.push(says(last + depth, node.token));
        }
        let one_hot = |(row, token): (usize, usize)| f32::from(u8::from(answers[row] == token));
        let logits = Array2::from_shape_fn((answers.len(), VOCAB), one_hot);
        let accepted = accept(&mut sampler, context, &tree, logits.view()).unwrap();
        let (path, next, logits) = (&accepted.path[..], accepted.next, logits.view());
        lookahead.learn(&Verdict { context: &context[..], tree: &tree, path, next, logits });
        context.extend(path.iter().map(|&node| tree.nodes()[node].token));
        context.push(next);
        path.len()
    }

    #[test]
    fn runs_that_the_text_has_had_are_proposed_again() {
        // Counts, and begins again.
        let counts = |_: usize, token: u32| (token as usize + 1) % VOCAB;
        let (mut lookahead, mut context) = (Lookahead::new(), vec![0]);
        let kept: Vec<usize> =
            (0..12).map(|_| cycle(&mut lookahead, &mut context, 4, counts)).collect();
        // From the second round on.
        assert_eq!(kept, [[0; 6], [4; 6]].concat());
        assert!(context.iter().enumerate().all(|(at, &token)| token as usize == at % VOCAB));
    }

    #[test]
    fn answers_take_the_guesses_place_and_wait_there_while_nothing_is_asked() {
        // Says the same in a place whatever stands before it: every answer is right.
        let place = |place: usize, _: u32| (place + 1) % VOCAB;
        let (mut lookahead, mut context) = (Lookahead::new(), vec![0]);
        let kept = [3, 0, 2].map(|depth| cycle(&mut lookahead, &mut context, depth, place));
        assert_eq!(kept, [0, 0, 2]);
        assert_eq!(context, [0, 1, 2, 3, 4, 5]);
        assert!(!lookahead.pool.contains_key(&2), "the window alone has guessed");
    }
}
