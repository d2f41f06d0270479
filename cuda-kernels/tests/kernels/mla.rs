//! Multi-head latent attention over the paged latents.

use crate::gpu::Gpu;
use crate::mutants::{Prepared, is_noticed};
use crate::numbers::{HALF_ULP, Random, assert_near, from_bf16};
use crate::paged_case::{Request, textbook, upload_batch};
use cuda_kernels::attention::{MLA_KEY, MLA_VALUE, MlaAttention, Workspace, splits};
use cuda_kernels::cache::BLOCK_TOKENS;
use ptx_interpreter::{Buffer, Counts};

const SCALE: f32 = 0.06;

struct Case {
    heads: usize,
    requests: Vec<Request>,
    tables: Vec<Vec<i32>>,
    /// `[blocks][BLOCK_TOKENS][MLA_KEY]`; NaN where no request has anything.
    pool: Vec<f32>,
    /// Of each request, `[queries][heads][MLA_KEY]`.
    queries: Vec<Vec<f32>>,
}

impl Case {
    fn new(heads: usize, requests: &[Request], seed: u64) -> Self {
        let mut random = Random(seed);
        let mut blocks = 0..;
        let tables: Vec<Vec<i32>> = requests
            .iter()
            .map(|r| {
                let mut table: Vec<i32> =
                    blocks.by_ref().take(r.keys.div_ceil(BLOCK_TOKENS)).collect();
                table.reverse();
                table
            })
            .collect();
        let blocks = blocks.next().unwrap() as usize;
        let mut pool = vec![f32::NAN; blocks * BLOCK_TOKENS * MLA_KEY];
        for (request, table) in requests.iter().zip(&tables) {
            for key in 0..request.keys {
                let row = table[key / BLOCK_TOKENS] as usize * BLOCK_TOKENS + key % BLOCK_TOKENS;
                pool[row * MLA_KEY..][..MLA_KEY].copy_from_slice(&random.bf16s(MLA_KEY, 2.0));
            }
        }
        let rows = requests.iter().map(|r| r.queries * heads * MLA_KEY);
        let queries = rows.map(|len| random.bf16s(len, 1.0)).collect();
        Case { heads, requests: requests.to_vec(), tables, pool, queries }
    }

    /// The launches' description, and where they write.
    fn upload(&self, gpu: &mut Gpu) -> (MlaAttention, Workspace, Buffer<u16>) {
        let rows: usize = self.requests.iter().map(|r| r.queries).sum();
        let out = gpu.alloc::<u16>(rows * self.heads * MLA_VALUE);
        // A row is poisoned until it is written.
        gpu.write(out, &vec![0x7fc0; rows * self.heads * MLA_VALUE]);
        let batch = upload_batch(gpu, &self.requests, &self.tables);
        let parts = rows * self.heads * splits(batch.most_keys);
        let workspace = Workspace {
            parts: gpu.alloc::<f32>(parts * MLA_VALUE).address(),
            states: gpu.alloc::<f32>(parts * 2).address(),
        };
        let attention = MlaAttention {
            out: out.address(),
            queries: gpu.upload_bf16(&self.queries.concat()),
            latents: gpu.upload_bf16(&self.pool),
            block_stride: (BLOCK_TOKENS * MLA_KEY) as i64,
            batch,
            heads: self.heads,
            scale: SCALE,
        };
        (attention, workspace, out)
    }

    fn decode(&self) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let (attention, workspace, out) = self.upload(&mut gpu);
        let [decode, join] = attention.decode(workspace).unwrap();
        let counts = gpu.run(&decode);
        gpu.run(&join);
        (gpu.download(out), counts)
    }

    fn prefill(&self) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let (attention, _, out) = self.upload(&mut gpu);
        let counts = gpu.run(&attention.prefill().unwrap());
        (gpu.download(out), counts)
    }

    /// The same with one of its requests; latents stay where they are.
    fn only(&self, request: usize) -> Self {
        Case {
            heads: self.heads,
            requests: vec![self.requests[request].clone()],
            tables: vec![self.tables[request].clone()],
            pool: self.pool.clone(),
            queries: vec![self.queries[request].clone()],
        }
    }

    /// Queries `from..to` of a request of text alone, as when its prompt comes in pieces.
    fn piece(&self, request: usize, from: usize, to: usize) -> Self {
        let mut piece = self.only(request);
        let Request { keys, queries, .. } = piece.requests[0];
        piece.requests[0] = Request::text(keys - queries + to, to - from);
        let row = self.heads * MLA_KEY;
        piece.queries[0] = piece.queries[0][from * row..to * row].to_vec();
        piece
    }

    fn right(&self) -> Vec<f64> {
        let latent = |request: usize, key: usize| {
            let block = self.tables[request][key / BLOCK_TOKENS] as usize;
            &self.pool[(block * BLOCK_TOKENS + key % BLOCK_TOKENS) * MLA_KEY..][..MLA_KEY]
        };
        let mut out = Vec::new();
        for (i, request) in self.requests.iter().enumerate() {
            for (row, query) in self.queries[i].chunks(MLA_KEY).enumerate() {
                let seen = (0..request.keys).filter(|&key| request.sees(row / self.heads, key));
                let latents = seen.map(|key| latent(i, key));
                out.extend(textbook(query, latents.map(|c| (c, &c[..MLA_VALUE])), SCALE));
            }
        }
        out
    }
}

fn requests() -> Vec<Request> {
    vec![
        Request::text(1, 1),
        Request::text(290, 1),
        Request::text(65, 2),
        Request::tree(30, &[None, Some(0), Some(0)]),
        Request::text(270, 20),
    ]
}

#[test]
fn latent_attention_is_right() {
    // More heads than a block of threads of the first kernel has rows, and no multiple of either's.
    let case = Case::new(20, &requests(), 1);
    let right = case.right();
    for (what, (out, counts)) in [("decode", case.decode()), ("prefill", case.prefill())] {
        let found: Vec<f32> = out.into_iter().map(from_bf16).collect();
        // As in paged.rs, with values below 2.
        let bound = |i: usize| 2.0 * HALF_ULP * 1.1 + right[i].abs() * HALF_ULP;
        assert_near(what, &found, &right, bound);
        assert_eq!(counts.bank_conflicts(), 0, "{what}");
    }
}

#[test]
fn prefill_and_decode_give_the_same_bits() {
    // Several splits, ends beside the edges of tiles, and a tree behind more than a split.
    let mut requests = requests();
    requests.extend([Request::text(520, 3), Request::text(64, 64), Request::text(257, 2)]);
    requests.push(Request::tree(262, &[None, Some(0), Some(1), Some(0)]));
    let case = Case::new(6, &requests, 3);
    assert!(case.prefill().0 == case.decode().0);
}

#[test]
fn a_request_has_the_same_bits_alone_and_among_others() {
    let case = Case::new(4, &requests(), 2);
    let (decode, prefill) = (case.decode().0, case.prefill().0);
    let row = 4 * MLA_VALUE;
    for (request, rows) in [(1, 1..2), (4, 7..27)] {
        let rows = rows.start * row..rows.end * row;
        assert!(case.only(request).decode().0 == decode[rows.clone()], "decode of {request}");
        assert!(case.only(request).prefill().0 == prefill[rows], "prefill of {request}");
    }
}

#[test]
fn a_prompt_has_the_same_bits_in_one_piece_and_in_several() {
    let case = Case::new(4, &[Request::text(140, 90)], 4);
    let mut pieces = Vec::new();
    for (from, to) in [(0, 33), (33, 34), (34, 90)] {
        let piece = case.piece(0, from, to);
        pieces.extend(if to - from == 1 { piece.decode().0 } else { piece.prefill().0 });
    }
    assert!(pieces == case.prefill().0);
}

#[test]
fn a_latent_is_read_once_for_32_rows_of_queries_and_heads() {
    let (heads, keys, queries) = (16, 130, 4);
    let (_, counts) = Case::new(heads, &[Request::text(keys, queries)], 5).prefill();
    let row = MLA_KEY * 2 / 32;
    // Two queries to a block of threads: the first two see two tiles, the last two see all keys.
    let seen = [128, keys];
    let latents = seen.iter().sum::<usize>() * row;
    // A warp copies 32 chunks of 16 bytes at a time and looks up whose blocks they are, which is one sector.
    let lookups: usize = seen.iter().map(|keys| (keys * MLA_KEY / 8).div_ceil(32)).sum();
    let queries = queries * heads * row;
    // Each of the eight warps reads the length and two starts.
    let beside = seen.len() * 8 * 3;
    assert_eq!(counts.global_load_sectors, (latents + lookups + queries + beside) as u64);
    assert_eq!(counts.global_store_sectors, (4 * heads * MLA_VALUE * 2 / 32) as u64);
}

/// For mutants: two splits, and tiles enough that each half's place is used again.
fn prepared() -> Prepared {
    let case = Case::new(8, &[Request::text(330, 5)], 6);
    let mut gpu = Gpu::new();
    let (attention, _, out) = case.upload(&mut gpu);
    let launch = attention.prefill().unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}

#[test]
fn a_kernel_that_is_broken_is_noticed() {
    is_noticed(prepared, |line| line.contains("bar.sync").then(String::new));
    // Copies that are not waited for.
    let wait = |line: &str| line.replace("wait_group 0", "wait_group 1");
    is_noticed(prepared, |line| line.contains("wait_group 0").then(|| wait(line)));
    // A weight, or what sums are multiplied with, that is 1.
    is_noticed(prepared, |line| {
        let (_, operands) = line.split_once("ex2.approx.ftz.f32 ")?;
        let (to, _) = operands.split_once(',')?;
        Some(format!("mov.f32 {to}, 0f3F800000;"))
    });
}
