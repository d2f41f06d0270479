//! Rungs 02, 06 and 07 over the GPU's executor: each gives the bits that it gives without what it adds.

use crate::world::{executor, tokens};
use cuda_executor::CudaExecutor;
use cuda_kernels::Interpreter;
use kv_cache::{CachedDecoder, CachedExecutor};
use naive_decode::{Decoder, Request, Sampler, Sampling, Settings, argmax};
use paged_cache::PagedCache;
use paged_cache::offload::HostTier;
use prefix_radix::{Chain, RadixTree, Salt, SharedPool, Tiered};
use speculative::proposers::PromptLookup;
use speculative::{Depth, GuessingDecoder, Speculation};

const NEW: usize = 14;

fn with_sequence(pool_tokens: usize) -> (CudaExecutor<Interpreter>, usize) {
    let mut executor = executor(pool_tokens, 80);
    let sequence = executor.cache_mut().open();
    (executor, sequence)
}

/// A prompt that goes round in circles, so that lookups find something.
fn prompt() -> Vec<u32> {
    tokens(5, 6).repeat(5)
}

/// Greedy tokens and their logits.
fn written(decoder: &mut dyn Decoder) -> (Vec<u32>, Vec<Vec<f32>>) {
    let (mut text, mut all) = (Vec::new(), Vec::new());
    let mut next = prompt();
    for _ in 0..NEW {
        let logits = decoder.feed(&next).unwrap();
        next = vec![argmax(&logits).unwrap()];
        text.extend(&next);
        all.push(logits);
    }
    (text, all)
}

fn plain() -> (Vec<u32>, Vec<Vec<f32>>) {
    written(&mut CachedDecoder::over(with_sequence(160).0, Some(80)).unwrap())
}

#[test]
fn guesses_by_a_lookup_change_no_logit() {
    let settings = Settings { capacity: 140, prefill_chunk: Some(70), threads: None };
    let lookup = PromptLookup::new();
    let mut guessing = GuessingDecoder::on(with_sequence(320), settings, lookup, 4).unwrap();
    let found = written(&mut guessing);
    assert!(found == plain());
    assert!(guessing.rows() > prompt().len() + NEW, "some rows were guesses");
}

#[test]
fn speculation_writes_the_same_text() {
    let request = Request { prompt: prompt(), tokens: NEW, end_tokens: Vec::new() };
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let lookup = PromptLookup::new();
    let mut text =
        Speculation::on(with_sequence(320), lookup, sampler, Depth::Fixed(4), request).unwrap();
    let mut cycles = 0;
    while text.advance().unwrap().is_some() {
        text.check_integrity([]).unwrap();
        cycles += 1;
    }
    assert_eq!(text.context()[prompt().len()..], plain().0);
    assert!(cycles < NEW, "some guesses came true");
}

#[test]
fn a_hit_inside_a_block_and_one_from_a_tier_give_the_bits_of_none() {
    let chain = Chain::new(b"test");
    let (first, second) = (prompt(), [&prompt()[..21], &tokens(8, 9)].concat());
    let run = |pool: &mut SharedPool<RadixTree, _>, prompt: &[u32]| {
        let (session, logits) = pool.begin(Salt::NONE, prompt).unwrap();
        let found = session.found();
        pool.end(session).unwrap();
        pool.check_integrity().unwrap();
        (found, logits)
    };
    let fresh = |tokens: usize, tiers| {
        let tree = RadixTree::new(16, chain).unwrap();
        SharedPool::over(executor(tokens, 80), Tiered::new(tree, chain, tiers)).unwrap()
    };
    let right = run(&mut fresh(160, Vec::new()), &second);
    assert_eq!(right.0, 0);

    // The second begins with a block of the first and some of its next, which is copied before it is written to.
    let mut pool = fresh(160, Vec::new());
    run(&mut pool, &[&first[..], &tokens(7, 20)].concat());
    let (found, logits) = run(&mut pool, &second);
    assert_eq!(found, 21);
    assert!(logits == right.1);

    // In a pool of three blocks, what the second left goes to the host's memory for another, and comes back.
    let mut pool = fresh(48, vec![Box::new(HostTier::new(1 << 20))]);
    run(&mut pool, &second);
    run(&mut pool, &tokens(11, 40));
    assert!(pool.prefixes().tier_statistics()[0].put > 0);
    let (found, logits) = run(&mut pool, &second);
    assert_eq!((found, pool.prefixes().tier_statistics()[0].got), (16, 1));
    assert!(logits == right.1);
}

/// The box that the engine has is as good as what is in it.
#[test]
fn an_executor_in_a_box_is_one() {
    let (executor, _) = with_sequence(160);
    let boxed: Box<dyn CachedExecutor<Cache = PagedCache>> = Box::new(executor);
    let (config, context) = (boxed.config().vocab_size, boxed.context());
    assert_eq!((config, context), (64, 160));
    assert!(written(&mut CachedDecoder::over(boxed, Some(80)).unwrap()) == plain());
}
