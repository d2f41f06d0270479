//! Shared memory that is read too early, and races: found without the luck of a bad order.

use ptx_interpreter::FaultKind;

use crate::kernel::{assert_fault, run_words, store};

/// Each thread writes its word of `smem`.
const WRITE: &str = "mov.u32 %r1, smem; mad.lo.u32 %r2, %tid, 4, %r1; st.shared.u32 [%r2], %tid;";
/// Each thread reads the word of the thread 32 before it, or after.
const READ_OTHER: &str =
    "xor.b32 %r3, %tid, 32; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];";

#[test]
fn what_nobody_wrote_is_not_read() {
    let body = "ld.shared.u32 %r1, [smem+8];";
    assert_fault(
        body,
        32,
        FaultKind::Uninitialised,
        "byte 0x8 of shared memory, which nothing has written",
    );
    // Three bytes of a word are not four.
    let body = "st.shared.u16 [smem], 1; st.shared.u8 [smem+2], 1; ld.shared.u32 %r1, [smem];";
    assert_fault(body, 1, FaultKind::Uninitialised, "byte 0x3");
    // An atomic adds to what is there.
    let body = "red.shared.add.u32 [smem], 1;";
    assert_fault(body, 32, FaultKind::Uninitialised, "changes byte 0x0");
}

#[test]
fn a_write_and_a_read_need_a_barrier_between_them() {
    // On the interpreter the first warp is done before the second one begins: the result would be right.
    assert_fault(
        &format!("{WRITE}{READ_OTHER}"),
        64,
        FaultKind::Uninitialised,
        "nothing has written",
    );
    let late = "setp.lt.u32 %p1, %tid, 32; @%p1 bra DONE; sub.u32 %r3, %tid, 32; mad.lo.u32 %r4, %r3, 4, %r1;\n\
         ld.shared.u32 %r5, [%r4]; DONE:";
    assert_fault(&format!("{WRITE}{late}"), 64, FaultKind::Race, "warp 1, lane 0");
    assert_fault(
        &format!("{WRITE}{late}"),
        64,
        FaultKind::Race,
        "which warp 0 wrote, with no barrier between",
    );
    let body = format!("{WRITE} bar.sync 0; {READ_OTHER} {}", store("%r5"));
    let (found, counts) = run_words(&body, 64, &[0], 64).unwrap();
    assert!(found.iter().enumerate().all(|(thread, value)| *value as usize == thread ^ 32));
    assert_eq!(counts.barriers, 1);
}

#[test]
fn every_byte_of_a_read_has_to_be_in_order() {
    // Of the word that warp 1 reads, the first half is its own and the second is warp 0's.
    let body = "setp.lt.u32 %p1, %tid, 32; @%p1 st.shared.u16 [smem+2], 1; @%p1 bra DONE;\n\
         st.shared.u16 [smem], 2; ld.shared.u32 %r1, [smem]; DONE:";
    assert_fault(body, 64, FaultKind::Race, "reads byte 0x2");
}

#[test]
fn a_read_and_the_next_write_need_one_too() {
    // Warp 1 alone writes.
    let body = format!(
        "{WRITE} bar.sync 0; {READ_OTHER} setp.ge.u32 %p1, %tid, 32; @%p1 st.shared.u32 [%r2], 7;"
    );
    assert_fault(&body, 64, FaultKind::Race, "which warp 0 read, with no barrier between");
    let body = format!("{WRITE} bar.sync 0; {READ_OTHER} bar.sync 0; st.shared.u32 [%r2], 7;");
    run_words(&body, 64, &[0], 1).unwrap();
}

#[test]
fn two_writes_to_one_word_race_and_to_two_halves_do_not() {
    assert_fault("st.shared.u32 [smem], %tid;", 64, FaultKind::Race, "which warp 0 wrote");
    run_words(
        "mov.u32 %r1, smem; mad.lo.u32 %r1, %tid, 2, %r1; st.shared.u16 [%r1+-0], %tid;",
        64,
        &[0],
        1,
    )
    .unwrap();
    // Lanes of one warp are ordered by the warp.
    run_words("st.shared.u32 [smem], %tid; st.shared.u32 [smem], %tid;", 32, &[0], 1).unwrap();
}

#[test]
fn many_readers_are_all_remembered() {
    // Four warps read one word; the last one writes it after a barrier with only one of the others.
    let body = "setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.u32 [smem], 1; bar.sync 0; ld.shared.u32 %r1, [smem];\n\
         setp.ge.u32 %p2, %tid, 64; @!%p2 bra DONE; bar.sync 1, 64; setp.eq.u32 %p3, %tid, 127;\n\
         @%p3 st.shared.u32 [smem], 2; DONE:";
    assert_fault(body, 128, FaultKind::Race, "which warp 0 read");
    let all = body.replace("@!%p2 bra DONE; bar.sync 1, 64;", "bar.sync 0;");
    run_words(&all, 128, &[0], 1).unwrap();
}

#[test]
fn a_plain_read_of_an_atomic_races() {
    let body = "setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.u32 [smem], 0; bar.sync 0;\n\
         red.shared.add.u32 [smem], 1; ld.shared.u32 %r1, [smem];";
    assert_fault(body, 64, FaultKind::Race, "warp 1");
}

#[test]
fn every_atomic_is_remembered_and_what_it_had_to_come_after() {
    let zero = "setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.u32 [smem], 0;";
    // Warps 0 and 1 add; warp 2 reads after a barrier with warp 1 alone.
    let body = format!(
        "{zero} bar.sync 0; setp.lt.u32 %p2, %tid, 64; @%p2 red.shared.add.u32 [smem], 1;\n\
         setp.ge.u32 %p3, %tid, 32; @!%p3 bra DONE; bar.sync 1, 64; setp.ge.u32 %p4, %tid, 64;\n\
         @%p4 ld.shared.u32 %r1, [smem]; DONE:"
    );
    assert_fault(&body, 96, FaultKind::Race, "reads byte 0x0");
    assert_fault(&body, 96, FaultKind::Race, "which warp 0 changed atomically");
    let all = body.replace("@!%p3 bra DONE; bar.sync 1, 64;", "bar.sync 0;");
    run_words(&all, 96, &[0], 1).unwrap();
    // Warp 0's own atomic does not make its write known to warp 1.
    let body = format!("{zero} red.shared.add.u32 [smem], 1;");
    assert_fault(&body, 64, FaultKind::Race, "changes byte 0x0");
    assert_fault(&body, 64, FaultKind::Race, "which warp 0 wrote");
}

#[test]
fn what_a_barrier_of_some_orders_it_orders_for_them_alone() {
    // Warps 0 and 1 meet at barrier 1; warp 2 does not.
    let body = format!(
        "setp.lt.u32 %p1, %tid, 32; setp.lt.u32 %p2, %tid, 64; @!%p1 bra NEXT; {WRITE} NEXT:\n\
         mov.u32 %r1, smem; @!%p2 bra READ; bar.sync 1, 64; READ: @%p1 bra DONE;\n\
         and.b32 %r3, %tid, 31; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4]; DONE:"
    );
    run_words(&body, 64, &[0], 1).unwrap();
    assert_fault(&body, 96, FaultKind::Race, "warp 2");
}
