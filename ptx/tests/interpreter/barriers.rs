//! Barriers of a block: who waits for whom, and what happens when somebody does not come.

use ptx_interpreter::FaultKind;

use crate::kernel::{assert_fault, run_words, store};

#[test]
fn a_producer_arrives_and_a_consumer_waits() {
    // Warp 0 fills, warp 1 reads: barrier 1 says full, barrier 2 says empty.
    let body = format!(
        "mov.u32 %r1, smem; and.b32 %r2, %tid, 31; mad.lo.u32 %r2, %r2, 4, %r1; mov.u32 %r3, 0; mov.u32 %r9, 0;\n\
         setp.ge.u32 %p1, %tid, 32; @%p1 bra CONSUME;\n\
         PRODUCE: bar.sync 2, 64; mad.lo.u32 %r4, %r3, 100, %tid; st.shared.u32 [%r2], %r4; bar.arrive 1, 64;\n\
         add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 3; @%p2 bra PRODUCE; bra DONE;\n\
         CONSUME: bar.arrive 2, 64; bar.sync 1, 64; ld.shared.u32 %r5, [%r2]; add.u32 %r9, %r9, %r5;\n\
         add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 3; @%p2 bra CONSUME;\n\
         DONE: {}",
        store("%r9")
    );
    let (found, counts) = run_words(&body, 64, &[0], 64).unwrap();
    for lane in 0..32 {
        assert_eq!(found[32 + lane], 300 + 3 * lane as u32);
    }
    assert_eq!(counts.barriers, 6);
    // The arrival comes before the write: the consumer may be faster.
    let wrong = body.replace(
        "st.shared.u32 [%r2], %r4; bar.arrive 1, 64;",
        "bar.arrive 1, 64; st.shared.u32 [%r2], %r4;",
    );
    let fault = crate::kernel::fault_of(&wrong, 64);
    assert!(matches!(fault.kind, FaultKind::Race | FaultKind::Uninitialised), "{fault}");
}

#[test]
fn barriers_that_reduce() {
    let body = |op: &str| format!("setp.lt.u32 %p1, %tid, 40; {op} {}", store("%r1"));
    let popc = body("barrier.red.popc.u32 %r1, 0, %p1;");
    assert_eq!(run_words(&popc, 64, &[0], 64).unwrap().0, [40; 64]);
    let any = body("bar.red.or.pred %p2, 0, %p1; selp.u32 %r1, 1, 0, %p2;");
    assert_eq!(run_words(&any, 64, &[0], 64).unwrap().0, [1; 64]);
    let all = body("bar.red.and.pred %p2, 0, %p1; selp.u32 %r1, 1, 0, %p2;");
    assert_eq!(run_words(&all, 64, &[0], 64).unwrap().0, [0; 64]);
    let no = body("bar.red.and.pred %p2, 0, !%p1; selp.u32 %r1, 1, 0, %p2;");
    assert_eq!(run_words(&no, 32, &[0], 32).unwrap().0, [0; 32]);
}

#[test]
fn warps_that_have_returned_are_not_waited_for() {
    let body = "setp.ge.u32 %p1, %tid, 32; @%p1 ret; bar.sync 0;";
    assert_eq!(run_words(body, 128, &[0], 1).unwrap().1.barriers, 1);
    // Also if they return while others wait already.
    let body = "setp.lt.u32 %p1, %tid, 32; @%p1 bra WAIT; ret; WAIT: bar.sync 0;";
    assert_eq!(run_words(body, 128, &[0], 1).unwrap().1.barriers, 1);
}

#[test]
fn a_barrier_that_not_all_come_to_is_named() {
    let body = "setp.ge.u32 %p1, %tid, 32; @%p1 bra OTHER; bar.sync 1, 64; bra DONE; OTHER: bar.sync 2, 64; DONE:";
    assert_fault(
        body,
        64,
        FaultKind::Deadlock,
        "warps [0] wait at barrier 1, where 32 of 64 threads have arrived",
    );
    assert_fault(body, 64, FaultKind::Deadlock, "warps [1] wait at barrier 2");
    assert_fault(
        "bar.sync 3, 128;",
        64,
        FaultKind::Deadlock,
        "where 64 of 128 threads have arrived",
    );
}

#[test]
fn half_a_warp_at_a_barrier() {
    let body = "setp.lt.u32 %p1, %lane, 7; @%p1 bra L; bar.sync 0; L:";
    assert_fault(
        body,
        32,
        FaultKind::Divergence,
        "lanes 0xffffff80 of the warp come to the barrier",
    );
}

#[test]
fn wrong_numbers() {
    assert_fault("mov.u32 %r1, 16; bar.sync %r1;", 32, FaultKind::Invalid, "numbers from 0 to 15");
    assert_fault("bar.sync 0, 40;", 64, FaultKind::Invalid, "a multiple of 32");
    let body = "setp.ge.u32 %p1, %tid, 32; @%p1 bra L; bar.sync 1, 64; L: bar.sync 1, 96;";
    assert_fault(body, 96, FaultKind::Invalid, "others came to it for");
}

#[test]
fn a_cluster_of_one_block() {
    let body = format!(
        "mov.u32 %r1, smem; mad.lo.u32 %r2, %tid, 4, %r1; st.shared.u32 [%r2], %tid;\n\
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n\
         xor.b32 %r3, %tid, 32; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];\n\
         mov.u32 %r6, %cluster_ctarank; add.u32 %r5, %r5, %r6; {}",
        store("%r5")
    );
    let (found, _) = run_words(&body, 64, &[0], 64).unwrap();
    assert!(found.iter().enumerate().all(|(thread, value)| *value as usize == thread ^ 32));
}

#[test]
fn a_warp_that_comes_to_the_clusters_barrier_and_returns_stands_for_no_other() {
    // The first warp is gone before the third has stored what the second reads.
    let body = format!(
        "mov.u32 %r1, smem; setp.lt.u32 %p1, %tid, 32; setp.ge.u32 %p2, %tid, 64;\n\
         @%p1 bra GONE; @%p2 bra LATE;\n\
         barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r5, [%r1]; {} ret;\n\
         GONE: barrier.cluster.arrive; ret;\n\
         LATE: mov.u32 %r6, 0;\n\
         AGAIN: add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 10000; @%p3 bra AGAIN;\n\
         mov.u32 %r7, 9; setp.eq.u32 %p4, %tid, 64; @%p4 st.shared.u32 [%r1], %r7;\n\
         barrier.cluster.arrive; barrier.cluster.wait;",
        store("%r5")
    );
    let (found, _) = run_words(&body, 96, &[0], 96).unwrap();
    assert_eq!(found[32..64], [9; 32]);
}

#[test]
fn the_clusters_barrier_twice_without_a_wait() {
    let body = "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;";
    assert_fault(body, 64, FaultKind::Invalid, "came to the cluster's barrier twice");
}
