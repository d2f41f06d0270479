//! Keys and values in FP8: every code read and every number written exactly, and attention over them.

use crate::gemm_blocks::{OVERLAPPED, order};
use crate::gpu::Gpu;
use crate::mutants::{Prepared, is_noticed};
use crate::paged_case::{Case, Heads, NARROW, Request, Runs, WIDE, upload_batch};
use cuda_kernels::attention::{PagedAttention, Workspace};
use cuda_kernels::cache::{BLOCK_TOKENS, Cache, CacheScales, Code, RopeCache};
use cuda_kernels::check::Buffer;
use cuda_kernels::check::numbers::{Random, from_bf16, from_e4m3, near, to_bf16};
use cuda_kernels::gemm::Product;

fn cases() -> Vec<Case> {
    let text = [(1, 1), (300, 1), (70, 70), (256, 3), (321, 40)];
    let text = text.map(|(keys, queries)| Request::text(keys, queries));
    let tree = [Request::tree(260, &[None, Some(0), Some(0), Some(1)]), Request::text(90, 3)];
    let of = |heads| [Case::fp8(heads, &text, 1), Case::fp8(heads, &tree, 2)];
    [NARROW, WIDE].into_iter().flat_map(of).collect()
}

#[test]
fn banks_do_not_conflict() {
    for case in cases() {
        let (prefill, decode) = (case.prefill(), case.decode());
        assert_eq!(prefill.counts.bank_conflicts() + decode.counts.bank_conflicts(), 0);
    }
}

#[test]
fn a_request_has_the_same_bits_alone_and_among_others() {
    let case = &cases()[0];
    let together = case.prefill().out;
    for request in [1, 4] {
        let alone = case.only(&[request]);
        assert!(alone.prefill().out[0] == together[request], "prefill of request {request}");
        assert!(alone.decode().out[0] == together[request], "decode of request {request}");
    }
}

#[test]
fn a_byte_is_read_for_an_element_and_a_scale_for_a_token() {
    let Heads { heads, kv_heads, head_dim } = NARROW;
    let keys = 256;
    let case = Case::fp8(NARROW, &[Request::text(keys, 1)], 3);
    // A warp reads 512 bytes at a time: eight tokens of one block, which it looks up, and their scales.
    let turns = 2 * keys * kv_heads * head_dim / 512;
    let beside = kv_heads * (heads / kv_heads * head_dim * 2 / 32 + 4 * 3);
    let sectors = (turns * (512 / 32 + 1 + 1) + beside) as u64;
    assert_eq!(case.decode().counts.global_load_sectors, sectors);
    assert_eq!(case.prefill().counts.global_load_sectors, sectors);
}

/// One token with a key and a value for each of two kv heads of 128: the values are all 256 codes. Its query sees itself
/// alone, so the output is the value.
fn every_code(scale: f32) -> (Gpu, PagedAttention, Workspace, Buffer<u16>) {
    let (mut gpu, head_dim, kv_heads) = (Gpu::new(), 128, 2);
    let head = BLOCK_TOKENS * head_dim;
    let mut pool = vec![0u8; 2 * kv_heads * head];
    for code in 0..=255u8 {
        let (kv_head, i) = (usize::from(code) / head_dim, usize::from(code) % head_dim);
        pool[(kv_heads + kv_head) * head + i] = code;
    }
    let out = gpu.alloc::<u16>(kv_heads * head_dim);
    let keys = gpu.upload(&pool);
    let scales = gpu.upload(&vec![scale; 2 * kv_heads * BLOCK_TOKENS]);
    let cache = Cache {
        keys,
        values: keys + (kv_heads * head) as u64,
        block_stride: pool.len() as i64,
        head_stride: head as i64,
        scales: Some(CacheScales {
            code: Code::Fp8,
            keys: scales,
            values: scales,
            block_stride: (2 * kv_heads * BLOCK_TOKENS) as i64,
            head_stride: BLOCK_TOKENS as i64,
        }),
    };
    let attention = PagedAttention {
        out: out.address(),
        queries: gpu.upload_bf16(&vec![1.0; kv_heads * head_dim]),
        cache,
        batch: upload_batch(&mut gpu, &[Request::text(1, 1)], &[vec![0]]),
        heads: kv_heads,
        kv_heads,
        head_dim,
        scale: 1.0,
    };
    let workspace = Workspace {
        parts: gpu.alloc::<f32>(kv_heads * head_dim).address(),
        states: gpu.alloc::<f32>(kv_heads * 2).address(),
    };
    (gpu, attention, workspace, out)
}

#[test]
fn every_code_is_read_as_its_number() {
    for scale in [1.0, 0.3, 300.0] {
        let (mut gpu, attention, workspace, out) = every_code(scale);
        let [decode, join] = attention.decode(workspace).unwrap();
        for launches in [vec![attention.prefill().unwrap()], vec![decode, join]] {
            gpu.write(out, &[0x7fc0; 256]);
            for launch in &launches {
                gpu.run(launch);
            }
            for (code, found) in (0..=255u8).zip(gpu.download_bf16(out)) {
                let right = from_bf16(to_bf16(from_e4m3(code) * scale));
                let is_same = found == right || (found.is_nan() && right.is_nan());
                let entry = launches[0].entry;
                assert!(is_same, "{entry}: code {code:#x} is {found}, right is {right}");
            }
        }
    }
}

/// Values that are written to the cache: heads of 128 numbers, two to a row.
struct Written {
    gpu: Gpu,
    launch: cuda_kernels::Launch,
    codes: Buffer<u8>,
    scales: Buffer<f32>,
}

const HEAD: usize = 128;
const KV_HEADS: usize = 2;

fn write(values: &[f32], code: Code) -> Written {
    let (mut gpu, rows) = (Gpu::new(), values.len() / (KV_HEADS * HEAD));
    let head = BLOCK_TOKENS * HEAD;
    let blocks = rows.div_ceil(BLOCK_TOKENS);
    let qkv: Vec<f32> = values
        .chunks(KV_HEADS * HEAD)
        .flat_map(|values| {
            let queries_and_keys = (0..(1 + KV_HEADS) * HEAD).map(|i| i as f32);
            queries_and_keys.chain(values.iter().copied())
        })
        .collect();
    let codes = gpu.alloc::<u8>(blocks * 2 * KV_HEADS * head);
    let scales = gpu.alloc::<f32>(blocks * 2 * KV_HEADS * BLOCK_TOKENS);
    let places = (2 * KV_HEADS * BLOCK_TOKENS) as i64;
    let launch = RopeCache {
        queries: gpu.alloc::<u16>(rows * HEAD).address(),
        cache: Cache {
            keys: codes.address(),
            values: codes.address() + (KV_HEADS * head) as u64,
            block_stride: (2 * KV_HEADS * head) as i64,
            head_stride: head as i64,
            scales: Some(CacheScales {
                code,
                keys: scales.address(),
                values: scales.address() + (KV_HEADS * BLOCK_TOKENS * 4) as u64,
                block_stride: places,
                head_stride: BLOCK_TOKENS as i64,
            }),
        },
        qkv: Product::Whole(gpu.upload_bf16(&qkv)),
        turns: gpu.upload(&[1.0f32, 0.0].repeat(HEAD / 2)),
        positions: gpu.upload(&vec![0i32; rows]),
        slots: gpu.upload(&(0..rows as i64).collect::<Vec<_>>()),
        rows,
        heads: 1,
        kv_heads: KV_HEADS,
        head_dim: HEAD,
    };
    Written { gpu, launch: launch.launch().unwrap(), codes, scales }
}

/// Runs the kernel; of each head of values its codes and scale, in order.
fn written(values: &[f32]) -> Vec<(Vec<u8>, f32)> {
    let mut written = write(values, Code::Fp8);
    let counts = written.gpu.run(&written.launch);
    assert_eq!(counts.bank_conflicts(), 0);
    let (codes, scales) =
        (written.gpu.download(written.codes), written.gpu.download(written.scales));
    let place = |head: usize| {
        let (row, kv_head) = (head / KV_HEADS, head % KV_HEADS);
        let block = (row / BLOCK_TOKENS * 2 + 1) * KV_HEADS + kv_head;
        block * BLOCK_TOKENS + row % BLOCK_TOKENS
    };
    let heads = (0..values.len() / HEAD).map(place);
    heads.map(|at| (codes[at * HEAD..][..HEAD].to_vec(), scales[at])).collect()
}

/// The code of the nearest number, of two the even one; found by looking at all of them.
fn nearest(x: f32) -> u8 {
    let off = |code: u8| (f64::from(from_e4m3(code)) - f64::from(x.abs())).abs();
    let code = (0..0x7f).min_by(|&a, &b| off(a).total_cmp(&off(b)).then((a % 2).cmp(&(b % 2))));
    code.unwrap() | if x.is_sign_negative() { 0x80 } else { 0 }
}

#[test]
fn every_bf16_up_to_the_largest_code_is_written_as_the_nearest() {
    // A head of which the largest number is 448 has the scale 1; the rest are all numbers of bf16 that are not larger.
    let all = (0..=to_bf16(448.0)).flat_map(|bits| [bits, bits | 0x8000]).map(from_bf16);
    let mut values = Vec::new();
    for numbers in all.collect::<Vec<f32>>().chunks(HEAD - 1) {
        values.push(448.0);
        values.extend_from_slice(numbers);
        values.resize(values.len().next_multiple_of(HEAD), 0.0);
    }
    values.resize(values.len().next_multiple_of(KV_HEADS * HEAD), 0.0);
    for ((codes, scale), numbers) in written(&values).iter().zip(values.chunks(HEAD)) {
        assert_eq!(*scale, numbers[0] / 448.0);
        for (&code, &x) in codes.iter().zip(numbers) {
            assert_eq!(code, nearest(x), "{x} is written as {code:#x}");
        }
    }
}

#[test]
fn what_is_written_stands_for_the_value_within_half_a_step() {
    let mut values = Random(4).bf16s(4 * HEAD, 3.0);
    values[HEAD..2 * HEAD].iter_mut().for_each(|x| *x *= 1e-20);
    values[2 * HEAD..3 * HEAD].iter_mut().for_each(|x| *x *= 1e30);
    let values: Vec<f32> = values.into_iter().map(|x| from_bf16(to_bf16(x))).collect();
    for ((codes, scale), numbers) in written(&values).iter().zip(values.chunks(HEAD)) {
        let found: Vec<f32> = codes.iter().map(|&code| from_e4m3(code) * scale).collect();
        let right: Vec<f64> = numbers.iter().map(|&x| x.into()).collect();
        // Four bits of significand, or half of the smallest step; and f32's own roundings.
        let smallest = f64::from(*scale) * 2f64.powi(-10);
        let bound = |i: usize| (right[i].abs() / 16.0).max(smallest) * (1.0 + 1e-5);
        near("rope_cache_fp8", &found, &right, bound).unwrap();
    }
}

#[test]
fn what_is_no_number_stays_none_and_what_is_tiny_is_nothing() {
    let mut values = vec![1.0; 4 * HEAD];
    values[3] = f32::NAN;
    values[HEAD + 5] = f32::NEG_INFINITY;
    values[2 * HEAD..3 * HEAD].fill(1e-39); // its inverse is infinite
    values[3 * HEAD..].fill(0.0);
    let found: Vec<Vec<f32>> = written(&values)
        .into_iter()
        .map(|(codes, scale)| codes.iter().map(|&code| from_e4m3(code) * scale).collect())
        .collect();
    assert!(found[0][3].is_nan());
    assert_eq!(found[0][4], 1.0);
    assert!(found[1][5].is_nan(), "an infinity is not made into a number");
    assert!(found[2].iter().chain(&found[3]).all(|&x| x == 0.0));
}

/// Two splits, and tiles enough that each stage is used again, for mutants of the kernel that reads.
fn prepared_read() -> Prepared {
    let mut gpu = Gpu::new();
    let case = Case::fp8(NARROW, &[Request::text(300, 20)], 6);
    let (attention, workspace, _, parts) = case.upload(&mut gpu);
    let [launch, _] = attention.decode(workspace).unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(parts)) }
}

#[test]
fn a_tile_is_under_way_while_the_one_before_is_worked_with() {
    assert_eq!(order(&prepared_read().launch), OVERLAPPED);
}

/// Numbers of all kinds, for mutants of the kernel that writes them.
pub(crate) fn prepared_write(code: Code) -> Prepared {
    let mut values = Random(5).bf16s(8 * HEAD, 448.0);
    for (i, x) in values.iter_mut().enumerate() {
        *x *= [1.0, 1e-2, 1e-4, 1e-6][i % 4];
    }
    // Scales of 1, and ties.
    for head in values.chunks_mut(HEAD) {
        (head[0], head[1], head[2], head[3]) = (448.0, 1.0625, 1.1875, f32::NAN);
        (head[4], head[5], head[6]) = (2.5 / 512.0, 3.5 / 512.0, -0.0);
    }
    let Written { gpu, launch, codes, scales } = write(&values, code);
    let read = move |gpu: &Gpu| [gpu.bytes(codes), gpu.bytes(scales)].concat();
    Prepared { gpu, launch, read: Box::new(read) }
}

/// A constant of the kernel, changed.
fn constant(line: &str, from: &str, to: &str) -> Option<String> {
    line.contains(from).then(|| line.replace(from, to))
}

#[test]
fn a_code_that_is_taken_apart_wrongly_is_noticed() {
    // 2^120 halved, and the sign in the wrong place.
    for (from, to) in [("0f7B800000", "0f7B000000"), ("-2147483648", "1073741824")] {
        is_noticed(prepared_read, |line| constant(line, from, to));
    }
    // 448 and 2^9 halved; half of the last bit as 0; the exponent's bias off by one.
    for (from, to) in [
        ("0f43E00000", "0f43600000"),
        ("0f44000000", "0f43800000"),
        (", 524287;", ", 0;"),
        (", -960;", ", -952;"),
    ] {
        is_noticed(|| prepared_write(Code::Fp8), |line| constant(line, from, to));
    }
}
