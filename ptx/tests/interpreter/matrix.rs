//! `ldmatrix`, `stmatrix` and `mma.sync`: where each element lies, as the ISA's figures have it.

use half::{bf16, f16};
use ptx_interpreter::FaultKind;

use crate::kernel::{assert_fault, run_words, store};

/// Element `index` of shared memory is `index`, 16 bits each, 512 of them.
const FILL: &str = "mov.u32 %r8, smem; mad.lo.u32 %r8, %lane, 32, %r8; shl.b32 %r9, %lane, 4; mov.u32 %r10, 0;\n\
     FILL: add.u32 %r11, %r9, 1; shl.b32 %r11, %r11, 16; or.b32 %r11, %r11, %r9; st.shared.u32 [%r8], %r11;\n\
     add.u32 %r8, %r8, 4; add.u32 %r9, %r9, 2; add.u32 %r10, %r10, 1; setp.lt.u32 %p9, %r10, 8; @%p9 bra FILL;\n";
/// Row `lane % 8` of matrix `lane / 8`: rows of 8 elements, 16 bytes.
const ROW: &str = "mov.u32 %r1, smem; mad.lo.u32 %r1, %lane, 16, %r1;\n";

fn words(body: &str) -> Vec<u32> {
    run_words(body, 32, &[0], 64).unwrap_or_else(|error| panic!("{error}")).0
}

#[test]
fn loads_give_each_lane_two_neighbours() {
    for matrix in 0..4u32 {
        let load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];";
        let found = words(&format!("{FILL}{ROW}{load}{}", store(&format!("%r{}", 2 + matrix))));
        let transposed = load.replace(".x4", ".x4.trans");
        let found_transposed =
            words(&format!("{FILL}{ROW}{transposed}{}", store(&format!("%r{}", 2 + matrix))));
        for lane in 0..32u32 {
            let (row, column) = (lane / 4, lane % 4 * 2);
            let element = |row: u32, column: u32| 64 * matrix + 8 * row + column;
            let right = element(row, column) | element(row, column + 1) << 16;
            assert_eq!(found[lane as usize], right, "matrix {matrix}, lane {lane}");
            let right = element(column, row) | element(column + 1, row) << 16;
            assert_eq!(
                found_transposed[lane as usize], right,
                "transposed, matrix {matrix}, lane {lane}"
            );
        }
    }
}

#[test]
fn one_and_two_matrices_take_the_first_lanes_addresses() {
    let one = words(&format!(
        "{FILL}{ROW} setp.ge.u32 %p1, %lane, 8; @%p1 mov.u32 %r1, 0;\n\
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r1]; {}",
        store("%r2")
    ));
    assert_eq!(one[31], 62 | 63 << 16);
    let two = words(&format!(
        "{FILL}{ROW} ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r2, %r3}}, [%r1]; {}",
        store("%r3")
    ));
    assert_eq!(two[0], 64 | 65 << 16);
}

#[test]
fn stores_are_the_way_back() {
    for trans in ["", ".trans"] {
        let body = format!(
            "{FILL}{ROW} ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r2, %r3, %r4, %r5}}, [%r1];\n\
             add.u32 %r6, %r1, 4096;\n\
             stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r6], {{%r2, %r3, %r4, %r5}};\n\
             ld.shared.u32 %r7, [%r6+4]; {}",
            store("%r7")
        );
        for (lane, value) in words(&body).into_iter().take(32).enumerate() {
            let first = 8 * lane as u32 + 2;
            assert_eq!(value, first | (first + 1) << 16, "{trans} row {lane}");
        }
    }
}

#[test]
fn a_matrix_load_needs_all_lanes_and_whole_rows() {
    let load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];";
    let half = format!("{FILL}{ROW} setp.lt.u32 %p1, %lane, 16; @%p1 {load}");
    assert_fault(&half, 32, FaultKind::Divergence, "a matrix load needs all 32 lanes");
    assert_fault(
        &format!("{FILL}{ROW} add.u32 %r1, %r1, 8; {load}"),
        32,
        FaultKind::Misaligned,
        "multiple of 16",
    );
    assert_fault(&format!("{ROW}{load}"), 32, FaultKind::Uninitialised, "lane 0");
}

/// How a lane's registers hold A `[16][k]`, B `[k][8]` and C `[16][8]`, written down from the ISA's tables, one word of 32
/// bits at a time; `per` elements a word.
mod layout {
    pub(super) fn a(lane: usize, word: usize, part: usize, per: usize) -> (usize, usize) {
        let row = lane / 4 + if word % 2 == 1 { 8 } else { 0 };
        let column = lane % 4 * per + part + if word >= 2 { 4 * per } else { 0 };
        (row, column)
    }

    pub(super) fn b(lane: usize, word: usize, part: usize, per: usize) -> (usize, usize) {
        (lane % 4 * per + part + 4 * per * word, lane / 4)
    }

    pub(super) fn c(lane: usize, index: usize) -> (usize, usize) {
        (lane / 4 + if index >= 2 { 8 } else { 0 }, lane % 4 * 2 + index % 2)
    }
}

/// Multiplies small whole numbers, which every type holds exactly, and compares with the product of the matrices.
fn check_mma(name: &str, k: usize, bits: usize, encode: fn(i32) -> u32, d: &str) {
    let per = 32 / bits;
    let (a_words, b_words) = (k * bits / 64, k * bits / 128);
    let a_value = |row: usize, column: usize| {
        ((row * 5 + column * 3) % 7) as i32 - if bits == 8 { 0 } else { 3 }
    };
    let b_value = |row: usize, column: usize| {
        ((row * 2 + column * 7) % 5) as i32 - if bits == 8 { 0 } else { 2 }
    };
    let mut input = Vec::new();
    for lane in 0..32 {
        for word in 0..a_words {
            input.push((0..per).fold(0, |value, part| {
                let (row, column) = layout::a(lane, word, part, per);
                value | encode(a_value(row, column)) << (bits * part)
            }));
        }
        for word in 0..b_words {
            input.push((0..per).fold(0, |value, part| {
                let (row, column) = layout::b(lane, word, part, per);
                value | encode(b_value(row, column)) << (bits * part)
            }));
        }
    }
    let names = |first: usize, count: usize| {
        (first..first + count).map(|index| format!("%r{index}")).collect::<Vec<_>>().join(", ")
    };
    let words = a_words + b_words;
    let mut body = format!("mul.wide.u32 %rd1, %lane, {}; add.s64 %rd1, %rd1, %in;\n", 4 * words);
    for word in 0..words {
        body += &format!("ld.global.u32 %r{}, [%rd1+{}];\n", 10 + word, 4 * word);
    }
    let d_words = if d == "f16" { 2 } else { 4 };
    // C is 1 everywhere.
    let one = match d {
        "f16" => "0x3c003c00",
        "s32" => "1",
        _ => "0x3f800000",
    };
    for word in 0..d_words {
        body += &format!("mov.b32 %r{}, {one};\n", 30 + word);
    }
    body += &format!(
        "{name} {{{}}}, {{{}}}, {{{}}}, {{{}}};\n mul.wide.u32 %rd2, %lane, 16; add.s64 %rd2, %rd2, %out;\n",
        names(40, d_words),
        names(10, a_words),
        names(10 + a_words, b_words),
        names(30, d_words)
    );
    for word in 0..d_words {
        body += &format!("st.global.u32 [%rd2+{}], %r{};\n", 4 * word, 40 + word);
    }
    let (found, counts) =
        run_words(&body, 32, &input, 128).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(counts.tensor_flops, 2 * 16 * 8 * k as u64);
    for lane in 0..32 {
        for index in 0..4 {
            let (row, column) = layout::c(lane, index);
            let right: i32 = 1 + (0..k).map(|j| a_value(row, j) * b_value(j, column)).sum::<i32>();
            let value = match d {
                "f16" => f16::from_bits((found[4 * lane + index / 2] >> (16 * (index % 2))) as u16)
                    .to_f32() as i32,
                "s32" => found[4 * lane + index] as i32,
                _ => f32::from_bits(found[4 * lane + index]) as i32,
            };
            assert_eq!(value, right, "{name}: row {row}, column {column}");
        }
    }
}

#[test]
fn products_of_every_type() {
    let bf = |value: i32| u32::from(bf16::from_f32(value as f32).to_bits());
    let half = |value: i32| u32::from(f16::from_f32(value as f32).to_bits());
    check_mma("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, bf, "f32");
    check_mma("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, 16, bf, "f32");
    check_mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, 16, half, "f32");
    check_mma("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 16, 16, half, "f16");
    check_mma(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        8,
        32,
        |v| (v as f32).to_bits(),
        "f32",
    );
    check_mma("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32, 8, |v| v as u32 & 0xff, "s32");
    check_mma("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", 16, 8, |v| v as u32 & 0xff, "s32");
    check_mma(
        "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32",
        32,
        8,
        |v| v as u32 & 0xff,
        "s32",
    );
    // E4M3: 0, 1, 2, ... 6.
    let e4m3 = |value: i32| [0x00, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c][value as usize];
    check_mma("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, 8, e4m3, "f32");
}
