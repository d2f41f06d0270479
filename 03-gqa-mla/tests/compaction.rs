//! Compaction on the embedded model: what it must do whatever the model has learnt.

use embedded_models::TARGET;
use embedded_models::notes::{NOTES, NotedWorld};
use gqa_mla::compaction::{Notes, When, compact};
use gqa_mla::evict::{Budget, EvictingCache, Sinks};
use kv_cache::{CachedDecoder, KvCache};
use naive_decode::{Decoder, LoadOptions, Model, Tokenizer, argmax};
use std::sync::{Arc, LazyLock};

static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| {
    let options = LoadOptions::default();
    Arc::new(Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options).unwrap())
});
static TOKENIZER: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_bytes("embedded tokenizer.json", TARGET.tokenizer).unwrap());

fn encode(text: &str) -> Vec<u32> {
    TOKENIZER.encode(text).unwrap()
}

fn decoder() -> CachedDecoder<EvictingCache<Sinks>> {
    let budget = Budget::Fraction(1.0);
    let cache = EvictingCache::new(&MODEL, MODEL.context(), 1, budget, Sinks::NONE).unwrap();
    CachedDecoder::new(MODEL.clone(), cache, None).unwrap()
}

/// A block, and notes without what asks for them.
fn block_and_notes() -> (Vec<u32>, Vec<u32>) {
    let noted = NotedWorld::held_out(3, 1, 3, 1);
    (encode(&noted.block(0)), encode(noted.notes(0).strip_prefix(NOTES).unwrap()))
}

#[test]
fn the_block_goes_and_the_notes_stay() {
    let (block, notes) = block_and_notes();
    let ask = encode(NOTES);
    let mut decoder = decoder();
    decoder.feed(&[1, 2, 3]).unwrap();
    let done =
        compact(&mut decoder, &block, &ask, Notes::Given(&notes), When::BeforeForgetting).unwrap();
    assert_eq!(done.dropped, 3..3 + block.len());
    assert_eq!(done.notes, notes);
    let length = 3 + block.len() + ask.len() + notes.len();
    assert_eq!(decoder.len(), length);
    let cache = &decoder.executor.attention;
    let left: Vec<usize> = (0..3).chain(3 + block.len()..length).collect();
    assert_eq!(cache.slots(0, 0, 0), left);
    assert_eq!(cache.slots(0, 5, 1), left);
    cache.check_integrity().unwrap();
}

#[test]
fn own_notes_are_what_greedy_decoding_writes() {
    let (block, _) = block_and_notes();
    let ask = encode(NOTES);
    let end = *encode(".").last().unwrap();
    let mut plain = decoder();
    let mut logits = plain.feed(&[block.clone(), ask.clone()].concat()).unwrap();
    let mut expected = Vec::new();
    while expected.len() < 12 && expected.last() != Some(&end) {
        expected.push(argmax(&logits).unwrap());
        logits = plain.feed(&expected[expected.len() - 1..]).unwrap();
    }
    let own = Notes::Own { end, most: 12 };
    let done = compact(&mut decoder(), &block, &ask, own, When::BeforeForgetting).unwrap();
    assert_eq!(done.notes, expected);
}

#[test]
fn notes_written_in_sight_of_the_block_are_other_notes_of_the_same_words() {
    let (block, notes) = block_and_notes();
    let ask = encode(NOTES);
    let next = |when| {
        let mut decoder = decoder();
        compact(&mut decoder, &block, &ask, Notes::Given(&notes), when).unwrap();
        decoder.feed(&encode("\n")).unwrap()
    };
    let (seen, unseen) = (next(When::BeforeForgetting), next(When::AfterForgetting));
    let farthest = seen.iter().zip(&unseen).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(farthest > 1e-3, "the block has left no trace: {farthest}");
    // And with the block still there, a third answer.
    let mut kept = decoder();
    kept.feed(&[block, ask, notes].concat()).unwrap();
    assert_ne!(kept.feed(&encode("\n")).unwrap(), seen);
}

#[test]
fn what_does_not_fit_or_is_empty_is_refused_and_nothing_changes() {
    let (block, notes) = block_and_notes();
    let ask = encode(NOTES);
    let mut decoder = decoder();
    decoder.feed(&block).unwrap();
    let long = vec![1; MODEL.context()];
    let given = Notes::Given(&notes);
    for (block, ask, notes, word) in [
        (&long[..], &ask[..], given, "holds 512"),
        (&block[..], &[][..], given, "tokens to feed"),
        (&[][..], &ask[..], given, "tokens to feed"),
        (&block[..], &ask[..], Notes::Given(&[]), "notes is empty"),
        (&block[..], &ask[..], Notes::Given(&long), "holds 512"),
    ] {
        let before = decoder.len();
        let refused = compact(&mut decoder, block, ask, notes, When::BeforeForgetting);
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(word), "{said}");
        assert_eq!(decoder.len(), before);
        assert_eq!(decoder.executor.attention.slots(0, 0, 0).len(), before);
    }
    assert_eq!(decoder.executor.attention.len(0), block.len());
}
