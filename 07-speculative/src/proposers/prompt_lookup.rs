//! What followed the last words where they stood before.
//!
//! A text that is edited, quoted or summarised comes back in the answer. So the words that were written last
//! are looked up in what is already there, and what followed them is proposed (inference with reference, Yang
//! et al. 2023; prompt lookup decoding, Saxena 2023). No model, next to no time.

use crate::proposer::{FromText, Proposer};
use crate::tree::DraftTree;
use naive_decode::{Result, Sampler};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

/// Fewest equal words, in tokens, after which what followed is a guess.
const SHORTEST: usize = 2;

/// Longest run of last words that is compared. What is equal for so long will hardly be told apart by more.
const LONGEST: usize = 64;

/// So many equal words say something of how sure a guess is: where they were followed by other words than the guess,
/// oftener than by the guess, it is in doubt.
const SURE: usize = 4;

/// Places of one run of tokens that are remembered, the latest.
const PLACES: usize = 64;

/// Guesses in doubt are made if so many of the latest came true.
const TRUSTED: f64 = 0.6;

/// Weight of the latest among them.
const LATEST: f64 = 0.25;

// ANCHOR: lookup
/// Looks the last words up in the text so far, and in a reference if there is one.
///
/// Where more of the last words stood before goes first: a frame that is filled in again and again has its last four words
/// everywhere, and a whole line of it only where the same comes next. Where it went on differently in several places, each
/// goes into the tree.
#[derive(Debug, Clone)]
pub struct PromptLookup {
    /// The reference, and then the text, as far as they are in the index.
    known: Vec<u32>,
    /// Tokens of `known` that are the reference's.
    reference: usize,
    /// For every pair of tokens, where it was followed by something.
    pairs: Index<SHORTEST>,
    /// The same for every four: of a pair that is everywhere, the places where more was equal would be forgotten.
    fours: Index<SURE>,
    /// Different continuations that go into the tree, at most.
    branches: usize,
    /// The last guess that was in doubt.
    doubt: Option<Doubt>,
    /// How many such guesses came true of late, of 1.
    trust: f64,
}
// ANCHOR_END: lookup

/// For every run of `N` tokens, the latest places right after it.
type Index<const N: usize> = HashMap<[u32; N], VecDeque<usize>>;

/// Remembers one more place, if there are so many tokens before it.
fn remember<const N: usize>(index: &mut Index<N>, before: &[u32], place: usize) {
    if let Some(&run) = before.last_chunk() {
        let places = index.entry(run).or_default();
        if places.len() == PLACES {
            places.pop_front();
        }
        places.push_back(place);
    }
}

/// The places after the last `N` tokens of a text, the latest first.
fn places<const N: usize>(index: &Index<N>, text: &[u32]) -> impl Iterator<Item = usize> {
    text.last_chunk().and_then(|run| index.get(run)).into_iter().flatten().rev().copied()
}

/// A guess in doubt, made or not: the text's next tokens from `at` on, and the one in question last.
#[derive(Debug, Clone)]
struct Doubt {
    at: usize,
    tokens: Vec<u32>,
}

impl Default for PromptLookup {
    fn default() -> Self {
        PromptLookup {
            known: Vec::new(),
            reference: 0,
            pairs: HashMap::new(),
            fours: HashMap::new(),
            branches: 1,
            doubt: None,
            trust: 0.5,
        }
    }
}

impl PromptLookup {
    /// With the text alone.
    pub fn new() -> Self {
        PromptLookup::default()
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

    /// Takes one more token into the index. No run of words reaches across the end of the reference.
    fn add(&mut self, token: u32) {
        let place = self.known.len();
        let before = &self.known[self.begin(place)..];
        remember(&mut self.pairs, before, place);
        remember(&mut self.fours, before, place);
        self.known.push(token);
    }

    /// Where the reference or the text begins, whichever has the words before `place`.
    fn begin(&self, place: usize) -> usize {
        if place >= self.reference { self.reference } else { 0 }
    }

    /// How many of a text's last words stood before `place` too.
    fn equal(&self, place: usize, text: &[u32]) -> usize {
        let before = self.known[self.begin(place)..place].iter().rev();
        before.zip(text.iter().rev()).take(LONGEST).take_while(|(a, b)| a == b).count()
    }

    // ANCHOR: doubt
    /// A guess behind `context` as far as it is not in doubt, or whole where such guesses come true.
    fn without_doubt(&mut self, context: &[u32], mut guess: Vec<u32>) -> Vec<u32> {
        if let Some(first) = self.first_in_doubt(context, &guess) {
            self.doubt = Some(Doubt { at: context.len(), tokens: guess[..=first].to_vec() });
            if self.trust < TRUSTED {
                guess.truncate(first);
            }
        }
        guess
    }
    // ANCHOR_END: doubt

    /// The first token of a guess behind `context` where the text has mostly gone on otherwise after the same words.
    fn first_in_doubt(&self, context: &[u32], guess: &[u32]) -> Option<usize> {
        let mut last: [u32; SURE] = *context.last_chunk()?;
        guess.iter().position(|&token| {
            let vote = |place: usize| if self.known[place] == token { 1 } else { -1 };
            let votes: i32 = places(&self.fours, &last).map(vote).sum();
            last.rotate_left(1);
            last[SURE - 1] = token;
            votes < 0
        })
    }

    /// Learns whether the last guess in doubt has come true, if what stood before it has.
    fn settle(&mut self, context: &[u32]) {
        let Some(Doubt { at, tokens }) = self.doubt.take() else { return };
        if let Some((now, before)) =
            context.get(at..at + tokens.len()).and_then(<[u32]>::split_last)
            && let Some((guess, sure)) = tokens.split_last()
            && before == sure
        {
            self.trust += LATEST * (f64::from(u8::from(now == guess)) - self.trust);
        }
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

impl FromText for PromptLookup {}

impl Proposer for PromptLookup {
    fn name(&self) -> &'static str {
        "prompt lookup"
    }

    fn nodes(&self, depth: usize) -> usize {
        self.branches.saturating_mul(depth)
    }

    // ANCHOR: propose
    fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
        self.follow(context);
        self.settle(context);
        if depth == 0 {
            return Ok(DraftTree::empty());
        }
        // The latest first, and then by length: what is sorted stays in order where it is equal.
        let fours = places(&self.fours, context);
        let mut places: Vec<usize> = fours.chain(places(&self.pairs, context)).collect();
        places.sort_by_cached_key(|&place| Reverse(self.equal(place, context)));
        let end = |place: usize| self.known.len().min(place.saturating_add(depth));
        let follows = |place: usize| &self.known[place..end(place)];
        if self.branches == 1 {
            let guess = places.first().map_or(Vec::new(), |&place| follows(place).to_vec());
            return Ok(DraftTree::chain(&self.without_doubt(context, guess)));
        }
        let (mut tree, mut branches) = (DraftTree::empty(), 0);
        for place in places {
            let nodes = tree.len();
            tree.add_chain(None, follows(place));
            branches += usize::from(tree.len() > nodes);
            if branches == self.branches {
                break;
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
        assert_eq!(tokens(&mut lookup, &[7, 8, 7, 8], usize::MAX), [7, 8]);
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
    fn a_whole_line_says_more_than_its_frame() {
        // The frame 1 2 3 4 5 was last filled in with 50, but behind 40 it was with 60.
        let text = [40, 1, 2, 3, 4, 5, 60, 41, 1, 2, 3, 4, 5, 50, 40, 1, 2, 3, 4, 5];
        let mut lookup = PromptLookup::new();
        lookup.trust = 1.0;
        assert_eq!(tokens(&mut lookup, &text, 2), [60, 41]);
    }

    #[test]
    fn a_rare_run_is_found_however_often_its_pair_has_stood_elsewhere() {
        let record = |id: u32| [1, 2, id, 1000 + id, 2000 + id];
        let mut text: Vec<u32> = (3..300).flat_map(record).collect();
        text.extend([record(3), record(4)].concat());
        text.extend([1, 2]);
        let mut lookup = PromptLookup::new();
        lookup.trust = 1.0;
        assert_eq!(tokens(&mut lookup, &text, 2), [5, 1005]);
    }

    #[test]
    fn guesses_end_where_the_text_has_mostly_gone_on_otherwise() {
        let frames = [61, 60, 60, 60].map(|name| [1, 2, 3, 4, 5, name]).concat();
        let context = [&frames[..], &[1, 2]].concat();
        // Behind the frame: 60 three times, and 61.
        assert_eq!(tokens(&mut PromptLookup::new(), &context, 5), [3, 4, 5, 60, 1]);
        let frames = [60, 61, 62, 63].map(|name| [1, 2, 3, 4, 5, name]).concat();
        let context = [&frames[..], &[1, 2]].concat();
        assert_eq!(tokens(&mut PromptLookup::new(), &context, 5), [3, 4, 5]);
    }

    #[test]
    fn doubt_goes_where_such_guesses_come_true_and_returns_where_they_do_not() {
        // The names come in turn, so whoever looks far enough back knows the next.
        let names = [60, 61, 62].into_iter().cycle();
        let mut text: Vec<u32> =
            names.clone().take(6).flat_map(|name| [1, 2, 3, 4, name]).collect();
        let mut lookup = PromptLookup::new();
        for name in names.take(4) {
            text.extend([1, 2, 3, 4]);
            tokens(&mut lookup, &text, 3);
            text.push(name);
        }
        assert_eq!(tokens(&mut lookup, &text, 5), [1, 2, 3, 4, 61]);
        // Now they come from nowhere.
        for name in 70..74 {
            text.extend([1, 2, 3, 4]);
            tokens(&mut lookup, &text, 3);
            text.push(name);
        }
        assert!(lookup.trust < TRUSTED, "{}", lookup.trust);
    }

    #[test]
    fn a_reference_is_looked_up_too() {
        let mut lookup = PromptLookup::with_reference(&[5, 6, 7, 8]);
        assert_eq!(tokens(&mut lookup, &[1, 5, 6], 5), [7, 8, 1, 5, 6]);
        assert_eq!(tokens(&mut lookup, &[8, 1], 5), [0; 0], "no run across the reference's end");
        let mut lookup = PromptLookup::with_reference(&[5, 6]);
        assert_eq!(
            tokens(&mut lookup, &[9, 5, 6], 5),
            [0; 0],
            "nothing follows the reference's end"
        );
    }
}
