//! mbarriers: arrivals, phases, and who waits for them.

use crate::kernel::{assert_fault, run_words, store};
use ptx_interpreter::FaultKind;

const BARRIER: &str =
    "setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared::cta.b64 [smem+16376], 64; bar.sync 0;\n";

#[test]
fn arrivals_complete_a_phase() {
    // 64 threads write, arrive and wait; then each reads what the other warp wrote.
    let body = |arrive: &str| {
        format!(
            "{BARRIER} mov.u32 %r1, smem; mad.lo.u32 %r2, %tid, 4, %r1; st.shared.u32 [%r2], %tid;\n\
             {arrive} W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16376], 0; @!%p2 bra W;\n\
             xor.b32 %r3, %tid, 32; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4]; {}",
            store("%r5")
        )
    };
    let arrive = "mbarrier.arrive.shared::cta.b64 _, [smem+16376];";
    let (found, counts) = run_words(&body(arrive), 64, &[0], 64).unwrap();
    assert!(found.iter().enumerate().all(|(thread, value)| *value as usize == thread ^ 32));
    assert_eq!(counts.mbarrier_phases, 1);
    // One arrival missing.
    let one_less = format!("@!%p1 {arrive}");
    let part = "wait for the phase of parity 0 of the mbarrier at 0x3ff8, which is in phase 0 with 1 of 64 arrivals";
    assert_fault(&body(&one_less), 64, FaultKind::Deadlock, part);
    // One too many.
    let too_many = "mbarrier.arrive.shared::cta.b64 _, [smem+16376], 65;";
    assert_fault(&body(too_many), 64, FaultKind::Invalid, "whose phase waits for 64 more of 64");
}

#[test]
fn a_token_waits_for_the_phase_that_it_saw() {
    let body = format!(
        "{BARRIER} mbarrier.arrive.shared::cta.b64 %rd1, [smem+16376];\n\
         W: mbarrier.test_wait.shared::cta.b64 %p2, [smem+16376], %rd1; @!%p2 bra W;\n\
         mbarrier.arrive.shared::cta.b64 %rd2, [smem+16376]; sub.u64 %rd3, %rd2, %rd1; cvt.u32.u64 %r5, %rd3; {}",
        store("%r5")
    );
    let (found, counts) = run_words(&body, 64, &[0], 64).unwrap();
    assert_eq!(found, [1; 64]);
    assert_eq!(counts.mbarrier_phases, 2);
}

#[test]
fn an_mbarrier_has_to_be_there_and_known_to_be() {
    assert_fault(
        "mbarrier.arrive.shared::cta.b64 _, [smem];",
        32,
        FaultKind::Invalid,
        "no mbarrier was initialised",
    );
    let unordered =
        BARRIER.replace("bar.sync 0;", "mbarrier.arrive.shared::cta.b64 _, [smem+16376];");
    assert_fault(&unordered, 64, FaultKind::Race, "uses the mbarrier at");
    assert_fault(
        "mbarrier.init.shared::cta.b64 [smem], 0;",
        1,
        FaultKind::Invalid,
        "for 0 arrivals",
    );
    assert_fault(
        "mbarrier.init.shared::cta.b64 [smem+4], 1;",
        1,
        FaultKind::Misaligned,
        "multiple of 8",
    );
}
