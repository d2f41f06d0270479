//! Blocks that several hold.

use crate::{executor, run};
use gqa_mla::Maker;
use naive_decode::{Attention, Element, Isa, KvSize, Pass, Span, Want};
use paged_cache::{Behind, Layout, PagedCache, Room};

/// Blocks in use before and after each of three answers has had a token.
fn three_answers(prompt: usize) -> (usize, usize) {
    let mut executor = executor(32, 16);
    let first = executor.attention.open();
    run(&mut executor, &[(first, prompt)]).unwrap();
    let second = executor.attention.fork(first).unwrap();
    let third = executor.attention.fork(first).unwrap();
    let before = executor.attention.blocks().used();
    run(&mut executor, &[(first, 1), (second, 1), (third, 1)]).unwrap();
    executor.attention.check_integrity([]).unwrap();
    (before, executor.attention.blocks().used())
}

#[test]
fn three_answers_to_a_prompt_of_100() {
    let (before, after) = three_answers(100);
    assert_eq!((before, after), (7, 9));
}

#[test]
fn three_answers_to_a_prompt_of_96() {
    let (before, after) = three_answers(96);
    assert_eq!((before, after), (6, 9));
}

#[test]
fn the_first_may_end_before_its_forks() {
    let mut executor = executor(32, 16);
    let first = executor.attention.open();
    run(&mut executor, &[(first, 100)]).unwrap();
    let fork = executor.attention.fork(first).unwrap();
    let held = |cache: &PagedCache| cache.tables(fork).unwrap().held().collect::<Vec<_>>();
    let held_before = held(&executor.attention);
    executor.attention.close(first).unwrap();
    let held_after = held(&executor.attention);
    assert_eq!(held_before, held_after);
    let blocks = executor.attention.blocks();
    assert!(held_after.iter().all(|&block| blocks.references(block) == 1));
    executor.attention.check_integrity([]).unwrap();
}

#[test]
fn blocks_of_a_window_of_64() {
    let size = KvSize { heads: 1, key_dim: 8, value_dim: 8 };
    let made = [Some(Maker { size, window: Some(64) })];
    let kept = Element::F32.into();
    let layout = Layout::of(&made, 16, kept).unwrap();
    let bytes = 8 * layout.block_bytes();
    let behind = Behind::Freed;
    let room = Room { bytes, block: 16, capacity: 10_000, kept, behind, rollback: 0 };
    let mut cache = PagedCache::over(layout, room, Isa::best()).unwrap();
    let sequence = cache.open();
    let mut most = 0;
    for start in 0..10_000 {
        // What attention would write and read is of no interest here.
        let pass = Pass::one(Span::new(sequence, start, &[0], Want::Last));
        cache.begin(&pass).unwrap();
        most = most.max(cache.blocks().used());
        cache.commit(&pass);
        most = most.max(cache.blocks().used());
    }
    assert_eq!(most, 5);
}
