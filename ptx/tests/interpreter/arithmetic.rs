//! Integer and floating-point instructions, comparisons, logic and moves, against values worked out from the ISA.

use crate::kernel::{check_table, d, f};

const M1: u64 = 0xffff_ffff;
const MIN: u64 = 0x8000_0000;
const NAN: u64 = 0x7fff_ffff;
const INF: u64 = 0x7f80_0000;

#[test]
fn integers() {
    check_table(&[
        ("add.s32 %r0, %r1, %r2;", [M1, 2, 0], 1),
        ("add.sat.s32 %r0, %r1, %r2;", [0x7fff_ffff, 1, 0], 0x7fff_ffff),
        ("add.sat.s32 %r0, %r1, %r2;", [MIN, M1, 0], MIN),
        ("add.u64 %rd0, %rd1, %rd2;", [u64::MAX, 3, 0], 2),
        ("add.u16 %h0, %h1, %h2;", [0xffff, 2, 0], 1),
        ("sub.s32 %r0, %r1, %r2;", [1, 2, 0], M1),
        ("sub.sat.s32 %r0, %r1, %r2;", [MIN, 1, 0], MIN),
        ("mul.lo.s32 %r0, %r1, %r2;", [0x10001, 0x10001, 0], 0x20001),
        ("mul.hi.s32 %r0, %r1, %r2;", [M1, 2, 0], M1),
        ("mul.hi.u32 %r0, %r1, %r2;", [M1, 2, 0], 1),
        ("mul.hi.u64 %rd0, %rd1, %rd2;", [u64::MAX, u64::MAX, 0], u64::MAX - 1),
        ("mul.hi.s64 %rd0, %rd1, %rd2;", [u64::MAX, 5, 0], u64::MAX),
        ("mul.wide.s32 %rd0, %r1, %r2;", [M1, 3, 0], (-3i64) as u64),
        ("mul.wide.u32 %rd0, %r1, %r2;", [M1, 3, 0], 0x2_ffff_fffd),
        ("mul.wide.u16 %r0, %h1, %h2;", [0xffff, 0xffff, 0], 0xfffe_0001),
        ("mul.wide.s16 %r0, %h1, %h2;", [0xffff, 2, 0], 0xffff_fffe),
        ("mad.lo.s32 %r0, %r1, %r2, %r3;", [3, 4, 5], 17),
        ("mad.hi.u32 %r0, %r1, %r2, %r3;", [MIN, 4, 5], 7),
        ("mad.wide.s32 %rd0, %r1, %r2, %rd3;", [M1, 3, 5], 2),
        ("mad.wide.u32 %rd0, %r1, %r2, %rd3;", [M1, 2, 1], 0x1_ffff_ffff),
        ("div.s32 %r0, %r1, %r2;", [(-7i32) as u32 as u64, 2, 0], (-3i32) as u32 as u64),
        ("div.u32 %r0, %r1, %r2;", [M1, 2, 0], 0x7fff_ffff),
        ("div.s32 %r0, %r1, %r2;", [MIN, M1, 0], MIN),
        ("rem.s32 %r0, %r1, %r2;", [(-7i32) as u32 as u64, 2, 0], M1),
        ("rem.u64 %rd0, %rd1, %rd2;", [10, 4, 0], 2),
        ("min.s32 %r0, %r1, %r2;", [M1, 1, 0], M1),
        ("min.u32 %r0, %r1, %r2;", [M1, 1, 0], 1),
        ("max.s64 %rd0, %rd1, %rd2;", [u64::MAX, 1, 0], 1),
        ("max.u64 %rd0, %rd1, %rd2;", [u64::MAX, 1, 0], u64::MAX),
        ("neg.s32 %r0, %r1;", [5, 0, 0], 0xffff_fffb),
        ("abs.s32 %r0, %r1;", [0xffff_fffb, 0, 0], 5),
        ("abs.s64 %rd0, %rd1;", [(-9i64) as u64, 0, 0], 9),
        ("sad.s32 %r0, %r1, %r2, %r3;", [M1, 4, 10], 15),
        ("sad.u32 %r0, %r1, %r2, %r3;", [1, 4, 10], 13),
        ("dp4a.s32.s32 %r0, %r1, %r2, %r3;", [0x0102_03ff, 0x0101_0101, 10], 15),
        ("dp4a.u32.u32 %r0, %r1, %r2, %r3;", [0x0102_03ff, 0x0101_0101, 10], 271),
    ]);
}

#[test]
fn bits() {
    check_table(&[
        ("and.b32 %r0, %r1, %r2;", [0b1100, 0b1010, 0], 0b1000),
        ("or.b32 %r0, %r1, %r2;", [0b1100, 0b1010, 0], 0b1110),
        ("xor.b64 %rd0, %rd1, %rd2;", [0b1100, 0b1010, 0], 0b0110),
        ("not.b32 %r0, %r1;", [0, 0, 0], M1),
        ("not.b16 %h0, %h1;", [1, 0, 0], 0xfffe),
        ("cnot.b32 %r0, %r1;", [0, 0, 0], 1),
        ("cnot.b32 %r0, %r1;", [7, 0, 0], 0),
        ("and.b32 %r0, %r1, -64;", [0x7f, 0, 0], 0x40),
        // Amounts beyond the width are clamped.
        ("shl.b32 %r0, %r1, %r2;", [1, 31, 0], MIN),
        ("shl.b32 %r0, %r1, %r2;", [1, 32, 0], 0),
        ("shl.b32 %r0, %r1, %r2;", [1, 300, 0], 0),
        ("shl.b64 %rd0, %rd1, %r2;", [1, 63, 0], 1 << 63),
        ("shl.b64 %rd0, %rd1, %r2;", [1, 64, 0], 0),
        ("shr.u32 %r0, %r1, %r2;", [MIN, 31, 0], 1),
        ("shr.u32 %r0, %r1, %r2;", [MIN, 40, 0], 0),
        ("shr.s32 %r0, %r1, %r2;", [MIN, 31, 0], M1),
        ("shr.s32 %r0, %r1, %r2;", [MIN, 100, 0], M1),
        ("shr.s16 %h0, %h1, %r2;", [0x8000, 4, 0], 0xf800),
        ("shr.b64 %rd0, %rd1, %r2;", [1 << 63, 63, 0], 1),
        ("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", [0x8000_0001, 0x2, 33], 5),
        ("shf.l.clamp.b32 %r0, %r1, %r2, %r3;", [0x8000_0001, 0x2, 33], 0x8000_0001),
        ("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", [0x8000_0001, 0x3, 1], 0xc000_0000),
        ("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", [0x8000_0001, 0x3, 32], 0x3),
        // 0xe8 is the majority of three.
        ("lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", [0b1100, 0b1010, 0b0110], 0b1110),
        ("lop3.b32 %r0, %r1, %r2, %r3, 0x96;", [0b1100, 0b1010, 0b0110], 0b0000),
        ("lop3.b32 %r0, %r1, %r2, %r3, 0x01;", [0xffff_fff0, 0, 0], 0xf),
        ("prmt.b32 %r0, %r1, %r2, %r3;", [0x3322_1100, 0x7766_5544, 0x7410], 0x7744_1100),
        ("prmt.b32 %r0, %r1, %r2, %r3;", [0x0000_0080, 0, 0x8888], M1),
        ("prmt.b32 %r0, %r1, %r2, 0x5432;", [0x3322_1100, 0x7766_5544, 0], 0x5544_3322),
        ("bfe.u32 %r0, %r1, %r2, %r3;", [0xabcd_1234, 8, 12], 0xd12),
        ("bfe.s32 %r0, %r1, %r2, %r3;", [0x0000_0f00, 8, 4], M1),
        ("bfe.s32 %r0, %r1, %r2, %r3;", [MIN, 28, 8], 0xffff_fff8),
        ("bfe.u32 %r0, %r1, %r2, %r3;", [M1, 4, 0], 0),
        ("bfe.u64 %rd0, %rd1, %r2, %r3;", [0xab00_0000_0000_0000, 56, 8], 0xab),
        ("bfi.b32 %r0, %r1, %r2, 8, 4;", [0xf5, M1, 0], 0xffff_f5ff),
        ("bfi.b32 %r0, %r1, %r2, 40, 4;", [0xf5, 7, 0], 7),
        // A number that begins with 0 is octal.
        ("mov.u32 %r0, 017;", [0, 0, 0], 15),
        ("mov.u32 %r0, 017U;", [0, 0, 0], 15),
        ("mov.u32 %r0, 0;", [0, 0, 0], 0),
        ("bfi.b64 %rd0, %rd1, %rd2, 32, 32;", [1, 2, 0], 0x1_0000_0002),
        ("popc.b32 %r0, %r1;", [0xf0f0, 0, 0], 8),
        ("popc.b64 %r0, %rd1;", [u64::MAX, 0, 0], 64),
        ("clz.b32 %r0, %r1;", [1, 0, 0], 31),
        ("clz.b32 %r0, %r1;", [0, 0, 0], 32),
        ("clz.b64 %r0, %rd1;", [1, 0, 0], 63),
        ("brev.b32 %r0, %r1;", [1, 0, 0], MIN),
        ("brev.b64 %rd0, %rd1;", [1, 0, 0], 1 << 63),
        ("bfind.u32 %r0, %r1;", [0x10, 0, 0], 4),
        ("bfind.s32 %r0, %r1;", [M1, 0, 0], M1),
        ("bfind.s32 %r0, %r1;", [0xffff_ffef, 0, 0], 4),
        ("bfind.shiftamt.u32 %r0, %r1;", [0x10, 0, 0], 27),
    ]);
}

#[test]
fn single_precision() {
    let tiny = 1e-40f32; // subnormal
    check_table(&[
        ("add.f32 %r0, %r1, %r2;", [f(1.5), f(2.25), 0], f(3.75)),
        ("add.f32 %r0, %r1, %r2;", [f(16_777_216.0), f(1.0), 0], f(16_777_216.0)),
        ("add.rz.f32 %r0, %r1, %r2;", [f(16_777_216.0), f(3.0), 0], f(16_777_218.0)),
        ("add.rp.f32 %r0, %r1, %r2;", [f(16_777_216.0), f(1.0), 0], f(16_777_218.0)),
        ("add.rm.f32 %r0, %r1, %r2;", [f(16_777_216.0), f(3.0), 0], f(16_777_218.0)),
        ("add.rm.f32 %r0, %r1, %r2;", [f(1.0), f(-1.0), 0], f(-0.0)),
        ("add.rm.f32 %r0, %r1, %r2;", [0, f(-0.0), 0], f(-0.0)),
        ("add.rm.f32 %r0, %r1, %r2;", [f(-0.0), 0, 0], f(-0.0)),
        ("add.rm.f32 %r0, %r1, %r2;", [0, 0, 0], 0),
        ("add.rp.f32 %r0, %r1, %r2;", [0, f(-0.0), 0], 0),
        ("add.rp.f32 %r0, %r1, %r2;", [f(-0.0), f(-0.0), 0], f(-0.0)),
        ("add.f32 %r0, %r1, %r2;", [INF, f(f32::NEG_INFINITY), 0], NAN),
        ("add.ftz.f32 %r0, %r1, %r2;", [f(tiny), f(tiny), 0], 0),
        ("add.sat.f32 %r0, %r1, %r2;", [f(0.75), f(0.5), 0], f(1.0)),
        ("sub.f32 %r0, %r1, %r2;", [f(1.0), f(3.0), 0], f(-2.0)),
        ("mul.f32 %r0, %r1, %r2;", [f(1.5), f(-2.0), 0], f(-3.0)),
        ("mul.sat.f32 %r0, %r1, %r2;", [f(1.5), f(-2.0), 0], 0),
        ("mul.rz.f32 %r0, %r1, %r2;", [0x3f80_0001, 0x3f80_0001, 0], 0x3f80_0002),
        ("mul.rp.f32 %r0, %r1, %r2;", [0x3f80_0001, 0x3f80_0001, 0], 0x3f80_0003),
        // One rounding, not two: (1 + 2^-23)^2 - 1 - 2^-22 = 2^-46.
        (
            "fma.rn.f32 %r0, %r1, %r2, %r3;",
            [0x3f80_0001, 0x3f80_0001, 0xbf80_0002],
            f(1.421_085_5e-14),
        ),
        ("fma.rm.f32 %r0, %r1, %r2, %r3;", [f(1.0), f(0.75), f(12_582_912.0)], f(12_582_912.0)),
        ("fma.rp.f32 %r0, %r1, %r2, %r3;", [f(1.0), f(0.25), f(12_582_912.0)], f(12_582_913.0)),
        ("fma.rm.f32 %r0, %r1, %r2, %r3;", [f(-5.0), 0, 0], f(-0.0)),
        ("fma.rz.f32 %r0, %r1, %r2, %r3;", [f(-5.0), 0, 0], 0),
        ("fma.rm.f32 %r0, %r1, %r2, %r3;", [f(5.0), 0, 0], 0),
        ("mad.rn.f32 %r0, %r1, %r2, %r3;", [f(2.0), f(3.0), f(1.0)], f(7.0)),
        ("div.rn.f32 %r0, %r1, %r2;", [f(1.0), f(3.0), 0], 0x3eaa_aaab),
        ("div.rz.f32 %r0, %r1, %r2;", [f(1.0), f(3.0), 0], 0x3eaa_aaaa),
        ("div.rn.f32 %r0, %r1, %r2;", [f(1.0), 0, 0], INF),
        ("div.approx.f32 %r0, %r1, %r2;", [f(6.0), f(3.0), 0], f(2.0)),
        ("rcp.rn.f32 %r0, %r1;", [f(3.0), 0, 0], 0x3eaa_aaab),
        ("rcp.approx.ftz.f32 %r0, %r1;", [f(4.0), 0, 0], f(0.25)),
        ("sqrt.rn.f32 %r0, %r1;", [f(2.0), 0, 0], 0x3fb5_04f3),
        ("sqrt.rp.f32 %r0, %r1;", [f(2.0), 0, 0], 0x3fb5_04f4),
        ("sqrt.rn.f32 %r0, %r1;", [f(-1.0), 0, 0], NAN),
        ("rsqrt.approx.f32 %r0, %r1;", [f(4.0), 0, 0], f(0.5)),
        ("ex2.approx.ftz.f32 %r0, %r1;", [f(-3.0), 0, 0], f(0.125)),
        ("ex2.approx.ftz.f32 %r0, %r1;", [f(-140.0), 0, 0], 0),
        ("ex2.approx.f32 %r0, %r1;", [f(-140.0), 0, 0], f(2f32.powi(-140))),
        ("ex2.approx.ftz.f32 %r0, %r1;", [f(f32::NEG_INFINITY), 0, 0], 0),
        ("lg2.approx.f32 %r0, %r1;", [f(8.0), 0, 0], f(3.0)),
        ("lg2.approx.f32 %r0, %r1;", [0, 0, 0], f(f32::NEG_INFINITY)),
        ("sin.approx.f32 %r0, %r1;", [0, 0, 0], 0),
        ("cos.approx.f32 %r0, %r1;", [0, 0, 0], f(1.0)),
        ("tanh.approx.f32 %r0, %r1;", [INF, 0, 0], f(1.0)),
        // A number wins over NaN, unless .NaN says otherwise; -0 is below +0.
        ("min.f32 %r0, %r1, %r2;", [NAN, f(1.0), 0], f(1.0)),
        ("max.f32 %r0, %r1, %r2;", [f(1.0), NAN, 0], f(1.0)),
        ("max.NaN.f32 %r0, %r1, %r2;", [f(1.0), NAN, 0], NAN),
        ("min.f32 %r0, %r1, %r2;", [0, f(-0.0), 0], f(-0.0)),
        ("max.f32 %r0, %r1, %r2;", [f(-0.0), 0, 0], 0),
        ("neg.f32 %r0, %r1;", [f(1.0), 0, 0], f(-1.0)),
        ("abs.f32 %r0, %r1;", [f(-1.0), 0, 0], f(1.0)),
        ("copysign.f32 %r0, %r1, %r2;", [f(-1.0), f(2.0), 0], f(-2.0)),
        ("mov.f32 %r0, 0f40490FDB;", [0, 0, 0], 0x4049_0fdb),
        ("mov.f32 %r0, 0d4000000000000000;", [0, 0, 0], f(2.0)),
    ]);
}

#[test]
fn double_precision() {
    check_table(&[
        ("add.f64 %rd0, %rd1, %rd2;", [d(1.5), d(2.0), 0], d(3.5)),
        ("sub.f64 %rd0, %rd1, %rd2;", [d(1.5), d(2.0), 0], d(-0.5)),
        ("mul.f64 %rd0, %rd1, %rd2;", [d(1.5), d(2.0), 0], d(3.0)),
        ("fma.rn.f64 %rd0, %rd1, %rd2, %rd3;", [d(1.5), d(2.0), d(1.0)], d(4.0)),
        ("div.rn.f64 %rd0, %rd1, %rd2;", [d(1.0), d(3.0), 0], d(1.0 / 3.0)),
        ("sqrt.rn.f64 %rd0, %rd1;", [d(2.0), 0, 0], d(2f64.sqrt())),
        ("max.f64 %rd0, %rd1, %rd2;", [d(2.0), d(3.0), 0], d(3.0)),
        ("neg.f64 %rd0, %rd1;", [d(2.0), 0, 0], d(-2.0)),
        ("mov.f64 %rd0, 0d3FF0000000000000;", [0, 0, 0], d(1.0)),
    ]);
}

#[test]
fn half_precision() {
    // f16: 1.0 = 3c00, 2.0 = 4000, 3.0 = 4200, 2048 = 6800. bf16: 1.0 = 3f80, 2.0 = 4000, 256 = 4380.
    check_table(&[
        ("add.f16 %h0, %h1, %h2;", [0x3c00, 0x4000, 0], 0x4200),
        // 2048 + 1: a tie, to even.
        ("add.f16 %h0, %h1, %h2;", [0x6800, 0x3c00, 0], 0x6800),
        ("mul.f16 %h0, %h1, %h2;", [0x4000, 0x4200, 0], 0x4600),
        ("fma.rn.f16 %h0, %h1, %h2, %h3;", [0x4000, 0x4200, 0x3c00], 0x4700),
        ("add.f16x2 %r0, %r1, %r2;", [0x3c00_4000, 0x4000_4000, 0], 0x4200_4400),
        ("fma.rn.bf16 %h0, %h1, %h2, %h3;", [0x3f80, 0x4000, 0x3f80], 0x4040),
        // 256 + 1 is a tie in bfloat16; a little more and it is not, however little.
        ("fma.rn.bf16 %h0, %h1, %h2, %h3;", [0x3f80, 0x3f80, 0x4380], 0x4380),
        ("fma.rn.bf16 %h0, %h1, %h2, %h3;", [0x3f91, 0x3f62, 0x4380], 0x4381),
        // 1 + 2^-10 and half a step, less 2^-31: below the tie, which single precision does not see.
        ("fma.rn.f16 %h0, %h1, %h2, %h3;", [0x2801, 0x23fe, 0x3c01], 0x3c01),
        ("fma.rn.sat.f16 %h0, %h1, %h2, %h3;", [0x2801, 0x1ffe, 0x3801], 0x3801),
        ("fma.rn.bf16x2 %r0, %r1, %r2, %r3;", [0x3f80_3f80, 0x4000_4000, 0x3f80_0000], 0x4040_4000),
        ("fma.rn.relu.bf16 %h0, %h1, %h2, %h3;", [0x3f80, 0xc000, 0x3f80], 0),
        ("fma.rn.relu.bf16 %h0, %h1, %h2, %h3;", [0x7fc0, 0x3f80, 0x3f80], 0x7fff),
        ("fma.rn.relu.f16 %h0, %h1, %h2, %h3;", [0x7c00, 0, 0x3c00], 0x7fff),
        ("max.bf16x2 %r0, %r1, %r2;", [0x3f80_4000, 0x4000_3f80, 0], 0x4000_4000),
        ("neg.bf16x2 %r0, %r1;", [0x3f80_4000, 0, 0], 0xbf80_c000),
        ("abs.f16 %h0, %h1;", [0xbc00, 0, 0], 0x3c00),
        // Subnormal: 0001 to 03ff. 0400 is the smallest normal number, and half of it is subnormal, also as a result.
        ("add.ftz.f16 %h0, %h1, %h2;", [0x8001, 0x8001, 0], 0x8000),
        ("add.f16 %h0, %h1, %h2;", [0x8001, 0x8001, 0], 0x8002),
        ("mul.ftz.f16 %h0, %h1, %h2;", [0x8400, 0x3800, 0], 0x8000),
        ("mul.f16 %h0, %h1, %h2;", [0x8400, 0x3800, 0], 0x8200),
        ("mul.ftz.f16 %h0, %h1, %h2;", [0x0400, 0x3c00, 0], 0x0400),
        ("fma.rn.ftz.f16x2 %r0, %r1, %r2, %r3;", [0x0400_3c00, 0x3800_3c00, 0], 0x0000_3c00),
        ("neg.ftz.f16 %h0, %h1;", [0x0001, 0, 0], 0x8000),
        ("abs.ftz.f16 %h0, %h1;", [0x8001, 0, 0], 0),
        ("neg.f16 %h0, %h1;", [0x0001, 0, 0], 0x8001),
        // 2^-127 is subnormal in bfloat16.
        ("ex2.approx.ftz.bf16 %h0, %h1;", [0xc2fe, 0, 0], 0),
        ("ex2.approx.ftz.bf16 %h0, %h1;", [0x4000, 0, 0], 0x4080),
        ("ex2.approx.f16 %h0, %h1;", [0x4000, 0, 0], 0x4400),
    ]);
}

#[test]
fn comparisons_and_predicates() {
    check_table(&[
        ("setp.lt.s32 %p0, %r1, %r2;", [M1, 1, 0], 1),
        ("setp.lt.u32 %p0, %r1, %r2;", [M1, 1, 0], 0),
        ("setp.lo.u32 %p0, %r1, %r2;", [1, 2, 0], 1),
        ("setp.hs.u32 %p0, %r1, %r2;", [2, 2, 0], 1),
        ("setp.ge.s64 %p0, %rd1, %rd2;", [u64::MAX, 0, 0], 0),
        ("setp.eq.s16 %p0, %h1, %h2;", [0x1_0005, 5, 0], 1),
        ("setp.eq.f32 %p0, %r1, %r2;", [0, f(-0.0), 0], 1),
        ("setp.lt.f32 %p0, %r1, %r2;", [NAN, f(1.0), 0], 0),
        ("setp.ltu.f32 %p0, %r1, %r2;", [NAN, f(1.0), 0], 1),
        ("setp.ne.f32 %p0, %r1, %r2;", [NAN, NAN, 0], 0),
        ("setp.neu.f32 %p0, %r1, %r2;", [NAN, NAN, 0], 1),
        ("setp.geu.f32 %p0, %r1, %r2;", [f(1.0), f(2.0), 0], 0),
        ("setp.num.f32 %p0, %r1, %r2;", [f(1.0), f(2.0), 0], 1),
        ("setp.nan.f32 %p0, %r1, %r2;", [f(1.0), NAN, 0], 1),
        ("setp.gt.f64 %p0, %rd1, %rd2;", [d(2.0), d(1.0), 0], 1),
        ("setp.lt.bf16 %p0, %h1, %h2;", [0x3f80, 0x4000, 0], 1),
        ("setp.eq.f16 %p0, %h1, %h2;", [0x8001, 0, 0], 0),
        ("setp.eq.ftz.f16 %p0, %h1, %h2;", [0x8001, 0, 0], 1),
        ("setp.eq.ftz.f16 %p0, %h1, %h2;", [0x0400, 0, 0], 0),
        ("setp.lt.and.s32 %p0, %r1, %r2, %p3;", [1, 2, 0], 0),
        ("setp.lt.or.s32 %p0, %r1, %r2, !%p3;", [3, 2, 0], 1),
        ("setp.lt.xor.s32 %p0, %r1, %r2, %p3;", [1, 2, 1], 0),
        ("setp.lt.s32 %p5|%p0, %r1, %r2;", [1, 2, 0], 0),
        ("and.pred %p0, %p1, %p2;", [1, 0, 0], 0),
        ("or.pred %p0, %p1, %p2;", [1, 0, 0], 1),
        ("xor.pred %p0, %p1, %p2;", [1, 1, 0], 0),
        ("not.pred %p0, %p1;", [0, 0, 0], 1),
        ("mov.pred %p0, %p1;", [1, 0, 0], 1),
        ("selp.b32 %r0, %r1, %r2, %p3;", [5, 6, 1], 5),
        ("selp.f32 %r0, %r1, %r2, %p3;", [5, 6, 0], 6),
        ("set.lt.u32.s32 %r0, %r1, %r2;", [1, 2, 0], M1),
        ("set.lt.f32.s32 %r0, %r1, %r2;", [1, 2, 0], f(1.0)),
        ("set.lt.u32.f32 %r0, %r1, %r2;", [0, 1, 0], M1),
        ("set.lt.ftz.u32.f32 %r0, %r1, %r2;", [0, 1, 0], 0),
        ("testp.infinite.f32 %p0, %r1;", [INF, 0, 0], 1),
        ("testp.finite.f32 %p0, %r1;", [NAN, 0, 0], 0),
        ("testp.subnormal.f32 %p0, %r1;", [1, 0, 0], 1),
        ("testp.normal.f32 %p0, %r1;", [1, 0, 0], 0),
        ("testp.normal.f32 %p0, %r1;", [f(-0.0), 0, 0], 1),
        ("testp.normal.f64 %p0, %rd1;", [0, 0, 0], 1),
        ("testp.normal.f64 %p0, %rd1;", [d(f64::INFINITY), 0, 0], 0),
        ("@%p1 mov.b32 %r0, 7;", [1, 0, 0], 7),
        ("@!%p1 mov.b32 %r0, 7;", [1, 0, 0], 0),
    ]);
}

#[test]
fn moves_between_widths() {
    check_table(&[
        ("mov.b64 %rd0, {%r1, %r2};", [1, 2, 0], 0x2_0000_0001),
        ("mov.b32 %r0, {%h1, %h2};", [1, 2, 0], 0x2_0001),
        ("mov.b64 {%r5, %r0}, %rd1;", [0x7_0000_0009, 0, 0], 7),
        ("mov.b64 {%r0, _}, %rd1;", [0x7_0000_0009, 0, 0], 9),
        ("mov.b32 {%h5, %h0}, %r1;", [0x7_0009, 0, 0], 7),
        ("mov.b64 %rd0, {%h1, %h2, %h3, %h1};", [1, 2, 3], 0x1_0003_0002_0001),
    ]);
}
