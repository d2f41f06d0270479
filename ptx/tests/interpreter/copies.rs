//! `cp.async`: bytes land when they are waited for, and who looks before is stopped.

use ptx_interpreter::FaultKind;

use crate::kernel::{assert_fault, run_words, store};

/// Each lane copies its four words; then `%r2` is where they go.
const COPY: &str = "mov.u32 %r1, smem; mad.lo.u32 %r2, %tid, 16, %r1; mul.wide.u32 %rd1, %tid, 16; add.s64 %rd1, %rd1, %in;\n\
     cp.async.cg.shared.global [%r2], [%rd1], 16; cp.async.commit_group;\n";

#[test]
fn copies_land_at_the_wait() {
    let input: Vec<u32> = (0..128).collect();
    let body =
        format!("{COPY} cp.async.wait_group 0; ld.shared.u32 %r3, [%r2+8]; {}", store("%r3"));
    let (found, counts) = run_words(&body, 32, &input, 32).unwrap();
    assert!(found.iter().enumerate().all(|(lane, value)| *value as usize == 4 * lane + 2));
    assert_eq!(
        (counts.global_load_requests, counts.global_load_sectors, counts.global_load_bytes),
        (1, 16, 512)
    );
}

#[test]
fn reading_before_the_wait_is_caught() {
    let early = format!("{COPY} ld.shared.u32 %r3, [%r2];");
    assert_fault(
        &early,
        32,
        FaultKind::InFlight,
        "into which an asynchronous copy has not landed yet",
    );
    // Two groups, and a wait for all but one: the second one may not be looked at.
    let second = COPY.replace("[%r2]", "[%r2+2048]");
    let body = |offset: u32| {
        format!("{COPY}{second} cp.async.wait_group 1; ld.shared.u32 %r3, [%r2+{offset}];")
    };
    run_words(&format!("{} cp.async.wait_group 0;", body(0)), 32, &[0; 128], 1).unwrap();
    assert_fault(&body(2048), 32, FaultKind::InFlight, "byte 0x800");
    // A copy that nobody has committed is in no group.
    let open = COPY.replace("cp.async.commit_group;", "");
    assert_fault(
        &format!("{open} cp.async.wait_group 0; ld.shared.u32 %r3, [%r2];"),
        32,
        FaultKind::InFlight,
        "",
    );
    run_words(&format!("{open} cp.async.wait_all; ld.shared.u32 %r3, [%r2];"), 32, &[0; 128], 1)
        .unwrap();
}

#[test]
fn writing_where_a_copy_will_land_is_caught() {
    let body = format!("{COPY} st.shared.u32 [%r2], 1;");
    assert_fault(&body, 32, FaultKind::InFlight, "writes byte 0x0");
}

#[test]
fn a_wait_is_for_the_own_warp_alone() {
    let other = "xor.b32 %r4, %tid, 32; mad.lo.u32 %r5, %r4, 16, %r1; ld.shared.u32 %r3, [%r5];";
    let body = format!("{COPY} cp.async.wait_group 0; {other}");
    assert!(matches!(
        crate::kernel::fault_of(&body, 64).kind,
        FaultKind::Race | FaultKind::InFlight | FaultKind::Uninitialised
    ));
    let body = format!("{COPY} cp.async.wait_group 0; bar.sync 0; {other}");
    run_words(&body, 64, &[0; 256], 1).unwrap();
    // The barrier before the wait orders nothing.
    let body = format!("{COPY} bar.sync 0; cp.async.wait_group 0; {other}");
    assert!(matches!(
        crate::kernel::fault_of(&body, 64).kind,
        FaultKind::Race | FaultKind::InFlight
    ));
}

#[test]
fn a_buffer_is_not_filled_again_while_others_read_it() {
    let read = "xor.b32 %r4, %tid, 32; mad.lo.u32 %r5, %r4, 16, %r1; ld.shared.u32 %r3, [%r5];";
    let again = COPY.replace("mov.u32 %r1, smem;", "");
    let body = |barrier: &str| {
        format!(
            "{COPY} cp.async.wait_group 0; bar.sync 0; {read} {barrier} {again} cp.async.wait_group 0;"
        )
    };
    run_words(&body("bar.sync 0;"), 64, &[0; 256], 1).unwrap();
    let fault = crate::kernel::fault_of(&body(""), 64);
    assert!(matches!(fault.kind, FaultKind::Race | FaultKind::InFlight), "{fault}");
}

#[test]
fn what_is_not_wanted_is_zero_and_not_read() {
    let body = format!(
        "mov.u32 %r1, smem; mad.lo.u32 %r2, %lane, 16, %r1; mul.wide.u32 %rd1, %lane, 16; add.s64 %rd1, %rd1, %in;\n\
         setp.lt.u32 %p1, %lane, 2; selp.b32 %r3, 16, 0, %p1; setp.eq.u32 %p2, %lane, 2; selp.b32 %r3, 4, %r3, %p2;\n\
         cp.async.cg.shared.global [%r2], [%rd1], 16, %r3; cp.async.wait_all;\n\
         ld.shared.v2.u32 {{%r4, %r5}}, [%r2]; add.u32 %r4, %r4, %r5; {}",
        store("%r4")
    );
    // The input has nothing for lanes 3 and on, and one word for lane 2.
    let (found, counts) = run_words(&body, 32, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 32).unwrap();
    assert_eq!(found[..4], [3, 11, 9, 0]);
    assert_eq!(counts.global_load_bytes, 36);
}

#[test]
fn small_copies_and_their_alignment() {
    let body = "mov.u32 %r1, smem; cp.async.ca.shared.global [%r1+4], [%in+4], 4; cp.async.wait_all; ld.shared.u32 %r2, [%r1+4]; st.global.u32 [%out], %r2;";
    assert_eq!(run_words(body, 1, &[1, 2], 1).unwrap().0, [2]);
    assert_fault(
        "cp.async.cg.shared.global [smem+8], [%in], 16;",
        1,
        FaultKind::Misaligned,
        "multiple of 16",
    );
    assert_fault(
        "cp.async.cg.shared.global [smem], [%in+8], 16;",
        1,
        FaultKind::Misaligned,
        "of global memory",
    );
}

/// Groups are each thread's own: what one lane commits or waits for says nothing of another's copies.
#[test]
fn lanes_commit_and_wait_together() {
    let first_half = "setp.lt.u32 %p1, %lane, 16; @%p1 ";
    for (alone, what) in [
        ("cp.async.commit_group;", "a group of copies"),
        ("cp.async.wait_group 0;", "a wait for copies"),
        ("cp.async.wait_all;", "a wait for copies"),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [smem+16376];", "an arrival after copies"),
    ] {
        let part = format!("{what} by some lanes alone, 0x0000ffff of 0xffffffff");
        assert_fault(&format!("{COPY}{first_half}{alone}"), 32, FaultKind::Divergence, &part);
    }
    // Lanes that have returned are not missed.
    let body = format!("{first_half} ret; {COPY} cp.async.wait_group 0; ld.shared.u32 %r3, [%r2];");
    run_words(&body, 32, &[0; 128], 1).unwrap();
}

#[test]
fn nobody_returns_before_its_copies_have_landed() {
    run_words(&format!("{COPY} cp.async.wait_group 0;"), 32, &[0; 128], 1).unwrap();
    let part = "returns with `cp.async` copies under way; right would be to wait for all groups";
    assert_fault(COPY, 32, FaultKind::InFlight, part);
    let open = COPY.replace("cp.async.commit_group;", "");
    assert_fault(&format!("{open} cp.async.wait_group 0;"), 32, FaultKind::InFlight, part);
    // Half of the lanes return, and the other half waits.
    let halves = "setp.lt.u32 %p1, %lane, 16; @%p1 ret; cp.async.wait_group 0;";
    let fault = crate::kernel::fault_of(&format!("{COPY}{halves}"), 32);
    assert_eq!((fault.kind, fault.lane), (FaultKind::InFlight, Some(0)), "{fault}");
    // A group with nothing in it is nothing to wait for.
    run_words("cp.async.commit_group;", 32, &[0], 1).unwrap();
}

/// An mbarrier for so many arrivals, each thread's copy, and its arrival when that has landed.
fn arriving(arrivals: u32, arrive: &str) -> String {
    format!(
        "setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared::cta.b64 [smem+16376], {arrivals}; bar.sync 0;\n\
         {COPY} cp.async.mbarrier.{arrive}.shared::cta.b64 [smem+16376];\n"
    )
}

const WAIT: &str =
    "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16376], 0; @!%p2 bra W;\n";
/// What another warp's thread has copied, to `%r3`.
const OTHERS: &str =
    "xor.b32 %r4, %tid, 32; mad.lo.u32 %r5, %r4, 16, %r1; ld.shared.u32 %r3, [%r5];\n";

#[test]
fn an_mbarrier_hears_of_copies_when_they_have_landed() {
    let input: Vec<u32> = (0..256).collect();
    let noinc = arriving(64, "arrive.noinc");
    let body = format!("{noinc}{WAIT}{OTHERS}{}", store("%r3"));
    let (found, counts) = run_words(&body, 64, &input, 64).unwrap();
    assert!(found.iter().enumerate().all(|(thread, &value)| value as usize == 4 * (thread ^ 32)));
    assert_eq!(counts.mbarrier_phases, 1);
    // Who has made the arrival depend on them has waited for nothing.
    let early = format!("{noinc} ld.shared.u32 %r3, [%r2]; {WAIT}");
    assert_fault(&early, 64, FaultKind::InFlight, "has not landed yet");
    let by_another_barrier = format!("{noinc} bar.sync 0; {OTHERS}{WAIT}");
    assert_fault(&by_another_barrier, 64, FaultKind::InFlight, "has not landed yet");
    // Who returns leaves it to those who wait; if nobody does, the copy has no end.
    let producer = "setp.lt.u32 %p3, %tid, 32; @%p3 ret;\n";
    run_words(&format!("{noinc}{producer}{WAIT}{OTHERS}"), 64, &[0; 256], 1).unwrap();
    assert_fault(&noinc, 64, FaultKind::InFlight, "the block ends before 512 bytes from here");
    // One arrival more than there are.
    let part = "with 1 of 65 arrivals";
    assert_fault(&format!("{}{WAIT}", arriving(65, "arrive.noinc")), 64, FaultKind::Deadlock, part);
    // Half of them are two phases, one for each warp.
    let next = WAIT.replace('W', "V").replace("], 0", "], 1");
    let body = format!("{}{WAIT}{next}{OTHERS}", arriving(32, "arrive.noinc"));
    assert_eq!(run_words(&body, 64, &[0; 256], 1).unwrap().1.mbarrier_phases, 2);
    // While a phase still waits for bytes, there is nothing that the other warp could arrive at.
    let bytes = "@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [smem+16376], 16; bar.sync 0;";
    let body = body.replacen("bar.sync 0;", &format!("bar.sync 0; {bytes}"), 1);
    let fault = crate::kernel::fault_of(&body, 64);
    assert!(fault.problem.contains("whose phase waits for 0 more of 32"), "{fault}");
    assert!(fault.text.starts_with("cp.async.mbarrier.arrive"), "{fault}");
}

#[test]
fn an_arrival_that_was_not_counted_is_one_more() {
    let body = |arrive: &str| format!("{}{arrive}{WAIT}{OTHERS}", arriving(64, "arrive"));
    let arrive = "mbarrier.arrive.shared::cta.b64 _, [smem+16376];";
    let (_, counts) = run_words(&body(arrive), 64, &[0; 256], 1).unwrap();
    assert_eq!(counts.mbarrier_phases, 1);
    // 64 came of the copies, for which there were 64 more to wait for.
    assert_fault(&body(""), 64, FaultKind::Deadlock, "with 64 of 64 arrivals");
}

#[test]
fn copies_that_an_mbarrier_hears_of_stay_in_their_groups() {
    let noinc = arriving(64, "arrive.noinc");
    let own = "ld.shared.u32 %r3, [%r2];";
    // By group, before they have landed with the mbarrier; the mbarrier hears of it all the same.
    let body = format!("{noinc} cp.async.wait_group 0; {own}{WAIT}{}", store("%r3"));
    let input: Vec<u32> = (0..256).collect();
    let (found, _) = run_words(&body, 64, &input, 64).unwrap();
    assert!(found.iter().enumerate().all(|(thread, &value)| value as usize == 4 * thread));
    // And after: warp 1 waits at the mbarrier, and warp 0 for copies of its own, until its others have landed too.
    let init = "mbarrier.init.shared::cta.b64 [smem+16368], 1;";
    let mut fetches = String::new();
    for phase in 0..8 {
        fetches += &format!(
            "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+16368], 16;\n\
             @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+8192], [%in], 16, [smem+16368];\n\
             V{phase}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16368], {}; @!%p2 bra V{phase};\n",
            phase % 2
        );
    }
    let body = |wait: &str| {
        format!(
            "setp.eq.u32 %p1, %tid, 0; @%p1 {init} {noinc} setp.lt.u32 %p3, %tid, 32; @%p3 bra M; {WAIT} ret;\n\
             M: {fetches} {wait}{own}"
        )
    };
    run_words(&body("cp.async.wait_group 0;"), 64, &input, 1).unwrap();
    assert_fault(&body(""), 64, FaultKind::Race, "which an asynchronous copy wrote");
}
