//! Any sequence of operations on a cache, against recomputing everything from the tokens.

use kv_cache::{Cached, ContiguousStore, KvCache, KvShape, ListStore, Store};
use naive_decode::{
    Config, Element, LoadOptions, Logits, Model, NaiveAttention, Pass, Result, Span, Want,
};
use proptest::prelude::*;
use std::sync::LazyLock;

const SEQUENCES: usize = 3;
/// Smaller than the model's context, so that it is the cache that is full.
const CAPACITY: usize = 20;
const VOCAB: u32 = 30;

static MODELS: LazyLock<[Model; 2]> = LazyLock::new(|| {
    [Element::F32, Element::Bf16].map(|kv_element| {
        let json = format!(
            r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 24, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
                "intermediate_size": 32, "vocab_size": {VOCAB}, "rms_norm_eps": 1e-5,
                "max_position_embeddings": 64}}"#
        );
        let config = Config::from_json("config.json", json.as_bytes()).unwrap();
        Model::random(config, 1, LoadOptions { kv_element, ..LoadOptions::default() }).unwrap()
    })
});

#[derive(Debug, Clone)]
enum Operation {
    /// One pass with new tokens for some of the sequences; refused if any would not fit.
    Feed(Vec<(usize, Vec<u32>)>),
    /// Refused if the sequence is shorter.
    Truncate(usize, usize),
    Reset(usize),
    /// One more token and back again: were it not the answer that the tokens call for, something
    /// that an earlier operation left behind has been read.
    Probe(usize),
    /// A pass that does not begin where the sequence ends.
    FeedAt(usize, usize),
    /// A pass that is refused by the model, not by the cache.
    FeedUnknown(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let sequence = 0..SEQUENCES;
    let tokens = |most| prop::collection::vec(0..VOCAB, 1..most);
    // Now and then more tokens than there is room for.
    let length = prop_oneof![6 => Just(7usize), 1 => Just(CAPACITY + 2)];
    let chunks = length.prop_flat_map(move |most| {
        prop::collection::btree_map(0..SEQUENCES, tokens(most), 1..=SEQUENCES)
    });
    prop_oneof![
        8 => chunks.prop_map(|chunks| Operation::Feed(chunks.into_iter().collect())),
        3 => (sequence.clone(), 0..CAPACITY + 2).prop_map(|(s, n)| Operation::Truncate(s, n)),
        1 => sequence.clone().prop_map(Operation::Reset),
        3 => sequence.clone().prop_map(Operation::Probe),
        1 => (sequence.clone(), 0..CAPACITY).prop_map(|(s, n)| Operation::FeedAt(s, n)),
        1 => sequence.prop_map(Operation::FeedUnknown),
    ]
}

fn bits(logits: &Logits, row: usize) -> Vec<u32> {
    logits.row(row).iter().map(|v| v.to_bits()).collect()
}

/// A cache, and what it should hold.
struct Pair<'a, S> {
    model: &'a Model,
    cache: &'a mut Cached<S>,
    texts: [Vec<u32>; SEQUENCES],
}

impl<S: Store> Pair<'_, S> {
    /// Logits after each token of `text`, from the tokens alone.
    fn recompute(&self, text: &[u32]) -> Logits {
        let pass = Pass::one(Span::new(0, 0, text, Want::All));
        self.model.forward(&pass, &mut NaiveAttention::new(self.model.isa)).unwrap()
    }

    fn feed(&mut self, chunks: &[(usize, Vec<u32>)]) -> Result<()> {
        let span = |(s, tokens): &(usize, Vec<u32>)| {
            Span::new(*s, self.texts[*s].len(), tokens, Want::All)
        };
        let pass = Pass { spans: chunks.iter().map(span).collect() };
        let logits = self.model.forward(&pass, self.cache)?;
        for (span, rows) in pass.spans_with_rows() {
            self.texts[span.sequence].extend(&span.tokens);
            let expected = self.recompute(&self.texts[span.sequence]);
            for (row, slot) in rows.zip(span.start..) {
                let place = format!("slot {slot} of sequence {}", span.sequence);
                assert_eq!(bits(&logits, row), bits(&expected, slot), "{place}");
            }
        }
        Ok(())
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Feed(chunks) => {
                let fits =
                    |(s, new): &(usize, Vec<u32>)| self.texts[*s].len() + new.len() <= CAPACITY;
                let fit = chunks.iter().all(fits);
                assert_eq!(self.feed(chunks).is_ok(), fit);
            }
            Operation::Truncate(s, length) => {
                let held = *length <= self.texts[*s].len();
                assert_eq!(self.cache.truncate(*s, *length).is_ok(), held);
                self.texts[*s].truncate(*length);
            }
            Operation::Reset(s) => {
                self.cache.reset(*s).unwrap();
                self.texts[*s].clear();
            }
            Operation::Probe(s) => {
                let length = self.texts[*s].len();
                if self.feed(&[(*s, vec![5])]).is_ok() {
                    self.cache.truncate(*s, length).unwrap();
                    self.texts[*s].truncate(length);
                }
            }
            Operation::FeedAt(s, start) => {
                let pass = Pass::one(Span::new(*s, *start, &[3], Want::Last));
                if *start != self.texts[*s].len() {
                    self.model.forward(&pass, self.cache).unwrap_err();
                }
            }
            Operation::FeedUnknown(s) => {
                let pass = Pass::one(Span::new(*s, self.texts[*s].len(), &[2, VOCAB], Want::Last));
                self.model.forward(&pass, self.cache).unwrap_err();
            }
        }
        for (s, text) in self.texts.iter().enumerate() {
            assert_eq!(self.cache.len(s), text.len(), "length of sequence {s}");
        }
    }
}

/// Applies the operations; `allocated` says what the cache should set aside for so many tokens.
fn check<S: Store>(
    model: &Model,
    cache: &mut Cached<S>,
    operations: &[Operation],
    allocated: impl Fn(usize) -> usize,
) {
    let mut pair = Pair { model, cache, texts: Default::default() };
    for operation in operations {
        pair.apply(operation);
        pair.cache.check_integrity().unwrap();
        let held = pair.texts.iter().map(Vec::len).sum();
        assert_eq!(pair.cache.allocated_bytes(), allocated(held), "bytes after {operation:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn lists_are_what_their_tokens_say(operations in prop::collection::vec(operation(), 1..30)) {
        for model in &*MODELS {
            let shape = KvShape::of(model);
            let mut cache = Cached::new(ListStore::new(shape, CAPACITY, SEQUENCES), model.isa);
            // Lists grow and shrink with the tokens, whatever their allocator keeps back.
            let per_token = cache.bytes_per_token();
            check(model, &mut cache, &operations, |held| held * per_token);
        }
    }

    #[test]
    fn a_slab_is_what_its_tokens_say(operations in prop::collection::vec(operation(), 1..30)) {
        for model in &*MODELS {
            let shape = KvShape::of(model);
            let slab = ContiguousStore::new(shape, CAPACITY, SEQUENCES).unwrap();
            let mut cache = Cached::new(slab, model.isa);
            check(model, &mut cache, &operations, |_| shape.bytes(CAPACITY, SEQUENCES));
        }
    }
}
