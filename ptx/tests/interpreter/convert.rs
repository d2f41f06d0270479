//! Conversions: every rounding, saturation, and the narrow formats against their definitions.

use half::{bf16, f16};

use crate::kernel::{check_table, d, f, result_of};

#[test]
fn between_integers() {
    check_table(&[
        ("cvt.s64.s32 %rd0, %r1;", [0xffff_ffff, 0, 0], u64::MAX),
        ("cvt.u64.u32 %rd0, %r1;", [0xffff_ffff, 0, 0], 0xffff_ffff),
        ("cvt.u32.u64 %r0, %rd1;", [0x1_0000_0005, 0, 0], 5),
        ("cvt.s16.s8 %h0, %h1;", [0x80, 0, 0], 0xff80),
        ("cvt.s32.s8 %r0, %r1;", [0x80, 0, 0], 0xffff_ff80),
        ("cvt.u32.u16 %r0, %h1;", [0xffff, 0, 0], 0xffff),
        // A register that is wider than the type is filled up: with the sign, or with zeros.
        ("cvt.s16.s32 %r0, %r1;", [0x1_8000, 0, 0], 0xffff_8000),
        ("cvt.s8.s32 %r0, %r1;", [0x80, 0, 0], 0xffff_ff80),
        ("cvt.s8.s32 %rd0, %r1;", [0x80, 0, 0], 0xffff_ffff_ffff_ff80),
        ("cvt.s32.s64 %rd0, %rd1;", [0x8000_0000, 0, 0], 0xffff_ffff_8000_0000),
        ("cvt.u16.s32 %r0, %r1;", [0xffff_8000, 0, 0], 0x8000),
        ("cvt.sat.s16.s32 %r0, %r1;", [(-70_000i32) as u32 as u64, 0, 0], 0xffff_8000),
        ("cvt.u16.u32 %h0, %r1;", [0x1_0003, 0, 0], 3),
        ("cvt.sat.s8.s32 %h0, %r1;", [300, 0, 0], 127),
        ("cvt.sat.u8.s32 %h0, %r1;", [(-5i32) as u32 as u64, 0, 0], 0),
        ("cvt.sat.s16.s32 %h0, %r1;", [(-70_000i32) as u32 as u64, 0, 0], 0x8000),
    ]);
}

#[test]
fn from_integers() {
    check_table(&[
        ("cvt.rn.f32.s32 %r0, %r1;", [(-3i32) as u32 as u64, 0, 0], f(-3.0)),
        ("cvt.rn.f32.u32 %r0, %r1;", [0xffff_ffff, 0, 0], f(4_294_967_296.0)),
        ("cvt.rz.f32.u32 %r0, %r1;", [0xffff_ffff, 0, 0], 0x4f7f_ffff),
        ("cvt.rn.f32.s16 %r0, %h1;", [0xfffe, 0, 0], f(-2.0)),
        ("cvt.rp.f32.s64 %r0, %rd1;", [16_777_217, 0, 0], f(16_777_218.0)),
        ("cvt.rn.f64.s32 %rd0, %r1;", [7, 0, 0], d(7.0)),
        ("cvt.rn.f16.s32 %h0, %r1;", [3, 0, 0], 0x4200),
        // Beside a tie, by less than double precision has bits for; and the tie itself.
        ("cvt.rn.bf16.u64 %h0, %rd1;", [(1 << 63) + (1 << 55) + 1, 0, 0], 0x5f01),
        ("cvt.rn.bf16.u64 %h0, %rd1;", [(1 << 63) + (1 << 55), 0, 0], 0x5f00),
        ("cvt.rn.bf16.u64 %h0, %rd1;", [(1 << 63) + (3 << 55) - 1, 0, 0], 0x5f01),
        ("cvt.rn.bf16.s64 %h0, %rd1;", [-((1i64 << 62) + (1 << 54) + 1) as u64, 0, 0], 0xde81),
    ]);
}

#[test]
fn to_integers() {
    check_table(&[
        ("cvt.rni.s32.f32 %r0, %r1;", [f(2.5), 0, 0], 2),
        ("cvt.rni.s32.f32 %r0, %r1;", [f(3.5), 0, 0], 4),
        ("cvt.rzi.s32.f32 %r0, %r1;", [f(-2.9), 0, 0], (-2i32) as u32 as u64),
        ("cvt.rmi.s32.f32 %r0, %r1;", [f(-2.1), 0, 0], (-3i32) as u32 as u64),
        ("cvt.rpi.s32.f32 %r0, %r1;", [f(2.1), 0, 0], 3),
        ("cvt.rzi.s32.f32 %r0, %r1;", [f(1e20), 0, 0], 0x7fff_ffff),
        ("cvt.rzi.u32.f32 %r0, %r1;", [f(-1.0), 0, 0], 0),
        ("cvt.rzi.u64.f32 %rd0, %r1;", [f(1e10), 0, 0], 10_000_000_000),
        ("cvt.rni.u64.f32 %rd0, %r1;", [f(0.5), 0, 0], 0),
        ("cvt.rzi.s32.f32 %r0, %r1;", [f(f32::NAN), 0, 0], 0),
        // Where one of the two has 64 bits, NaN is the highest bit alone.
        ("cvt.rzi.s64.f32 %rd0, %r1;", [f(f32::NAN), 0, 0], 1 << 63),
        ("cvt.rzi.u64.f32 %rd0, %r1;", [f(f32::NAN), 0, 0], 1 << 63),
        ("cvt.rzi.u32.f64 %r0, %rd1;", [d(f64::NAN), 0, 0], 0x8000_0000),
        ("cvt.rzi.s8.f64 %h0, %rd1;", [d(f64::NAN), 0, 0], 0xff80),
        ("cvt.rzi.s32.f64 %r0, %rd1;", [d(-7.5), 0, 0], (-7i32) as u32 as u64),
        ("cvt.rni.s8.f32 %h0, %r1;", [f(-200.0), 0, 0], 0xff80),
        ("cvt.rni.s8.f32 %r0, %r1;", [f(-200.0), 0, 0], 0xffff_ff80),
        ("cvt.rzi.s16.f32 %r0, %r1;", [f(-3.0), 0, 0], 0xffff_fffd),
    ]);
}

#[test]
fn between_floats() {
    check_table(&[
        ("cvt.f64.f32 %rd0, %r1;", [f(1.5), 0, 0], d(1.5)),
        ("cvt.rn.f32.f64 %r0, %rd1;", [d(1.0 / 3.0), 0, 0], 0x3eaa_aaab),
        ("cvt.rz.f32.f64 %r0, %rd1;", [d(1.0 / 3.0), 0, 0], 0x3eaa_aaaa),
        ("cvt.rni.f32.f32 %r0, %r1;", [f(2.5), 0, 0], f(2.0)),
        ("cvt.rmi.f32.f32 %r0, %r1;", [f(-2.5), 0, 0], f(-3.0)),
        ("cvt.sat.f32.f32 %r0, %r1;", [f(1.5), 0, 0], f(1.0)),
        ("cvt.sat.f32.f32 %r0, %r1;", [f(f32::NAN), 0, 0], 0),
        ("cvt.rn.bf16.f32 %h0, %r1;", [0x3f80_8000, 0, 0], 0x3f80),
        ("cvt.rn.bf16.f32 %h0, %r1;", [0x3f81_8000, 0, 0], 0x3f82),
        ("cvt.rn.bf16.f32 %h0, %r1;", [0x3f80_8001, 0, 0], 0x3f81),
        ("cvt.rn.bf16.f64 %h0, %rd1;", [0x3ff0_1000_0000_0001, 0, 0], 0x3f81),
        ("cvt.rn.f16.f64 %h0, %rd1;", [0x3ff0_0200_0000_0001, 0, 0], 0x3c01),
        ("cvt.rz.bf16.f32 %h0, %r1;", [0x3f81_ffff, 0, 0], 0x3f81),
        ("cvt.rn.bf16.f32 %h0, %r1;", [f(f32::NAN), 0, 0], 0x7fff),
        ("cvt.f32.bf16 %r0, %h1;", [0x3f81, 0, 0], 0x3f81_0000),
        ("cvt.f32.f16 %r0, %h1;", [0x3555, 0, 0], 0x3eaa_a000),
        ("cvt.rn.f16.f32 %h0, %r1;", [f(65_520.0), 0, 0], 0x7c00),
        ("cvt.rz.f16.f32 %h0, %r1;", [f(65_519.0), 0, 0], 0x7bff),
        ("cvt.rn.bf16x2.f32 %r0, %r1, %r2;", [f(1.0), f(2.0), 0], 0x3f80_4000),
        ("cvt.rn.f16x2.f32 %r0, %r1, %r2;", [f(1.0), f(2.0), 0], 0x3c00_4000),
        ("cvt.rn.relu.bf16x2.f32 %r0, %r1, %r2;", [f(-1.0), f(2.0), 0], 0x4000),
        ("cvt.rna.tf32.f32 %r0, %r1;", [0x3f80_1000, 0, 0], 0x3f80_2000),
    ]);
}

#[test]
fn eight_bit_floats() {
    check_table(&[
        // E4M3: 1.0 = 0x38, 448 = 0x7e is the largest, NaN = 0x7f.
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;", [f(1.0), f(-1.0), 0], 0x38b8),
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;", [f(1e9), f(0.0), 0], 0x7e00),
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;", [f(f32::NAN), f(0.001_953_125), 0], 0x7f01),
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;", [f(17.0), f(19.0), 0], 0x585a),
        ("cvt.rn.f16x2.e4m3x2 %r0, %h1;", [0x38b8, 0, 0], 0x3c00_bc00),
        // E5M2: 1.0 = 0x3c, 57344 = 0x7b is the largest.
        ("cvt.rn.satfinite.e5m2x2.f32 %h0, %r1, %r2;", [f(1.0), f(1e9), 0], 0x3c7b),
        ("cvt.rn.f16x2.e5m2x2 %r0, %h1;", [0x3c7b, 0, 0], 0x3c00_7b00),
    ]);
}

/// Every finite 8-bit value comes back from half precision as it was.
#[test]
fn eight_bit_floats_come_back() {
    for format in ["e4m3", "e5m2"] {
        let code = format!(
            "cvt.rn.f16x2.{format}x2 %r5, %h1; cvt.rn.satfinite.{format}x2.f16x2 %h0, %r5;"
        );
        for bits in 0..=255u64 {
            let special = if format == "e4m3" { bits & 0x7f == 0x7f } else { bits & 0x7f >= 0x7c };
            if !special {
                assert_eq!(result_of(&code, [bits, 0, 0]), bits, "{format} {bits:#x}");
            }
        }
    }
}

/// Against the `half` crate, over values of every size.
#[test]
fn half_precision_rounds_as_the_reference_does() {
    let mut state = 1u32;
    for _ in 0..300 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = f32::from_bits(state);
        if value.is_nan() {
            continue;
        }
        let bits = f(value);
        assert_eq!(
            result_of("cvt.rn.bf16.f32 %h0, %r1;", [bits, 0, 0]),
            bf16::from_f32(value).to_bits().into()
        );
        assert_eq!(
            result_of("cvt.rn.f16.f32 %h0, %r1;", [bits, 0, 0]),
            f16::from_f32(value).to_bits().into()
        );
    }
}
