//! Tokens per cycle are what the formula says, and the cache is as if no draft had been there.

use crate::models::{draft, encode, random, tapped, target};
use kv_cache::KvCache;
use naive_decode::break_it::Bench;
use naive_decode::{
    CpuExecutor, Error, Executor, Pass, Request, Result, Sampler, Sampling, Span, Want,
};
use ndarray::ArrayView2;
use paged_cache::PagedCache;
use speculative::expected::tokens_per_cycle;
use speculative::proposers::DraftModel;
use speculative::{
    Accepted, Cycle, Depth, DraftTree, Proposer, Speculation, accept, with_room_for_trees,
};
use std::sync::atomic::{AtomicUsize, Ordering};

const LENGTH: usize = 4;

/// The embedded pair writes tales; the formula's one assumption, that every token is kept with the same
/// chance whatever came before, holds about as well as anywhere.
#[test]
fn tokens_per_cycle_are_those_of_the_formula() {
    let (target, draft) = (target(), draft());
    let (mut tried, mut kept, mut tokens, mut cycles) = (0, 0, 0, 0);
    for seed in 0..6 {
        let proposer = DraftModel::new(draft.clone(), &target).unwrap();
        let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
        let sampler = Sampler::new(sampling).unwrap();
        let prompt = encode(&Bench::tale(seed));
        let request = Request { prompt, tokens: 150, end_tokens: vec![] };
        let cache = with_room_for_trees(&target, target.context()).unwrap();
        let depth = Depth::Fixed(LENGTH);
        let text = Speculation::new(target.clone(), cache, proposer, sampler, depth, request);
        let whole = |cycle: &Cycle| cycle.proposed == LENGTH;
        for cycle in text.unwrap().map(Result::unwrap).filter(whole) {
            kept += cycle.kept;
            // The one that was refused was tried as well.
            tried += (cycle.kept + 1).min(LENGTH);
            tokens += cycle.kept + 1;
            cycles += 1;
        }
    }
    let acceptance = f64::from(u32::try_from(kept).unwrap()) / tried as f64;
    let (found, formula) = (tokens as f64 / cycles as f64, tokens_per_cycle(acceptance, LENGTH));
    assert!(acceptance > 0.5, "{acceptance}");
    assert!((found / formula - 1.0).abs() < 0.05, "{found} a cycle, {formula} by the formula");
}

/// Trees that are wrong nearly everywhere, with the right path last.
struct Oracle {
    text: Vec<u32>,
}

impl Proposer for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
        let mut tree = DraftTree::empty();
        let right = &self.text[context.len()..(context.len() + depth).min(self.text.len())];
        for first in 0..3 {
            let wrong: Vec<u32> = right.iter().map(|token| (token + 1 + first) % 61).collect();
            tree.add_chain(None, &wrong);
        }
        // Right for a while, and then not.
        let mut path = right.to_vec();
        if context.len().is_multiple_of(3)
            && let Some(last) = path.last_mut()
        {
            *last = (*last + 5) % 61;
        }
        tree.add_chain(None, &path);
        Ok(tree)
    }
}

#[test]
fn the_cache_is_as_if_no_draft_had_been_there() {
    let model = random(16, 3);
    let request = Request { prompt: (0..21).collect(), tokens: 60, end_tokens: vec![] };
    let text = crate::models::plain(&model, &request, &Sampling::default());
    let text = [&request.prompt[..], &text].concat();
    let cache = with_room_for_trees(&model, model.context()).unwrap();
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let oracle = Oracle { text: text.clone() };
    let depth = Depth::Fixed(5);
    let mut found =
        Speculation::new(model.clone(), cache, oracle, sampler, depth, request).unwrap();
    let mut moved = 0;
    while let Some(cycle) = found.advance().unwrap() {
        moved += cycle.kept;
    }
    assert!(moved > 30, "rows of the last branch were moved {moved} times");
    assert_eq!(found.context(), text);

    // A cache that was fed the text and nothing else.
    let mut plain =
        CpuExecutor { attention: with_room_for_trees(&model, model.context()).unwrap(), model };
    let sequence = plain.attention.open();
    let span = Span::new(sequence, 0, &text[..text.len() - 1], Want::Nothing);
    plain.execute(&Pass::one(span)).unwrap();
    let length = plain.attention.len(sequence);
    let expected = whole_blocks(&mut plain.attention, sequence, length);
    let (mut cache, _) = found.into_cache();
    assert_eq!(whole_blocks(&mut cache, sequence, length), expected);
}

/// The rule, every other time; the others it finds a score that is none.
fn fails_every_other_time(
    sampler: &mut Sampler,
    context: &mut Vec<u32>,
    tree: &DraftTree,
    logits: ArrayView2<f32>,
) -> Result<Accepted> {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    match CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
        true => Err(Error::invalid("score of token 0", f32::NAN, "a number below infinity")),
        false => accept(sampler, context, tree, logits),
    }
}

#[test]
fn a_cycle_that_fails_leaves_the_text_as_it_was() {
    let (target, draft) = (tapped(), draft());
    let request = Request { prompt: encode(&Bench::tale(1)), tokens: 20, end_tokens: vec![] };
    let expected = crate::models::plain(&target.0, &request, &Sampling::default());
    for proposer in crate::greedy::all(&target, &draft, &request.prompt) {
        let name = proposer.name();
        let cache = with_room_for_trees(&target.0, target.0.context()).unwrap();
        let sampler = Sampler::new(Sampling::default()).unwrap();
        let (model, request) = (target.0.clone(), request.clone());
        let text = Speculation::new(model, cache, proposer, sampler, Depth::Fixed(4), request);
        let mut text = text.unwrap().with_rule(fails_every_other_time);
        let (mut found, mut failed) = (Vec::new(), 0);
        loop {
            let before = text.context().to_vec();
            match text.advance() {
                Ok(Some(cycle)) => found.extend(cycle.tokens),
                Ok(None) => break,
                Err(_) => {
                    assert_eq!(text.context(), before, "{name}");
                    failed += 1;
                }
            }
            text.check_integrity([]).unwrap();
        }
        assert_eq!(found, expected, "{name}");
        assert!(failed > 0, "{name}");
    }
}

/// The bytes of all blocks that the text fills.
fn whole_blocks(cache: &mut PagedCache, sequence: usize, length: usize) -> Vec<Vec<u8>> {
    let tokens = cache.layout().tokens();
    let held: Vec<_> = cache.tables(sequence).unwrap().held().take(length / tokens).collect();
    let (_, memory) = cache.parts();
    let bytes = |block| {
        let mut bytes = Vec::new();
        memory.copy_out(block, &mut bytes).unwrap();
        bytes
    };
    held.into_iter().map(bytes).collect()
}
