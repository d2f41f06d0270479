//! Greedy text is plain decoding's also where the cache is not the text's alone: its beginning was found in a prefix
//! cache, its blocks are another's too, or it had to wait.

use crate::greedy::all;
use crate::models::{draft, encode, plain, tapped};
use kv_cache::KvCache;
use naive_decode::{CpuExecutor, Executor, Model, Pass, Request, Sampler, Sampling, Span, Want};
use paged_cache::PagedCache;
use paged_cache::offload::HostTier;
use prefix_radix::{Chain, PrefixCache, RadixTree, Salt};
use speculative::{Depth, Proposer, Speculation, with_room_for_trees};
use std::sync::Arc;

const TOKENS: usize = 30;
const TEXT: &str = "Remember these words. The word of Ada is amber. The word of Leo is honey.\n";

fn request(text: &str) -> Request {
    Request { prompt: encode(text), tokens: TOKENS, end_tokens: vec![] }
}

fn over(
    model: &Arc<Model>,
    held: (PagedCache, usize),
    proposer: Box<dyn Proposer>,
    request: Request,
) -> Speculation<Box<dyn Proposer>> {
    with_sampling(Sampling::default(), model, held, proposer, request)
}

fn with_sampling(
    sampling: Sampling,
    model: &Arc<Model>,
    held: (PagedCache, usize),
    proposer: Box<dyn Proposer>,
    request: Request,
) -> Speculation<Box<dyn Proposer>> {
    let sampler = Sampler::new(sampling).unwrap();
    Speculation::over(model.clone(), held, proposer, sampler, Depth::Fixed(4), request).unwrap()
}

/// Writes a text to its end, and gives what was generated.
fn rest(text: &mut Speculation<Box<dyn Proposer>>, tree: Option<&RadixTree>) -> Vec<u32> {
    let mut found = Vec::new();
    while let Some(cycle) = text.advance().unwrap() {
        found.extend(cycle.tokens);
        text.check_integrity(tree.map(PrefixCache::held).unwrap_or_default()).unwrap();
    }
    found
}

#[test]
fn a_prompt_whose_beginning_is_known() {
    let (target, draft) = (tapped(), draft());
    let first = request(&(TEXT.to_owned() + "Question: What is the word of Ada?\nAnswer:"));
    let second = request(&(TEXT.to_owned() + "Question: What is the word of Leo?\nAnswer:"));
    let expected = plain(&target.0, &second, &Sampling::default());
    let proposers = all(&target, &draft, &second.prompt).len();
    for i in 0..proposers {
        let mut tree = RadixTree::new(16, Chain::new(b"speculation")).unwrap();
        let mut cache = with_room_for_trees(&target.0, target.0.context()).unwrap();
        let sequence = cache.open();
        let proposer = all(&target, &draft, &first.prompt).remove(i);
        let mut text = over(&target.0, (cache, sequence), proposer, first.clone());
        rest(&mut text, None);
        let written = text.context().to_vec();
        let (mut cache, sequence) = text.into_cache();
        let table: Vec<_> = cache.tables(sequence).unwrap().held().collect();
        let held = cache.len(sequence);
        let (blocks, _) = cache.parts();
        // What a text left behind that was written with drafts is as good as any other.
        tree.keep(Salt::NONE, &written[..held.min(written.len())], &table, blocks);
        cache.close(sequence).unwrap();

        let (blocks, _) = cache.parts();
        let prefix = tree.find(Salt::NONE, &second.prompt, blocks);
        assert!(prefix.tokens > 16 && prefix.tokens % 16 != 0, "{} tokens", prefix.tokens);
        let sequence = cache.adopt(&prefix.blocks, prefix.tokens).unwrap();
        let proposer = all(&target, &draft, &second.prompt).remove(i);
        let name = proposer.name();
        let mut text = over(&target.0, (cache, sequence), proposer, second.clone());
        assert_eq!(rest(&mut text, Some(&tree)), expected, "{name}");
    }
}

#[test]
fn two_texts_that_share_their_prompt() {
    let (target, draft) = (tapped(), draft());
    let request = request("Once upon a time");
    let expected = plain(&target.0, &request, &Sampling::default());
    let proposers = all(&target, &draft, &request.prompt).len();
    for i in 0..proposers {
        let cache = with_room_for_trees(&target.0, target.0.context()).unwrap();
        let mut executor = CpuExecutor { model: target.0.clone(), attention: cache };
        let one = executor.attention.open();
        let before = &request.prompt[..request.prompt.len() - 1];
        executor.execute(&Pass::one(Span::new(one, 0, before, Want::Nothing))).unwrap();
        let mut cache = executor.attention;
        let two = cache.fork(one).unwrap();
        for sequence in [one, two] {
            let proposer = all(&target, &draft, &request.prompt).remove(i);
            let name = proposer.name();
            let mut text = over(&target.0, (cache, sequence), proposer, request.clone());
            assert_eq!(rest(&mut text, None), expected, "{name}, sequence {sequence}");
            (cache, _) = text.into_cache();
        }
    }
}

#[test]
fn a_text_that_has_to_wait() {
    let (target, draft) = (tapped(), draft());
    let request = request(&(TEXT.to_owned() + "Question: What is the word of Ada?\nAnswer:"));
    // What was said before it had to wait counts for penalties afterwards, and the prompt does not.
    let penalised = Sampling { frequency_penalty: 10.0, ..Sampling::default() };
    let samplings = [Sampling::default(), penalised];
    let expected = samplings.each_ref().map(|sampling| plain(&target.0, &request, sampling));
    assert_ne!(expected[0], expected[1]);
    let proposers = all(&target, &draft, &request.prompt).len();
    for (i, (sampling, expected)) in
        (0..proposers).flat_map(|i| samplings.iter().zip(&expected).map(move |case| (i, case)))
    {
        for swap in [false, true] {
            let mut cache = with_room_for_trees(&target.0, target.0.context()).unwrap();
            let sequence = cache.open();
            let proposer = all(&target, &draft, &request.prompt).remove(i);
            let name = proposer.name();
            let held = (cache, sequence);
            let mut text =
                with_sampling(sampling.clone(), &target.0, held, proposer, request.clone());
            let mut found = Vec::new();
            for _ in 0..3 {
                found.extend(text.advance().unwrap().unwrap().tokens);
            }
            let prompt = text.context().to_vec();
            let (mut cache, mut sequence) = text.into_cache();
            if swap {
                let mut tier = HostTier::new(usize::MAX);
                let parked = cache.park(sequence, &mut tier).unwrap();
                sequence = cache.unpark(&parked, &mut tier).unwrap();
            } else {
                cache.close(sequence).unwrap();
                sequence = cache.open();
            }
            let left = Request { prompt, tokens: TOKENS - found.len(), end_tokens: vec![] };
            let proposer = all(&target, &draft, &left.prompt).remove(i);
            let held = (cache, sequence);
            let text = with_sampling(sampling.clone(), &target.0, held, proposer, left);
            let mut text = text.with_prompt_length(request.prompt.len());
            found.extend(rest(&mut text, None));
            assert_eq!(found, *expected, "{name}, swapped: {swap}, {sampling:?}");
        }
    }
}
