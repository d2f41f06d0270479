//! Loads, stores and atomics in every state space, and what happens outside of them.

use proptest::prelude::*;
use ptx_interpreter::{Arg, Device, Error, FaultKind, Launch, Module, run};

use crate::kernel::{assert_fault, each_lane, run_words, store};

#[test]
fn widths_signs_and_vectors() {
    let input = [0x8070_60ff, 2, 3, 4];
    let run = |code: &str, register: &str| {
        run_words(&format!("{code}\n{}", store(register)), 1, &input, 1).unwrap().0[0]
    };
    assert_eq!(run("ld.global.u8 %r1, [%in];", "%r1"), 0xff);
    assert_eq!(run("ld.global.s8 %r1, [%in];", "%r1"), 0xffff_ffff);
    assert_eq!(run("ld.global.u16 %r1, [%in+2];", "%r1"), 0x8070);
    assert_eq!(run("ld.global.s16 %r1, [%in+2];", "%r1"), 0xffff_8070);
    assert_eq!(run("ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%in];", "%r4"), 4);
    assert_eq!(run("ld.global.v2.b64 {%rd1, %rd2}, [%in]; cvt.u32.u64 %r1, %rd2;", "%r1"), 3);
    assert_eq!(run("ld.global.v2.u16 {%h1, %h2}, [%in]; cvt.u32.u16 %r1, %h2;", "%r1"), 0x8070);
    assert_eq!(run("ld.global.v2.u32 {_, %r1}, [%in];", "%r1"), 2);
    // A generic address of global memory is the address.
    assert_eq!(run("ld.u32 %r1, [%in+8];", "%r1"), 3);
}

#[test]
fn narrow_stores_leave_their_neighbours() {
    let body = "mov.u32 %r1, 0x1234; st.global.u8 [%out+1], %r1; st.global.u16 [%out+6], %r1;\n\
         mov.u32 %r2, 7; st.global.v2.u32 [%out+8], {%r1, %r2};";
    let (found, _) = run_words(body, 1, &[0], 4).unwrap();
    assert_eq!(found, [0x3400, 0x1234_0000, 0x1234, 7]);
}

#[test]
fn shared_local_and_generic_addresses() {
    let body = "mov.u32 %r1, smem; mad.lo.u32 %r2, %lane, 4, %r1; st.shared.u32 [%r2], %lane;\n\
         bar.warp.sync -1; xor.b32 %r3, %lane, 1; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];\n\
         cvt.u64.u32 %rd1, %r4; cvta.shared.u64 %rd2, %rd1; ld.u32 %r6, [%rd2];\n\
         isspacep.shared %p1, %rd2; selp.u32 %r7, 100, 0, %p1; isspacep.global %p2, %rd2; selp.u32 %r8, 1000, 0, %p2;\n\
         cvta.to.shared.u64 %rd3, %rd2; cvt.u32.u64 %r9, %rd2; sub.u32 %r9, %r9, %r4;\n\
         add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7; add.u32 %r5, %r5, %r8; add.u32 %r5, %r5, %r9;";
    for (lane, found) in each_lane(body, "%r5").into_iter().enumerate() {
        assert_eq!(found as usize, 2 * (lane ^ 1) + 100, "lane {lane}");
    }
}

#[test]
fn every_lane_has_local_memory_of_its_own() {
    let body = ".local .align 16 .b8 depot[32];\n\
         mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1; st.u32 [%rd2+16], %lane; st.local.u32 [%rd1+20], 5;\n\
         ld.local.u32 %r1, [%rd1+16]; ld.u32 %r2, [%rd2+20]; add.u32 %r1, %r1, %r2;";
    for (lane, found) in each_lane(body, "%r1").into_iter().enumerate() {
        assert_eq!(found as usize, lane + 5);
    }
}

#[test]
fn constants_and_parameters_of_every_size() {
    let text = ".version 8.4\n.target sm_80\n.address_size 64\n\
        .const .align 4 .b32 table[3] = {10, -1, 0x20};\n.global .align 4 .f32 factor = 0f40000000;\n\
        .visible .entry k(.param .u64 out, .param .u8 a, .param .align 16 .b8 pair[16], .param .f64 x) {\n\
        .reg .b32 %r<9>; .reg .b64 %rd<9>;\n ld.param.u64 %rd1, [out];\n\
        ld.param.u8 %r1, [a]; st.global.u32 [%rd1], %r1;\n\
        ld.param.v2.u32 {%r2, %r3}, [pair+8]; st.global.v2.u32 [%rd1+8], {%r2, %r3};\n\
        ld.param.f64 %rd2, [x]; st.global.u64 [%rd1+16], %rd2;\n\
        ld.const.u32 %r4, [table+4]; st.global.u32 [%rd1+24], %r4;\n\
        mov.u64 %rd3, table; ld.const.u32 %r4, [%rd3+8]; st.global.u32 [%rd1+28], %r4;\n\
        ld.global.f32 %r4, [factor]; st.global.u32 [%rd1+4], %r4; ret; }";
    let module = Module::parse(text).unwrap();
    let kernel = module.kernel("k").unwrap();
    let mut device = Device::new();
    let out = device.alloc::<u32>(8);
    let pair: Vec<u8> = (0..16).collect();
    let args: Vec<Arg> = vec![out.into(), 200u8.into(), pair.as_slice().into(), 1.0f64.into()];
    run(kernel, &mut device, &Launch { grid: [1; 3], block: [1; 3], shared_bytes: 0, args })
        .unwrap();
    let [low, high] = [0u32, 0x3ff0_0000];
    let right = [200, 0x4000_0000, 0x0b0a_0908, 0x0f0e_0d0c, low, high, u32::MAX, 0x20];
    assert_eq!(device.download(out).unwrap(), right);
}

#[test]
fn atomics_in_global_and_shared_memory() {
    let global = |op: &str| {
        run_words(&format!("atom.global.{op} %r1, [%out], %lane;"), 32, &[0], 1).unwrap().0[0]
    };
    assert_eq!(global("add.u32"), 496);
    assert_eq!(global("max.u32"), 31);
    assert_eq!(global("or.b32"), 31);
    assert_eq!(global("exch.b32"), 31);
    let body = "mov.f32 %f1, 0f3F000000; red.global.add.f32 [%out], %f1;";
    assert_eq!(f32::from_bits(run_words(body, 32, &[0], 1).unwrap().0[0]), 16.0);
    // What is too small for a leading 1 is nothing in global memory, and something in shared memory.
    let small = "mov.b32 %f1, 0x00010000;";
    let body = format!("{small} red.global.add.f32 [%out], %f1;");
    assert_eq!(run_words(&body, 2, &[0], 1).unwrap().0[0], 0);
    let body = format!(
        "{small} mov.u32 %r1, 0; st.shared.u32 [smem], %r1; bar.warp.sync -1; red.shared.add.f32 [smem], %f1;\n\
         bar.warp.sync -1; ld.shared.u32 %r1, [smem]; {}",
        store("%r1")
    );
    assert_eq!(run_words(&body, 2, &[0], 2).unwrap().0, [0x0002_0000; 2]);
    // Who swaps first has it.
    let body = format!("atom.global.cas.b32 %r1, [%out+256], 0, 1; {}", store("%r1"));
    let (found, _) = run_words(&body, 32, &[0], 65).unwrap();
    assert_eq!(found[..32].iter().sum::<u32>(), 31);
    // Several warps may, without a barrier, as all of them are atomic.
    let body = format!(
        "setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.u32 [smem], 0; bar.sync 0;\n\
         red.shared.add.u32 [smem], 1; bar.sync 0; ld.shared.u32 %r1, [smem]; {}",
        store("%r1")
    );
    let (found, counts) = run_words(&body, 128, &[0], 128).unwrap();
    assert_eq!(found, [128; 128]);
    assert_eq!(counts.atomics, 128);
    let body = "mov.u32 %r1, 3; atom.global.inc.u32 %r2, [%out], %r1;";
    assert_eq!(run_words(body, 6, &[0], 1).unwrap().0[0], 2);
    let body = "red.global.add.noftz.bf16x2 [%out], 0x3f804000;";
    assert_eq!(run_words(body, 2, &[0], 1).unwrap().0[0], 0x4000_4080);
}

#[test]
fn outside_of_a_buffer() {
    let past =
        "mul.wide.u32 %rd1, %lane, 4; add.s64 %rd1, %rd1, %out; ld.global.u32 %r1, [%rd1+4000];";
    assert_fault(past, 32, FaultKind::OutOfBounds, "lane 24");
    assert_fault(past, 32, FaultKind::OutOfBounds, "the nearest buffer below has 4096 bytes");
    assert_fault(
        "st.global.u32 [%out+4096], %r1;",
        32,
        FaultKind::OutOfBounds,
        "`st.global.u32 [%out+4096], %r1;`",
    );
    assert_fault(
        "mov.u64 %rd1, 0; ld.global.u8 %r1, [%rd1];",
        1,
        FaultKind::OutOfBounds,
        "below every buffer",
    );
    assert_fault(
        "ld.shared.u32 %r1, [smem+16384];",
        1,
        FaultKind::OutOfBounds,
        "the block has 0x4000 bytes",
    );
    assert_fault("ld.param.u32 %r1, [p_in+64];", 1, FaultKind::OutOfBounds, "parameter memory");
    // A vector that begins inside and ends outside.
    assert_fault(
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%out+4092];",
        1,
        FaultKind::Misaligned,
        "multiple of 16",
    );
}

#[test]
fn misaligned() {
    assert_fault(
        "ld.global.u32 %r1, [%out+2];",
        1,
        FaultKind::Misaligned,
        "right would be a multiple of 4",
    );
    assert_fault(
        "st.shared.u64 [smem+4], %rd1;",
        1,
        FaultKind::Misaligned,
        "right would be a multiple of 8",
    );
    assert_fault(
        "ld.global.v2.f32 {%f1, %f2}, [%out+4];",
        1,
        FaultKind::Misaligned,
        "right would be a multiple of 8",
    );
}

#[test]
fn a_launch_that_does_not_fit() {
    let text = ".version 8.4\n.target sm_80\n.address_size 64\n\
        .visible .entry k(.param .u64 a, .param .u32 n) .maxntid 64, 1, 1 { ret; }";
    let module = Module::parse(text).unwrap();
    let kernel = module.kernel("k").unwrap();
    let refused = |launch: Launch| match run(kernel, &mut Device::new(), &launch) {
        Err(error @ Error::Launch { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let good = Launch {
        grid: [1; 3],
        block: [64, 1, 1],
        shared_bytes: 0,
        args: vec![0u64.into(), 0u32.into()],
    };
    run(kernel, &mut Device::new(), &good).unwrap();
    assert!(refused(Launch { grid: [0, 1, 1], ..good.clone() }).contains("no dimension may be 0"));
    assert!(refused(Launch { block: [65, 1, 1], ..good.clone() }).contains("made for [64, 1, 1]"));
    assert!(refused(Launch { block: [1 << 30, 8, 8], ..good.clone() }).contains("at most 1024"));
    assert!(refused(Launch { shared_bytes: 300_000, ..good.clone() }).contains("at most 232448"));
    assert!(
        refused(Launch { args: vec![0u64.into()], ..good.clone() })
            .contains("1 arguments; the kernel has 2")
    );
    let short = vec![0u32.into(), 0u32.into()];
    assert!(
        refused(Launch { args: short, ..good.clone() })
            .contains("argument 0 has 4 bytes; the parameter `a` has 8")
    );
    let most = "4294967295, 4294967295, 4294967295";
    let wide = Module::parse(&text.replace("64, 1, 1", most)).unwrap();
    let launch = Launch { block: [1024, 1, 1], ..good.clone() };
    run(wide.kernel("k").unwrap(), &mut Device::new(), &launch).unwrap();
    let unknown = module.kernel("kk").unwrap_err().to_string();
    assert_eq!(unknown, "no kernel `kk` in the module; it has: k");
}

#[test]
fn buffers_from_the_host() {
    let mut device = Device::new();
    let buffer = device.upload(&[1u16, 2, 3]);
    assert_eq!(device.download(buffer).unwrap(), [1, 2, 3]);
    device.write(buffer, &[4, 5, 6]).unwrap();
    assert_eq!(device.download(buffer).unwrap(), [4, 5, 6]);
    assert!(
        device
            .write(buffer, &[1])
            .unwrap_err()
            .to_string()
            .contains("1 elements for a buffer of 3")
    );
    let fresh = device.alloc::<f32>(4);
    assert!(
        device.download(fresh).unwrap().iter().all(|value| value.is_nan()),
        "unwritten memory looks like NaN"
    );
    assert!(Device::new().download(buffer).is_err(), "a buffer of another device");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever is in an address, an amount or a descriptor: a result or an error, never a panic.
    #[test]
    fn no_operand_panics(value: u64, small in 0u64..70_000, which in 0usize..28) {
        let code = [
            "ld.global.u32 %r3, [%rd1];", "ld.u8 %r3, [%rd1+8];", "st.v4.u32 [%rd1], {%r1, %r1, %r1, %r1};",
            "ld.shared.u64 %rd5, [%rd1];", "st.shared.u8 [%rd1+-5], %r1;", "ld.local.u32 %r3, [%rd1];",
            "st.local.u32 [%rd1], %r1;", "ld.param.u8 %r3, [%rd1];", "ld.const.u32 %r3, [%rd1];",
            "atom.global.add.u32 %r3, [%rd1], 1;", "red.shared.max.s32 [%rd1], 1;", "isspacep.local %p3, %rd1;",
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r3, %r4}, [%rd1];",
            "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%rd1], {%r3};",
            "cp.async.cg.shared.global [%rd1], [%in], 16;", "cp.async.cg.shared.global [smem], [%rd1], 16, %r1;",
            "shfl.sync.up.b32 %r3|%p3, %r1, %r1, %r1, -1;", "shfl.sync.idx.b32 %r3, %r1, %r1, 31, %r1;",
            "bar.sync %r1;", "bar.sync 1, %r1;", "mbarrier.init.shared::cta.b64 [%rd1], %r1;",
            "mbarrier.init.shared::cta.b64 [smem], %r1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem], %r1;",
            "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [smem], %r1;",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%in], %r1, [%rd1];",
            "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r1}], [smem];",
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd1, %p0, 1, 1, 0, 1;",
            "shl.b64 %rd5, %rd1, %r1; shr.s64 %rd5, %rd1, %r1; bfe.s64 %rd5, %rd1, %r1, %r1; bfi.b64 %rd5, %rd1, %rd1, %r1, %r1; shf.l.wrap.b32 %r3, %r1, %r1, %r1;",
            "div.s64 %rd5, %rd1, %rd1; rem.s32 %r3, %r1, 0; mul.hi.s64 %rd5, %rd1, %rd1; mad.hi.sat.s32 %r3, %r1, %r1, %r1; abs.s64 %rd5, %rd1; neg.s64 %rd5, %rd1;",
        ][which];
        for value in [value, small, value | 0xffff_ffff_ffff_0000] {
            let body = format!(
                ".local .align 16 .b8 depot[32]; mov.b64 %rd1, {value}; cvt.u32.u64 %r1, %rd1; setp.ne.u32 %p0, 0, 0; {code}"
            );
            let _ = run_words(&body, 128, &[0; 64], 64);
        }
    }
}
