//! What a lookup costs, counted in comparisons of tokens and not in time.

use paged_cache::{BlockId, Blocks};
use prefix_radix::{Chain, HashedBlocks, Policy, PrefixCache, RadixTree, Salt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const SIZE: usize = 16;
/// Tokens of each text.
const LENGTH: usize = 1024;

/// Texts that share their first 512 tokens by the dozen, and then go their own ways.
fn texts(count: usize) -> Vec<Vec<u32>> {
    let mut random = ChaCha8Rng::from_seed([7; 32]);
    let mut tokens = |count| (0..count).map(|_| random.next_u32() % 32_000).collect::<Vec<_>>();
    let mut beginning = Vec::new();
    let mut text = |i: usize| {
        if i.is_multiple_of(12) {
            beginning = tokens(LENGTH / 2);
        }
        [beginning.clone(), tokens(LENGTH / 2)].concat()
    };
    (0..count).map(&mut text).collect()
}

/// A cache that knows at least so many blocks, and two of the texts in it.
fn filled<P: PrefixCache>(mut cache: P, least: usize) -> (P, Blocks, [Vec<u32>; 2]) {
    let mut blocks = Blocks::new(least + 64);
    let texts = texts(least / 32);
    for text in &texts {
        if blocks.used() >= least {
            break;
        }
        let prefix = cache.find(Salt::NONE, text, &mut blocks);
        let mut table: Vec<BlockId> = prefix.blocks;
        if !prefix.tokens.is_multiple_of(SIZE) {
            blocks.release(table.pop().unwrap());
        }
        table.resize_with(LENGTH / SIZE, || blocks.take().unwrap());
        cache.keep(Salt::NONE, text, &table, &mut blocks);
        for block in table {
            blocks.release(block);
        }
    }
    assert!(blocks.used() >= least);
    (cache, blocks, [texts[0].clone(), texts[texts.len() / 3].clone()])
}

/// Tokens compared to look up the first `length` tokens of a text.
fn compared<P: PrefixCache>(
    cache: &mut P,
    text: &[u32],
    length: usize,
    blocks: &mut Blocks,
) -> usize {
    let before = cache.statistics().compared;
    let prefix = cache.find(Salt::NONE, &text[..length], blocks);
    assert_eq!(prefix.tokens, length - 1);
    prefix.release(blocks);
    (cache.statistics().compared - before) as usize
}

#[test]
fn a_lookup_costs_the_prompt_however_large_the_tree() {
    for blocks in [1_000, 10_000, 100_000] {
        let tree = RadixTree::new(SIZE, Chain::new(b"")).unwrap();
        let (mut tree, mut blocks, texts) = filled(tree, blocks);
        let all = tree.held().len();
        for text in texts {
            for length in [256, 512, 1024] {
                let compared = compared(&mut tree, &text, length, &mut blocks);
                // Each token once; at the two branches on the way a block or two more, and a token or
                // two for each halving of the children.
                let most = length + 2 * (2 * SIZE + 2 * all.ilog2() as usize);
                assert!(
                    (length..=most).contains(&(compared + 1)),
                    "{compared} comparisons for {length} tokens among {all} blocks"
                );
            }
        }
    }
}

#[test]
fn hashed_blocks_compare_each_token_once() {
    for blocks in [1_000, 100_000] {
        let cache = HashedBlocks::new(SIZE, Chain::new(b""), Policy::LeafFirst).unwrap();
        let (mut cache, mut blocks, texts) = filled(cache, blocks);
        for length in [256, 1024] {
            assert_eq!(compared(&mut cache, &texts[1], length, &mut blocks), length);
        }
    }
}
