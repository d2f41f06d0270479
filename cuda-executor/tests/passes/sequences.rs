//! Sequences that are rolled back, forked, parked, and guessed at.

use crate::world::{ROOM, bits, fed, on_device, text};
use cuda_executor::CudaExecutor;
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{Executor, Pass, Span, Visible, Want};
use paged_cache::offload::HostTier;

#[test]
fn what_is_rolled_back_leaves_nothing_behind() {
    let text = text(40);
    let mut executor = on_device(ROOM);
    let run = |executor: &mut CudaExecutor<_>, start: usize, tokens: &[u32]| {
        executor.execute(&Pass::one(Span::new(1, start, tokens, Want::Last))).unwrap()
    };
    run(&mut executor, 0, &text[..20]);
    run(&mut executor, 20, &[7; 18]);
    executor.cache_mut().truncate(1, 20).unwrap();
    assert_eq!(executor.cache().len(1), 20);
    let again = run(&mut executor, 20, &text[20..]);
    assert_eq!(again.into_raw_vec_and_offset().0, fed(&[20, 40], &text));
}

#[test]
fn what_two_sequences_share_is_copied_before_one_writes_to_it() {
    let text = text(60);
    let mut executor = on_device(ROOM);
    let run = |executor: &mut CudaExecutor<_>, sequence, start, tokens: &[u32]| {
        bits(executor.execute(&Pass::one(Span::new(sequence, start, tokens, Want::Last))).unwrap())
    };
    run(&mut executor, 1, 0, &text[..40]);
    let fork = executor.cache_mut().fork(1).unwrap();
    // Forty tokens end inside of a block.
    assert_eq!(executor.cache().blocks().used(), 3);
    let forked = run(&mut executor, fork, 40, &[9; 5]);
    assert_eq!(forked, fed(&[40, 45], &[&text[..40], &[9; 5]].concat()));
    assert_eq!(executor.cache().blocks().used(), 4);
    assert_eq!(run(&mut executor, 1, 40, &text[40..]), fed(&[40, 60], &text));
    executor.cache().check_integrity([]).unwrap();
}

#[test]
fn the_branch_that_came_true_is_kept() {
    let text = text(30);
    let mut executor = on_device(ROOM);
    executor.execute(&Pass::one(Span::new(1, 0, &text, Want::Nothing))).unwrap();
    // Two guesses after the text, and one after the second of them, which crosses into the next block.
    let mut span = Span::new(1, 30, &[4, 5, 6], Want::All);
    span.positions = vec![30, 30, 31];
    span.sees[1] = Visible { range: 0..30, also: vec![31] };
    span.sees[2] = Visible { range: 0..30, also: vec![31, 32] };
    executor.execute(&Pass::one(span)).unwrap();
    executor.cache_mut().keep(1, 30, &[31, 32]).unwrap();
    let next = Span::new(1, 32, &[8, 9], Want::Last);
    let found = bits(executor.execute(&Pass::one(next)).unwrap());
    // A branch's keys are promised up to rounding, and come out exact in this case.
    assert_eq!(found, fed(&[30, 34], &[&text[..], &[5, 6, 8, 9]].concat()));
}

#[test]
fn a_sequence_goes_to_the_host_and_comes_back() {
    let text = text(60);
    let mut executor = on_device(ROOM);
    let pass = |sequence, start, tokens| Pass::one(Span::new(sequence, start, tokens, Want::Last));
    executor.execute(&pass(1, 0, &text[..45])).unwrap();
    let mut tier = HostTier::new(usize::MAX);
    let parked = executor.cache_mut().park(1, &mut tier).unwrap();
    // Others have its blocks meanwhile.
    executor.execute(&pass(0, 0, &[3; 70])).unwrap();
    let back = executor.cache_mut().unpark(&parked, &mut tier).unwrap();
    assert_eq!(executor.cache().len(back), 45);
    let found = bits(executor.execute(&pass(back, 45, &text[45..])).unwrap());
    assert_eq!(found, fed(&[45, 60], &text));
}
