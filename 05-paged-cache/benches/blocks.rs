//! What a block costs to take, share and give back, in pools of a thousand to a million: the same.
//!
//! Half of the pool is in use, and blocks are given back in another order than they were taken in.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use paged_cache::{BlockId, Blocks};
use std::hint::black_box;

fn half_used(count: usize) -> (Blocks, Vec<BlockId>) {
    let mut blocks = Blocks::new(count);
    let taken: Vec<BlockId> = (0..count).map(|_| blocks.take().expect("free")).collect();
    let (give_back, keep): (Vec<_>, Vec<_>) = taken.into_iter().partition(|block| block.0 % 2 == 0);
    // 7,919 is prime, so every block comes once.
    for i in 0..give_back.len() {
        blocks.release(give_back[i * 7919 % give_back.len()]);
    }
    (blocks, keep)
}

fn take_and_give_back(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("take, share, release twice");
    for count in [1_000, 10_000, 100_000, 1_000_000] {
        let (mut blocks, _keep) = half_used(count);
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                let block = blocks.take().expect("half are free");
                blocks.share(black_box(block));
                blocks.release(block);
                blocks.release(block)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, take_and_give_back);
criterion_main!(benches);
