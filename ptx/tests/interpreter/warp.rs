//! What the lanes of a warp do together.

use ptx_interpreter::FaultKind;

use crate::kernel::{assert_fault, each_lane};

/// The lane that each lane reads from, and whether it lies in the segment.
fn shuffled(mode: &str, by: &str, clamp: &str) -> Vec<(u32, bool)> {
    let body = format!(
        "shfl.sync.{mode}.b32 %r1|%p1, %lane, {by}, {clamp}, -1; selp.b32 %r2, 256, 0, %p1; or.b32 %r1, %r1, %r2;"
    );
    each_lane(&body, "%r1").into_iter().map(|value| (value & 255, value & 256 != 0)).collect()
}

#[test]
fn shuffles() {
    for lane in 0..32u32 {
        let at = lane as usize;
        assert_eq!(shuffled("bfly", "5", "31")[at], (lane ^ 5, true));
        assert_eq!(shuffled("idx", "7", "31")[at], (7, true));
        let down = if lane + 3 < 32 { (lane + 3, true) } else { (lane, false) };
        assert_eq!(shuffled("down", "3", "31")[at], down);
        let up = if lane >= 3 { (lane - 3, true) } else { (lane, false) };
        assert_eq!(shuffled("up", "3", "0")[at], up);
        // Segments of eight lanes: mask 0x18 in bits 8 to 12.
        let segment = lane / 8 * 8;
        assert_eq!(shuffled("idx", "2", "0x181f")[at], (segment + 2, true));
        let down = if lane + 3 < segment + 8 { (lane + 3, true) } else { (lane, false) };
        assert_eq!(shuffled("down", "3", "0x181f")[at], down);
    }
}

#[test]
fn a_shuffle_needs_the_lanes_that_it_names() {
    let body =
        "setp.lt.u32 %p1, %lane, 16; @!%p1 bra L; shfl.sync.bfly.b32 %r1, %lane, 1, 31, -1; L:";
    assert_fault(body, 32, FaultKind::Divergence, "lanes 0xffff0000 are named");
    let body = "shfl.sync.bfly.b32 %r1, %lane, 1, 31, 0xffff;";
    assert_fault(body, 32, FaultKind::Divergence, "not among the lanes");
    // Half a warp that names itself may.
    let body = "mov.u32 %r1, 0; setp.lt.u32 %p1, %lane, 16; @!%p1 bra L;\n\
         shfl.sync.bfly.b32 %r1, %lane, 1, 31, 0xffff; L:";
    assert_eq!(each_lane(body, "%r1")[..4], [1, 0, 3, 2]);
}

#[test]
fn a_shuffle_reads_from_lanes_that_take_part() {
    let half = "setp.lt.u32 %p1, %lane, 16;";
    let part = "reads from lane 16, which does not take part; lanes 0x0000ffff do";
    // Elsewhere, gone, or among others that meet at the same instruction.
    let shuffle = "shfl.sync.bfly.b32 %r1, %lane, 16, 31,";
    assert_fault(
        &format!("{half} @!%p1 bra L; {shuffle} 0xffff; L:"),
        32,
        FaultKind::Divergence,
        part,
    );
    assert_fault(&format!("{half} @!%p1 ret; {shuffle} -1;"), 32, FaultKind::Divergence, part);
    let groups = "selp.b32 %r2, 0x0000ffff, 0xffff0000, %p1;";
    assert_fault(&format!("{half} {groups} {shuffle} %r2;"), 32, FaultKind::Divergence, part);
    // Beyond its segment a lane reads from itself.
    let body = "shfl.sync.down.b32 %r1, %lane, 1, 31, 0xf;";
    let body = format!("mov.u32 %r1, 0; setp.lt.u32 %p1, %lane, 4; @!%p1 bra L; {body} L:");
    assert_fault(&body, 32, FaultKind::Divergence, "lane 3");
    let segment = body.replace("31, 0xf", "0x1c03, 0xf");
    assert_eq!(each_lane(&segment, "%r1")[..4], [1, 2, 3, 3]);
}

#[test]
fn votes() {
    let body = "setp.lt.u32 %p1, %lane, 3; vote.sync.ballot.b32 %r1, %p1, -1;";
    assert_eq!(each_lane(body, "%r1"), [7; 32]);
    for (bound, all, any, uniform) in [(0, 0, 0, 1), (5, 0, 1, 0), (32, 1, 1, 1)] {
        for (mode, right) in [("all", all), ("any", any), ("uni", uniform)] {
            let body = format!(
                "setp.lt.u32 %p1, %lane, {bound}; vote.sync.{mode}.pred %p2, %p1, -1; selp.u32 %r1, 1, 0, %p2;"
            );
            assert_eq!(each_lane(&body, "%r1"), [right; 32], "{mode} of {bound}");
        }
    }
}

#[test]
fn matches_and_reductions() {
    let body = "and.b32 %r1, %lane, 3; match.any.sync.b32 %r2, %r1, -1;";
    for (lane, found) in each_lane(body, "%r2").into_iter().enumerate() {
        assert_eq!(found, 0x1111_1111 << (lane % 4));
    }
    let body = "mov.u32 %r1, 5; match.all.sync.b32 %r2|%p1, %r1, -1; selp.u32 %r2, %r2, 0, %p1;";
    assert_eq!(each_lane(body, "%r2"), [u32::MAX; 32]);
    let body = "match.all.sync.b32 %r2|%p1, %lane, -1; selp.u32 %r2, 1, %r2, %p1;";
    assert_eq!(each_lane(body, "%r2"), [0; 32]);
    for (op, right) in
        [("add.u32", 496), ("min.s32", 0), ("max.u32", 31), ("or.b32", 31), ("xor.b32", 0)]
    {
        let body = format!("redux.sync.{op} %r1, %lane, -1;");
        assert_eq!(each_lane(&body, "%r1"), [right; 32], "{op}");
    }
}

#[test]
fn one_lane_is_elected() {
    let body = "elect.sync %r1|%p1, -1; selp.u32 %r2, 1, 0, %p1;";
    let found = each_lane(body, "%r2");
    assert_eq!(found.iter().sum::<u32>(), 1);
    let leader = each_lane(body, "%r1");
    assert_eq!(found[leader[0] as usize], 1);
}

/// Both halves of a warp come to one instruction, each naming itself.
#[test]
fn lanes_that_name_other_lanes_act_for_themselves() {
    let halves = "setp.lt.u32 %p1, %lane, 16; selp.b32 %r9, 0x0000ffff, 0xffff0000, %p1;";
    let found = |body: &str, register: &str| each_lane(&format!("{halves} {body}"), register);
    let both = |low: u32, high: u32| [[low; 16], [high; 16]].concat();
    let odd = "and.b32 %r1, %lane, 1; setp.ne.u32 %p2, %r1, 0;";
    let ballot = found(&format!("{odd} vote.sync.ballot.b32 %r2, %p2, %r9;"), "%r2");
    assert_eq!(ballot, both(0x0000_aaaa, 0xaaaa_0000));
    for (mode, low, high) in [("all", 1, 0), ("any", 1, 0), ("uni", 1, 1)] {
        let body = format!("vote.sync.{mode}.pred %p3, %p1, %r9; selp.u32 %r2, 1, 0, %p3;");
        assert_eq!(found(&body, "%r2"), both(low, high), "{mode}");
    }
    assert_eq!(found("redux.sync.add.u32 %r2, %lane, %r9;", "%r2"), both(120, 376));
    let body = "mov.u32 %r1, 5; match.any.sync.b32 %r2, %r1, %r9;";
    assert_eq!(found(body, "%r2"), both(0x0000_ffff, 0xffff_0000));
    // Equal in each half, though not in both.
    let body =
        "selp.u32 %r1, 1, 2, %p1; match.all.sync.b32 %r2|%p3, %r1, %r9; selp.u32 %r2, %r2, 0, %p3;";
    assert_eq!(found(body, "%r2"), both(0x0000_ffff, 0xffff_0000));
    assert_eq!(found("elect.sync %r2|%p3, %r9;", "%r2"), both(0, 16));
    let led = found("elect.sync %r1|%p3, %r9; selp.u32 %r2, 1, 0, %p3;", "%r2");
    assert_eq!(led.iter().sum::<u32>(), 2);
    assert_eq!([led[0], led[16]], [1, 1]);
}

#[test]
fn lanes_that_are_named_name_the_same() {
    let masks = "setp.lt.u32 %p1, %lane, 16; selp.b32 %r9, 0x0000ffff, -1, %p1;";
    let part = "the lane names the lanes 0xffffffff; lane 0, one of them, names 0x0000ffff";
    for body in ["vote.sync.ballot.b32 %r2, %p1, %r9;", "bar.warp.sync %r9;"] {
        assert_fault(&format!("{masks} {body}"), 32, FaultKind::Divergence, part);
    }
}

#[test]
fn masks_of_lanes() {
    for lane in 0..32u64 {
        let at = lane as usize;
        let below = (1u64 << lane) - 1;
        assert_eq!(u64::from(each_lane("mov.u32 %r1, %lanemask_lt;", "%r1")[at]), below);
        assert_eq!(
            u64::from(each_lane("mov.u32 %r1, %lanemask_le;", "%r1")[at]),
            below | 1 << lane
        );
        assert_eq!(u64::from(each_lane("mov.u32 %r1, %lanemask_eq;", "%r1")[at]), 1 << lane);
        assert_eq!(
            u64::from(each_lane("mov.u32 %r1, %lanemask_ge;", "%r1")[at]),
            0xffff_ffff & !below
        );
        assert_eq!(
            u64::from(each_lane("mov.u32 %r1, %lanemask_gt;", "%r1")[at]),
            0xffff_ffff & !(below | 1 << lane)
        );
    }
}
