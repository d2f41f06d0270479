//! What each cache saves of requests that share as real ones do.

use naive_decode::Error;
use paged_cache::Blocks;
use prefix_radix::workload::{Pattern, Report, Request, replay, shared_system};
use prefix_radix::{Chain, HashedBlocks, Nothing, Policy, PrefixCache, RadixTree};

const SIZE: usize = 16;

/// No cache, hashed blocks (any first, leaves first), a radix tree.
fn caches() -> [Box<dyn PrefixCache>; 4] {
    let chain = Chain::new(b"");
    let hashed = |policy| HashedBlocks::new(SIZE, chain, policy).unwrap();
    [
        Box::new(Nothing::new(SIZE)),
        Box::new(hashed(Policy::Lru)),
        Box::new(hashed(Policy::LeafFirst)),
        Box::new(RadixTree::new(SIZE, chain).unwrap()),
    ]
}

/// What each cache finds, and nothing left behind.
fn run(requests: &[Request], pool: usize, at_once: usize) -> [Report; 4] {
    caches().map(|mut cache| {
        let mut blocks = Blocks::new(pool);
        let report = replay(requests, &mut cache, &mut blocks, at_once).unwrap();
        cache.check_integrity(&blocks).unwrap();
        blocks.check_integrity(cache.held()).unwrap();
        report
    })
}

#[test]
fn ninety_percent_of_the_prefill_is_saved() {
    // 2,000 tokens that all share and 200 of one's own: all but the first find 2,000 of 2,200.
    let requests = shared_system(1, 100, 2_000, 200);
    let [none, lru, leaf_first, radix] = run(&requests, 4_000, 4);
    assert_eq!((none.prompt, none.found), (220_000, 0));
    assert_eq!((lru.found, leaf_first.found), (198_000, 198_000));
    let saved = (leaf_first.found as f64 / 99.0) / 2_200.0;
    assert!((saved - 0.909).abs() < 0.001, "{saved}");
    // Now and then a question begins with the same token as another.
    assert!((198_000..198_020).contains(&radix.found), "{}", radix.found);
}

#[test]
fn with_room_for_all_every_cache_finds_what_there_is() {
    for pattern in Pattern::ALL {
        let requests = pattern.requests(2);
        let [none, lru, leaf_first, radix] = run(&requests, 20_000, 3);
        assert_eq!((none.found, lru.evicted, radix.evicted), (0, 0, 0));
        assert_eq!(lru, leaf_first, "{}", pattern.name());
        // Whole blocks against tokens: at most a block's tokens but one for each request.
        assert!(radix.found >= lru.found, "{}", pattern.name());
        assert!(radix.found <= lru.found + (SIZE - 1) * requests.len(), "{}", pattern.name());
        assert!(lru.saved() > 0.5, "{}: {}", pattern.name(), lru.saved());
    }
}

#[test]
fn leaves_first_saves_more_where_room_is_short() {
    for (pattern, pool) in [(Pattern::Chat, 1_500), (Pattern::Agents, 512)] {
        let [_, lru, leaf_first, radix] = run(&pattern.requests(3), pool, 2);
        assert!(lru.evicted > 0 && leaf_first.evicted > 0);
        let saved = [lru, leaf_first, radix].map(|report| report.saved());
        assert!(saved[1] > saved[0] + 0.02, "{}: {saved:?}", pattern.name());
        assert!(saved[2] >= saved[1], "{}: {saved:?}", pattern.name());
    }
}

#[test]
fn a_pool_too_small_is_said_and_nothing_is_lost() {
    for mut cache in caches() {
        let mut blocks = Blocks::new(20);
        let requests = shared_system(1, 3, 100, 20);
        let big = Request { after: None, tokens: vec![1; 300], answer: vec![2; 30] };
        let requests = [&requests[..], &[big]].concat();
        let error = replay(&requests, &mut cache, &mut blocks, 2).unwrap_err();
        let expected = "the pool holds 320 tokens; 330 were asked for";
        assert!(matches!(error, Error::Capacity { .. }));
        assert_eq!(error.to_string(), expected);
        blocks.check_integrity(cache.held()).unwrap();
    }
}

#[test]
fn a_pool_with_no_room_for_a_copy_reads_the_shared_block_again() {
    // Both fill the pool to the last block, and part inside one.
    let first = Request { after: None, tokens: vec![1; 40], answer: vec![1; 24] };
    let second =
        Request { after: None, tokens: [vec![1; 24], vec![2; 16]].concat(), ..first.clone() };
    let [.., hashed, radix] = run(&[first, second], 4, 1);
    assert_eq!((hashed.found, radix.found), (16, 16));
}

#[test]
fn a_request_after_one_that_is_not_there_is_refused() {
    let request = Request { after: Some(0), tokens: vec![1], answer: vec![2] };
    let error = replay(&[request], &mut Nothing::new(16), &mut Blocks::new(4), 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request gone on from is 0, expected below 0, its own number"
    );
}

#[test]
fn a_cache_of_blocks_without_tokens_is_refused() {
    let request = Request { after: None, tokens: vec![1], answer: vec![2] };
    let error = replay(&[request], &mut Nothing::new(0), &mut Blocks::new(4), 1).unwrap_err();
    let expected = "block size in tokens is 0, expected a power of two from 1 to 256";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_request_of_no_tokens_is_refused() {
    let request = |tokens| Request { after: None, tokens, answer: Vec::new() };
    let requests = [request(vec![1]), request(Vec::new())];
    let error = replay(&requests, &mut Nothing::new(16), &mut Blocks::new(4), 1).unwrap_err();
    let expected = "tokens of request 1's prompt and answer is 0, expected at least 1";
    assert_eq!(error.to_string(), expected);
}
