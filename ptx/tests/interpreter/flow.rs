//! Branches: lanes part, meet again, loop for different times, and return early.

use ptx_interpreter::FaultKind;

use crate::kernel::{assert_fault, each_lane, run_words, store};

#[test]
fn lanes_part_and_meet_at_the_post_dominator() {
    // After the two sides, all 32 lanes are together: a ballot over all of them is allowed and sees everyone.
    let body = "setp.lt.u32 %p1, %lane, 10;\n\
         @%p1 bra LOW;\n mov.u32 %r1, 100; bra MEET;\n\
         LOW: mov.u32 %r1, 7;\n\
         MEET: activemask.b32 %r2; setp.eq.u32 %p2, %r2, -1;\n\
         selp.b32 %r1, %r1, 0, %p2;";
    let found = each_lane(body, "%r1");
    for (lane, value) in found.iter().enumerate() {
        assert_eq!(*value, if lane < 10 { 7 } else { 100 }, "lane {lane}");
    }
}

#[test]
fn nested_branches_meet_from_the_inside_out() {
    let body = "and.b32 %r1, %lane, 1; and.b32 %r2, %lane, 2; mov.u32 %r5, 0;\n\
         setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r2, 0;\n\
         @!%p1 bra OUTER;\n\
         @!%p2 bra INNER;\n add.u32 %r5, %r5, 1;\n\
         INNER: activemask.b32 %r6; add.u32 %r5, %r5, 2;\n\
         OUTER: activemask.b32 %r7; popc.b32 %r8, %r7; mad.lo.u32 %r5, %r8, 100, %r5;";
    let found = each_lane(body, "%r5");
    for (lane, value) in found.iter().enumerate() {
        let inner = if lane & 1 == 0 {
            0
        } else if lane & 2 == 0 {
            2
        } else {
            3
        };
        assert_eq!(*value, 3200 + inner, "lane {lane}");
    }
    // At INNER the odd lanes are together again, whichever way they came.
    let found = each_lane(&format!("mov.u32 %r6, 0;{body}"), "%r6");
    assert_eq!(found[1], 0xaaaa_aaaa);
    assert_eq!(found[3], 0xaaaa_aaaa);
}

#[test]
fn every_lane_loops_for_as_long_as_it_likes() {
    let body = "mov.u32 %r1, 0; mov.u32 %r2, 0;\n\
         LOOP: setp.ge.u32 %p1, %r2, %lane; @%p1 bra DONE;\n\
         add.u32 %r2, %r2, 1; add.u32 %r1, %r1, %r2; bra LOOP;\n\
         DONE: activemask.b32 %r3; not.b32 %r3, %r3; add.u32 %r1, %r1, %r3;";
    let found = each_lane(body, "%r1");
    for (lane, value) in found.iter().enumerate() {
        assert_eq!(*value as usize, lane * (lane + 1) / 2, "lane {lane}");
    }
}

#[test]
fn lanes_that_return_are_not_waited_for() {
    let body = format!(
        "mov.u32 %r1, 9; {} setp.lt.u32 %p1, %lane, 4; @%p1 ret;\n\
         activemask.b32 %r1; vote.sync.ballot.b32 %r1, %p1, -1; add.u32 %r1, %r1, %lane; {}",
        store("%r1"),
        store("%r1")
    );
    let (found, counts) = run_words(&body, 32, &[0; 32], 32).unwrap();
    for (lane, value) in found.iter().enumerate() {
        assert_eq!(*value, if lane < 4 { 9 } else { lane as u32 }, "lane {lane}");
    }
    // A guarded return is no branch.
    assert_eq!(counts.divergent_branches, 0);
}

#[test]
fn divergence_is_counted() {
    let count = |bound: u32| {
        let body = format!(
            "setp.lt.u32 %p1, %lane, {bound}; @%p1 bra L; mov.u32 %r1, 1; L: mov.u32 %r2, 2;"
        );
        run_words(&body, 32, &[0], 1).unwrap().1.divergent_branches
    };
    assert_eq!((count(0), count(5), count(32)), (0, 1, 0));
}

#[test]
fn labels_and_registers_of_inner_braces_are_their_own() {
    let body = "mov.u32 %r1, 0;\n\
         { .reg .pred p; .reg .b32 x; mov.u32 x, 3; L: sub.u32 x, x, 1; add.u32 %r1, %r1, 10; setp.ne.u32 p, x, 0; @p bra L; }\n\
         { .reg .pred p; .reg .b32 x; mov.u32 x, 2; L: sub.u32 x, x, 1; add.u32 %r1, %r1, 1; setp.ne.u32 p, x, 0; @p bra L; }";
    assert_eq!(each_lane(body, "%r1"), [32; 32]);
}

#[test]
fn a_loop_without_end_is_an_error() {
    assert_fault("L: bra L;", 32, FaultKind::Endless, "a loop without end");
}

#[test]
fn a_trap_stops_the_kernel() {
    assert_fault("setp.eq.u32 %p1, %lane, 3; @%p1 trap;", 32, FaultKind::Invalid, "stops itself");
}

#[test]
fn blocks_and_threads_know_their_places() {
    use ptx_interpreter::{Device, Launch, Module, run};
    let text = ".version 8.4\n.target sm_80\n.address_size 64\n\
        .visible .entry k(.param .u64 out) {\n.reg .b32 %r<20>; .reg .b64 %rd<4>;\n\
        mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;\n\
        mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;\n\
        mad.lo.u32 %r7, %r3, %r5, %r2; mad.lo.u32 %r7, %r7, %r4, %r1; // thread\n\
        mov.u32 %r8, %ctaid.x; mov.u32 %r9, %ctaid.y; mov.u32 %r10, %ctaid.z;\n\
        mov.u32 %r11, %nctaid.x; mov.u32 %r12, %nctaid.y;\n\
        mad.lo.u32 %r13, %r10, %r12, %r9; mad.lo.u32 %r13, %r13, %r11, %r8; // block\n\
        mul.lo.u32 %r14, %r4, %r5; mul.lo.u32 %r14, %r14, %r6;\n\
        mad.lo.u32 %r15, %r13, %r14, %r7;\n\
        ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r15, 4; add.s64 %rd3, %rd1, %rd2;\n\
        st.global.u32 [%rd3], %r15; ret; }";
    let module = Module::parse(text).unwrap();
    let mut device = Device::new();
    // 3 x 5 x 3 threads: two warps, the second one not full.
    let out = device.alloc::<u32>(3 * 5 * 3 * 2 * 3 * 2);
    let launch =
        Launch { grid: [2, 3, 2], block: [3, 5, 3], shared_bytes: 0, args: vec![out.into()] };
    run(module.kernel("k").unwrap(), &mut device, &launch).unwrap();
    let expected: Vec<u32> = (0..out.len() as u32).collect();
    assert_eq!(device.download(out).unwrap(), expected);
}
