//! What followed the last words where they stood before.
//!
//! A text that is edited, quoted or summarised comes back in the answer. So the words that were written last
//! are looked up in what is already there, and what followed them is proposed (inference with reference, Yang
//! et al. 2023; prompt lookup decoding, Saxena 2023). No model, next to no time.

use crate::proposer::Proposer;
use crate::tree::DraftTree;
use naive_decode::{Result, Sampler};
use std::collections::HashMap;

/// Longest and shortest run of last words that is looked up, in tokens.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// Places of one run of tokens that are remembered, the latest.
const PLACES: usize = 4;

// ANCHOR: lookup
/// Looks the last words up in the text so far, and in a reference if there is one.
///
/// Longer runs of words go first: what followed four equal words is the better guess. Where a run stood in
/// several places that went on differently, each goes into the tree.
#[derive(Debug, Clone, Default)]
pub struct PromptLookup {
    /// The reference, and then the text, as far as they are in the index.
    known: Vec<u32>,
    /// Tokens of `known` that are the reference's.
    reference: usize,
    /// For every run of tokens, where it was followed by something: the index after its last token.
    places: HashMap<Box<[u32]>, Vec<usize>>,
    /// Different continuations that go into the tree, at most.
    branches: usize,
}
// ANCHOR_END: lookup

impl PromptLookup {
    /// With the text alone.
    pub fn new() -> Self {
        PromptLookup { branches: 1, ..PromptLookup::default() }
    }

    /// With a text that the answer may quote.
    pub fn with_reference(reference: &[u32]) -> Self {
        let mut lookup = PromptLookup::new();
        reference.iter().for_each(|&token| lookup.add(token));
        lookup.reference = reference.len();
        lookup
    }

    /// The same with several continuations, as a tree.
    pub fn with_branches(self, branches: usize) -> Self {
        PromptLookup { branches: branches.max(1), ..self }
    }

    /// Takes one more token into the index. A run of words is never looked up across the end of the
    /// reference.
    fn add(&mut self, token: u32) {
        let end = self.known.len();
        let begin = if end >= self.reference { self.reference } else { 0 };
        for length in SHORTEST..=LONGEST.min(end - begin.min(end)) {
            let places = self.places.entry(self.known[end - length..].into()).or_default();
            if places.len() == PLACES {
                places.remove(0);
            }
            places.push(end);
        }
        self.known.push(token);
    }

    /// Brings the index up to a text.
    fn follow(&mut self, context: &[u32]) {
        let text = &self.known[self.reference..];
        if !context.starts_with(text) {
            // Another text: only the reference stays.
            let reference = self.known[..self.reference].to_vec();
            *self = PromptLookup::with_reference(&reference).with_branches(self.branches);
        }
        for &token in &context[self.known.len() - self.reference..] {
            self.add(token);
        }
    }
}

impl Proposer for PromptLookup {
    fn name(&self) -> &'static str {
        "prompt lookup"
    }

    fn nodes(&self, depth: usize) -> usize {
        self.branches * depth
    }

    // ANCHOR: propose
    fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
        self.follow(context);
        let mut tree = DraftTree::empty();
        let mut branches = 0;
        for length in (SHORTEST..=LONGEST.min(context.len())).rev() {
            let Some(places) = self.places.get(&context[context.len() - length..]) else {
                continue;
            };
            for &place in places.iter().rev() {
                let end = self.known.len().min(place + depth);
                let nodes = tree.len();
                tree.add_chain(None, &self.known[place..end]);
                branches += usize::from(tree.len() > nodes);
                if branches == self.branches {
                    return Ok(tree);
                }
            }
        }
        Ok(tree)
    }
    // ANCHOR_END: propose
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::Sampling;

    fn tokens(lookup: &mut PromptLookup, context: &[u32], depth: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(Sampling::default()).unwrap();
        let tree = lookup.propose(context, depth, &mut sampler).unwrap();
        tree.nodes().iter().map(|node| node.token).collect()
    }

    #[test]
    fn what_followed_before_is_proposed() {
        let mut lookup = PromptLookup::new();
        assert_eq!(tokens(&mut lookup, &[1, 2, 3, 4, 9, 1, 2], 3), [3, 4, 9]);
        // The text has gone on.
        assert_eq!(tokens(&mut lookup, &[1, 2, 3, 4, 9, 1, 2, 3, 4], 8), [9, 1, 2, 3, 4]);
        // And is another one.
        assert_eq!(tokens(&mut lookup, &[7, 8, 7], 3), [0; 0]);
        assert_eq!(tokens(&mut lookup, &[7, 8, 7, 8], 3), [7, 8]);
    }

    #[test]
    fn longer_runs_of_words_go_first_and_later_places_before_earlier() {
        let text = [1, 2, 3, 50, 2, 3, 60, 1, 2, 3];
        assert_eq!(tokens(&mut PromptLookup::new(), &text, 1), [50]);
        let text = [2, 3, 50, 2, 3, 60, 2, 3];
        assert_eq!(tokens(&mut PromptLookup::new(), &text, 1), [60]);
        assert_eq!(tokens(&mut PromptLookup::new().with_branches(2), &text, 1), [60, 50]);
    }

    #[test]
    fn a_reference_is_looked_up_too() {
        let mut lookup = PromptLookup::with_reference(&[5, 6, 7, 8]);
        assert_eq!(tokens(&mut lookup, &[1, 5, 6], 5), [7, 8, 1, 5, 6]);
        assert_eq!(tokens(&mut lookup, &[8, 1], 5), [0; 0], "no run across the reference's end");
    }
}
