//! Multi-head latent attention over the paged latents.

use crate::gpu::Gpu;
use crate::numbers::{HALF_ULP, Random, assert_near, from_bf16};
use crate::paged_case::{Request, textbook, upload_batch};
use cuda_kernels::attention::{MLA_KEY, MLA_VALUE, MlaDecode, Workspace, splits};
use cuda_kernels::cache::BLOCK_TOKENS;
use ptx_interpreter::Counts;

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

    fn run(&self) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let rows: usize = self.requests.iter().map(|r| r.queries).sum();
        let out = gpu.alloc::<u16>(rows * self.heads * MLA_VALUE);
        let batch = upload_batch(&mut gpu, &self.requests, &self.tables);
        let parts = rows * self.heads * splits(batch.most_keys);
        let workspace = Workspace {
            parts: gpu.alloc::<f32>(parts * MLA_VALUE).address(),
            states: gpu.alloc::<f32>(parts * 2).address(),
        };
        let launch = MlaDecode {
            out: out.address(),
            queries: gpu.upload_bf16(&self.queries.concat()),
            latents: gpu.upload_bf16(&self.pool),
            block_stride: (BLOCK_TOKENS * MLA_KEY) as i64,
            batch,
            heads: self.heads,
            scale: SCALE,
        };
        let [decode, join] = launch.launch(workspace).unwrap();
        let counts = gpu.run(&decode);
        gpu.run(&join);
        (gpu.download(out), counts)
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
    ]
}

#[test]
fn latent_attention_is_right() {
    // More heads than a block of threads has rows, and not a multiple of them.
    let case = Case::new(20, &requests(), 1);
    let (out, counts) = case.run();
    let found: Vec<f32> = out.into_iter().map(from_bf16).collect();
    let right = case.right();
    // As in paged.rs, with values below 2.
    let bound = |i: usize| 2.0 * HALF_ULP * 1.1 + right[i].abs() * HALF_ULP;
    assert_near("mla_decode", &found, &right, bound);
    assert_eq!(counts.bank_conflicts(), 0);
}

#[test]
fn a_request_has_the_same_bits_alone_and_among_others() {
    let case = Case::new(4, &requests(), 2);
    let (together, _) = case.run();
    let alone = Case {
        heads: 4,
        requests: vec![case.requests[1].clone()],
        tables: vec![case.tables[1].clone()],
        pool: case.pool.clone(),
        queries: vec![case.queries[1].clone()],
    };
    let row = 4 * MLA_VALUE;
    assert!(alone.run().0 == together[row..2 * row]);
}
