//! When the pool is full.

use crate::{executor, pool, run, small};
use flash_attention::tile_attention::KvType;
use gqa_mla::Maker;
use kv_cache::KvCache;
use naive_decode::roofline::{ElementBytes, Rows, Shape, published};
use naive_decode::{Element, KvSize, Request, Result};
use paged_cache::Layout;
use paged_cache::crowd::{Crowd, Preemption};
use paged_cache::offload::{Key, Tier};
use std::collections::HashMap;

fn request(prompt: usize, tokens: usize) -> Request {
    Request { prompt: (0..prompt).map(crate::token).collect(), tokens, end_tokens: Vec::new() }
}

fn crowd(requests: usize, blocks: usize) -> Crowd {
    let model = small();
    let cache = pool(&model, blocks, 16);
    Crowd::new(model, cache, vec![request(40, 60); requests], Preemption::Recompute).unwrap()
}

#[test]
fn preemption_costs_what_was_in_the_cache() {
    let (outcome, _) = crowd(2, 8).run().unwrap();
    assert_eq!((outcome.preemptions, outcome.rows), (1, 262));
    // With room for both: what each needs alone.
    let (outcome, _) = crowd(2, 14).run().unwrap();
    assert_eq!((outcome.preemptions, outcome.rows), (0, 2 * 99));
}

#[test]
fn the_youngest_waits() {
    let mut crowd = crowd(3, 12);
    let waiting = loop {
        crowd.step().unwrap();
        let waits = |&sequence: &usize| crowd.cache().tables(sequence).is_err();
        let waiting: Vec<usize> = (0..3).filter(waits).collect();
        if !waiting.is_empty() {
            break waiting;
        }
    };
    assert_eq!(waiting, [2]);
}

/// A tier that does something to what it is given.
struct Altering<F> {
    kept: HashMap<Key, Vec<u8>>,
    /// From how many blocks came before, and a block's bytes, what is kept; nothing if it is lost. Of a sequence, the last
    /// block comes first.
    alter: F,
    count: usize,
}

impl<F: FnMut(usize, Vec<u8>) -> Option<Vec<u8>> + Send> Tier for Altering<F> {
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        if let Some(bytes) = (self.alter)(self.count, bytes.to_vec()) {
            self.kept.insert(key, bytes);
        }
        self.count += 1;
        Ok(())
    }

    fn get(&mut self, key: Key, bytes: &mut Vec<u8>) -> Result<bool> {
        bytes.clear();
        bytes.extend(self.kept.get(&key).into_iter().flatten());
        Ok(self.contains(key))
    }

    fn contains(&self, key: Key) -> bool {
        self.kept.contains_key(&key)
    }

    fn remove(&mut self, key: Key) -> Result<bool> {
        Ok(self.kept.remove(&key).is_some())
    }
}

/// A sequence of 100 tokens, parked and brought back; the cache, and the sequence's number.
fn away_and_back(
    alter: impl FnMut(usize, Vec<u8>) -> Option<Vec<u8>> + Send,
) -> (paged_cache::PagedCache, usize) {
    let mut executor = executor(8, 16);
    let sequence = executor.attention.open();
    run(&mut executor, &[(sequence, 100)]).unwrap();
    let mut cache = executor.attention;
    let mut tier = Altering { kept: HashMap::new(), alter, count: 0 };
    let parked = cache.park(sequence, &mut tier).unwrap();
    assert_eq!((parked.length(), parked.blocks(), cache.blocks().used()), (100, 7, 0));
    let back = cache.unpark(&parked, &mut tier).unwrap();
    cache.check_integrity([]).unwrap();
    (cache, back)
}

#[test]
fn what_comes_back_ends_at_the_first_gap() {
    let (cache, back) = away_and_back(|_, bytes| Some(bytes));
    assert_eq!(cache.len(back), 100);
    // The fourth from the end of seven, and from the beginning.
    let (cache, back) = away_and_back(|before, bytes| (before != 3).then_some(bytes));
    assert_eq!(cache.len(back), 48);
}

#[test]
fn a_wrong_bit_is_a_missing_block() {
    let (cache, back) = away_and_back(|before, mut bytes| {
        // The sequence's first block.
        bytes[1_000] ^= if before == 6 { 4 } else { 0 };
        Some(bytes)
    });
    assert_eq!(cache.len(back), 0);
    assert_eq!(cache.blocks().used(), 0);
}

/// Seconds to bring back the block of a model's first sixteen tokens over a link of 32 GB/s, and to compute it on a GPU of
/// 1,000 TFLOP/s.
fn copied_and_computed(name: &str) -> (f64, f64) {
    let shape = published(name).unwrap().shape;
    let Shape { layers, kv_heads: heads, head_dim, .. } = shape;
    let size = KvSize { heads, key_dim: head_dim, value_dim: head_dim };
    let made = vec![Some(Maker { size, window: None }); layers];
    let layout = Layout::of(&made, 16, KvType::Exact(Element::Bf16)).unwrap();
    assert_eq!(layout.block_bytes(), 16 * layout.bytes_per_token());
    let rows = Rows { new: 16, cached: 0, logits: 16 };
    let work = shape.forward(rows, ElementBytes::BF16);
    (layout.block_bytes() as f64 / 32e9, work.flops as f64 / 1e15)
}

/// The page's comparison.
#[test]
fn to_copy_or_to_compute() {
    let near = |found: f64, said: f64| (found / said - 1.0).abs() < 0.03;
    let (copied, computed) = copied_and_computed("llama-2-70b");
    assert!(near(copied, 0.16e-3) && near(computed, 2.2e-3), "{copied}, {computed}");
    // Out and back.
    assert!(2.0 * copied < computed);
    // Each token of a small one.
    let (copied, computed) = copied_and_computed("smollm2-135m");
    let (copied, computed) = (copied / 16.0, computed / 16.0);
    assert!(near(copied, 0.72e-6) && near(computed, 0.27e-6), "{copied}, {computed}");
}
