//! Lookups, insertions and evictions with a thousand to a million blocks in the cache.
//!
//!     cargo bench -p prefix-radix --bench prefix

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paged_cache::{BlockId, Blocks};
use prefix_radix::{Chain, HashedBlocks, Policy, PrefixCache, RadixTree, Salt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const SIZE: usize = 16;
/// Tokens of a text.
const LENGTH: usize = 2_048;
/// Of these, tokens that it shares with the texts beside it.
const SHARED: usize = 1_024;
/// Blocks cached while prompts of several lengths are looked up.
const LENGTHS_IN: usize = 100_000;
const CACHED: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Texts of which eight at a time share their first half.
struct Texts {
    random: ChaCha8Rng,
    beginning: Vec<u32>,
    made: usize,
}

impl Texts {
    fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.random.next_u32() % 32_000).collect()
    }

    fn next(&mut self) -> Vec<u32> {
        if self.made.is_multiple_of(8) {
            self.beginning = self.tokens(SHARED);
        }
        self.made += 1;
        [self.beginning.clone(), self.tokens(LENGTH - SHARED)].concat()
    }
}

/// A request that reads a text and is over.
fn read(cache: &mut dyn PrefixCache, text: &[u32], blocks: &mut Blocks) {
    let prefix = cache.find(Salt::NONE, text, blocks);
    let mut table: Vec<BlockId> = prefix.blocks;
    if !prefix.tokens.is_multiple_of(SIZE) {
        blocks.release(table.pop().expect("a block that is shared in part"));
    }
    let lacking = LENGTH / SIZE - table.len();
    if blocks.free() < lacking {
        cache.evict(lacking - blocks.free(), blocks, &mut |_| ());
    }
    table.resize_with(LENGTH / SIZE, || blocks.take().expect("as many as were let go of"));
    cache.keep(Salt::NONE, text, &table, blocks);
    for block in table {
        blocks.release(block);
    }
}

fn caches() -> [(&'static str, Box<dyn PrefixCache>); 2] {
    let chain = Chain::new(b"");
    let hashed = HashedBlocks::new(SIZE, chain, Policy::LeafFirst).expect("a power of two");
    [
        ("radix tree", Box::new(RadixTree::new(SIZE, chain).expect("a power of two"))),
        ("hashed blocks", Box::new(hashed)),
    ]
}

/// What a longer prompt costs: its tokens, once each.
fn lengths(
    criterion: &mut Criterion,
    name: &str,
    cache: &mut dyn PrefixCache,
    known: &[Vec<u32>],
    blocks: &mut Blocks,
) {
    let mut group = criterion.benchmark_group(format!("find so many tokens among {LENGTHS_IN}"));
    for tokens in [256, 512, 1_024, LENGTH] {
        group.throughput(Throughput::Elements(tokens as u64));
        let mut turn = 0;
        group.bench_function(BenchmarkId::new(name, tokens), |bencher| {
            bencher.iter(|| {
                turn = (turn + 1) % known.len();
                cache.find(Salt::NONE, &known[turn][..tokens], blocks).release(blocks);
            });
        });
    }
    group.finish();
}

fn prefix(criterion: &mut Criterion) {
    for cached in CACHED {
        for (name, mut cache) in caches() {
            let random = ChaCha8Rng::from_seed([1; 32]);
            let mut texts = Texts { random, beginning: Vec::new(), made: 0 };
            let mut blocks = Blocks::new(cached);
            let mut known = Vec::new();
            while blocks.free() >= LENGTH / SIZE {
                let text = texts.next();
                read(&mut *cache, &text, &mut blocks);
                known.push(text);
            }
            let mut group = criterion.benchmark_group(format!("find {LENGTH} known tokens"));
            group.throughput(Throughput::Elements(LENGTH as u64));
            let mut turn = 0;
            group.bench_function(BenchmarkId::new(name, cached), |bencher| {
                bencher.iter(|| {
                    turn = (turn + 1) % known.len();
                    cache.find(Salt::NONE, &known[turn], &mut blocks).release(&mut blocks);
                });
            });
            group.finish();
            if cached == LENGTHS_IN {
                lengths(criterion, name, &mut *cache, &known, &mut blocks);
            }
            // The pool is full, so whatever comes in drives something out.
            let what =
                format!("find, evict and keep a text of {LENGTH} tokens, half of them known");
            let mut group = criterion.benchmark_group(what);
            group.throughput(Throughput::Elements(LENGTH as u64));
            group.bench_function(BenchmarkId::new(name, cached), |bencher| {
                bencher.iter_batched(
                    || texts.next(),
                    |text| read(&mut *cache, &text, &mut blocks),
                    criterion::BatchSize::PerIteration,
                );
            });
            group.finish();
        }
    }
}

criterion_group!(benches, prefix);
criterion_main!(benches);
