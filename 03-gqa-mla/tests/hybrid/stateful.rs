//! Any sequence of operations on a ring cache, against recomputing everything from the tokens.

use super::{bits, naive, random};
use gqa_mla::{HybridCache, Room};
use kv_cache::KvCache;
use naive_decode::{Element, Model, Pass, Result, Span, Want};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

const SEQUENCES: usize = 2;
/// Several times round the smaller ring, and smaller than the model's context.
const CAPACITY: usize = 40;
const SPARE: usize = 3;
/// Small, a whole tile of sixteen slots, and one that only a long text fills.
const WINDOWS: [Option<usize>; 5] = [Some(3), Some(3), None, Some(16), Some(21)];

static MODELS: LazyLock<[Arc<Model>; 2]> = LazyLock::new(|| {
    let shares = [None, Some(0), None, None, None];
    [Element::F32, Element::Bf16].map(|element| random(&WINDOWS, &shares, 64, element))
});

#[derive(Debug, Clone)]
enum Operation {
    /// One pass with new tokens for some of the sequences; refused if any would not fit.
    Feed(Vec<(usize, Vec<u32>)>),
    /// So many tokens back; refused if the rings have let go of too much.
    RollBack(usize, usize),
    Reset(usize),
    /// A pass that does not begin where the sequence ends.
    FeedAt(usize, usize),
    /// A pass that the model refuses.
    FeedUnknown(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let sequence = 0..SEQUENCES;
    let length = prop_oneof![8 => Just(4usize), 2 => Just(20), 1 => Just(CAPACITY + 2)];
    let chunks = length.prop_flat_map(|most| {
        let tokens = prop::collection::vec(0..40u32, 1..most);
        prop::collection::btree_map(0..SEQUENCES, tokens, 1..=SEQUENCES)
    });
    prop_oneof![
        8 => chunks.prop_map(|chunks| Operation::Feed(chunks.into_iter().collect())),
        6 => (sequence.clone(), 0..SPARE + 3).prop_map(|(s, n)| Operation::RollBack(s, n)),
        1 => (sequence.clone(), 0..CAPACITY).prop_map(|(s, n)| Operation::RollBack(s, n)),
        1 => sequence.clone().prop_map(Operation::Reset),
        1 => (sequence.clone(), 0..CAPACITY).prop_map(|(s, n)| Operation::FeedAt(s, n)),
        1 => sequence.prop_map(Operation::FeedUnknown),
    ]
}

/// A cache, and what it should hold.
struct Pair<'a> {
    model: &'a Model,
    cache: HybridCache,
    texts: [Vec<u32>; SEQUENCES],
    /// How long each text has been since it was last empty.
    longest: [usize; SEQUENCES],
}

impl Pair<'_> {
    fn feed(&mut self, chunks: &[(usize, Vec<u32>)]) -> Result<()> {
        let span = |(s, tokens): &(usize, Vec<u32>)| {
            Span::new(*s, self.texts[*s].len(), tokens, Want::All)
        };
        let pass = Pass { spans: chunks.iter().map(span).collect() };
        let logits = self.model.forward(&pass, &mut self.cache)?;
        for (span, rows) in pass.spans_with_rows() {
            let text = &mut self.texts[span.sequence];
            text.extend(&span.tokens);
            let longest = &mut self.longest[span.sequence];
            *longest = text.len().max(*longest);
            let expected = naive(self.model, text);
            for (row, slot) in rows.zip(span.start..) {
                let place = format!("slot {slot} of sequence {}", span.sequence);
                assert_eq!(bits(&logits, row), bits(&expected, slot), "{place}");
            }
        }
        Ok(())
    }

    /// The shortest that a sequence can be made, but for empty: the definition, window by window.
    fn shortest(&self, sequence: usize) -> usize {
        let longest = self.longest[sequence];
        // The next token is in its own window: that leaves a place more than the spare ones.
        let of_ring = |window: &usize| match longest > window + SPARE {
            true => longest - SPARE - 1,
            false => 0,
        };
        WINDOWS.iter().flatten().map(of_ring).max().unwrap()
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Feed(chunks) => {
                let fits =
                    |(s, new): &(usize, Vec<u32>)| self.texts[*s].len() + new.len() <= CAPACITY;
                let fit = chunks.iter().all(fits);
                assert_eq!(self.feed(chunks).is_ok(), fit);
            }
            Operation::RollBack(s, tokens) => {
                let length = self.texts[*s].len().saturating_sub(*tokens);
                let possible = length == 0 || length >= self.shortest(*s);
                assert_eq!(self.cache.truncate(*s, length).is_ok(), possible, "to {length}");
                if possible {
                    self.texts[*s].truncate(length);
                }
            }
            Operation::Reset(s) => {
                self.cache.reset(*s).unwrap();
                self.texts[*s].clear();
            }
            Operation::FeedAt(s, start) => {
                let pass = Pass::one(Span::new(*s, *start, &[3], Want::Last));
                if *start != self.texts[*s].len() {
                    self.model.forward(&pass, &mut self.cache).unwrap_err();
                }
            }
            Operation::FeedUnknown(s) => {
                let pass = Pass::one(Span::new(*s, self.texts[*s].len(), &[2, 40], Want::Last));
                self.model.forward(&pass, &mut self.cache).unwrap_err();
            }
        }
        for (s, text) in self.texts.iter().enumerate() {
            assert_eq!(self.cache.len(s), text.len(), "length of sequence {s}");
            if text.is_empty() {
                self.longest[s] = 0;
            }
        }
        self.cache.check_integrity().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn rings_are_what_their_tokens_say(operations in prop::collection::vec(operation(), 1..40)) {
        for model in &*MODELS {
            let room = Room { capacity: CAPACITY, sequences: SEQUENCES, spare: SPARE };
            let cache = HybridCache::new(model, room).unwrap();
            let bytes = cache.allocated_bytes();
            let mut pair = Pair { model, cache, texts: Default::default(), longest: [0; SEQUENCES] };
            for operation in &operations {
                pair.apply(operation);
                assert_eq!(pair.cache.allocated_bytes(), bytes, "bytes after {operation:?}");
            }
        }
    }
}
