//! From a pass's arrays to launches: a Llama, kernel by kernel.

use crate::heads::Heads;
use crate::memory::BlockShape;
use crate::prompts::PromptKernels;
use crate::shared::refused;
use crate::staging::Staged;
use crate::weights::Weights;
use cuda_kernels::attention::{PagedAttention, Workspace, splits};
use cuda_kernels::cache::{Cache, RopeCache};
use cuda_kernels::gated::GatedGemm;
use cuda_kernels::gemm::{self, Gemm, Product};
use cuda_kernels::rows::{AddRmsNorm, Argmax, Embedding, RmsNorm, SwiGlu};
use cuda_kernels::{Address, DeviceResult, Launch};
use naive_decode::{Config, Result};

/// Up to so many rows, the kernels for few rows are launched. Which does not change a bit.
pub(crate) const FEW_ROWS: usize = 64;

/// In a pass of more rows, attention still takes them for requests of up to so many each.
pub(crate) const FEW_QUERIES: usize = 16;

/// Memory for what a pass computes on its way. `[rows]` is the room's.
#[derive(Clone, Copy)]
pub(crate) struct Scratch {
    /// `[rows][hidden]`: the residual stream.
    residual: Address,
    /// `[rows][hidden]`: what a norm gives.
    normed: Address,
    /// `[rows][hidden]`: what is added to the residual stream next.
    change: Address,
    /// `[rows][heads + 2 * kv_heads][wide head]`
    qkv: Address,
    /// `[rows][heads][wide head]`
    queries: Address,
    /// `[rows][heads][wide head]`
    attended: Address,
    /// `[rows][2 * intermediate]`
    gate_up: Address,
    /// `[rows][intermediate]`
    gated: Address,
    /// Splits of matrix products with few rows, in f32.
    gemm_parts: Address,
    /// Splits of attention with few rows.
    workspace: Workspace,
    /// `[few rows][hidden]`: rows that go into the head.
    pub(crate) picked: Address,
    /// `[few rows][vocab]` in f32.
    pub(crate) logits: Address,
}

impl Scratch {
    /// `alloc` is asked for memory, so many bytes at a time.
    pub(crate) fn new(
        alloc: &mut dyn FnMut(usize) -> DeviceResult<Address>,
        config: &Config,
        heads_of: Heads,
        (rows, capacity): (usize, usize),
    ) -> DeviceResult<Self> {
        let Config { hidden_size: hidden, heads, kv_heads, .. } = *config;
        let head_dim = heads_of.wide;
        let (inside, vocabulary) = (config.intermediate_size, config.vocab_size);
        let few = rows.min(FEW_ROWS);
        let qkv = (heads + 2 * kv_heads) * head_dim;
        let shapes = [
            (qkv, hidden),
            (hidden, heads * head_dim),
            (2 * inside, hidden),
            (hidden, inside),
            (vocabulary, hidden),
        ];
        let parts = shapes.map(|(outputs, inputs)| gemm::parts(few, outputs, inputs));
        let parts = parts.into_iter().max().unwrap_or(0);
        let attention = few * heads * splits(capacity);
        let mut bf16s = |elements: usize| alloc(rows * elements * 2);
        let (residual, normed, change) = (bf16s(hidden)?, bf16s(hidden)?, bf16s(hidden)?);
        let (qkv, queries) = (bf16s(qkv)?, bf16s(heads * head_dim)?);
        let attended = bf16s(heads * head_dim)?;
        let (gate_up, gated) = (bf16s(2 * inside)?, bf16s(inside)?);
        Ok(Scratch {
            residual,
            normed,
            change,
            qkv,
            queries,
            attended,
            gate_up,
            gated,
            gemm_parts: alloc(parts * 4)?,
            workspace: Workspace {
                parts: alloc(attention * head_dim * 4)?,
                states: alloc(attention * 2 * 4)?,
            },
            picked: alloc(few * hidden * 2)?,
            logits: alloc(few * vocabulary * 4)?,
        })
    }
}

/// Everything on the device that a pass needs, by address.
pub(crate) struct Forward {
    pub(crate) config: Config,
    pub(crate) heads: Heads,
    pub(crate) weights: Weights,
    /// `[capacity][wide head / 2]` pairs of cosine and sine in f32.
    pub(crate) turns: Address,
    /// Block 0 of the pool.
    pub(crate) pool: Address,
    pub(crate) scratch: Scratch,
    /// Blocks of the pool.
    pub(crate) blocks: usize,
    /// Which kernels passes of many rows are launched with: such as give the bits of the kernels for few rows.
    pub(crate) prompts: PromptKernels,
}

impl Forward {
    /// The layers over a pass's rows; what the last norm gives is in the scratch memory then.
    pub(crate) fn layers(&self, staged: &Staged) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        let rows = staged.rows;
        let Config { hidden_size: width, rms_norm_eps: epsilon, .. } = self.config;
        let Scratch { residual, normed, .. } = self.scratch;
        let embedding = Embedding {
            out: residual,
            table: self.weights.embedding,
            tokens: staged.tokens,
            rows,
            vocabulary: self.config.vocab_size,
            width,
        };
        launches.push(embedding.launch().map_err(refused)?);
        let weight = self.weights.layers[0].attention_norm;
        let norm = RmsNorm { out: normed, x: residual, weight, rows, width, epsilon };
        launches.push(norm.launch().map_err(refused)?);
        let add = |x, weight| {
            let add = AddRmsNorm { out: normed, residual, x, weight, rows, width, epsilon };
            add.launch().map_err(refused)
        };
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let attended = self.attend(&mut launches, index, staged)?;
            launches.push(add(attended, layer.feed_forward_norm)?);
            let inner = self.feed_forward(&mut launches, index, rows)?;
            let next = self.weights.layers.get(index + 1);
            let weight = next.map_or(self.weights.final_norm, |next| next.attention_norm);
            launches.push(add(inner, weight)?);
        }
        Ok(launches)
    }

    /// From what the norm gave to what attention adds to the residual stream.
    fn attend(&self, launches: &mut Vec<Launch>, index: usize, staged: &Staged) -> Result<Product> {
        let Config { hidden_size: width, heads, kv_heads, .. } = self.config;
        let head_dim = self.heads.wide;
        let Scratch { normed, qkv, queries, attended, workspace, .. } = self.scratch;
        let (layer, rows) = (&self.weights.layers[index], staged.rows);
        let outputs = (heads + 2 * kv_heads) * head_dim;
        let sizes = (outputs, width);
        let qkv = self.multiply(launches, (qkv, normed), layer.qkv, rows, sizes, true)?;
        let block = BlockShape::of(&self.config, self.heads);
        let keys = self.pool + (index * 2 * block.half_layer() * 2) as u64;
        let cache = Cache {
            keys,
            values: keys + (block.half_layer() * 2) as u64,
            block_stride: block.elements() as i64,
            head_stride: block.head_stride() as i64,
            scales: None,
        };
        let rope = RopeCache {
            queries,
            cache,
            qkv,
            turns: self.turns,
            positions: staged.positions,
            slots: staged.slots,
            rows,
            heads,
            kv_heads,
            head_dim,
        };
        launches.push(rope.launch().map_err(refused)?);
        let attention = |batch| PagedAttention {
            out: attended,
            queries,
            cache,
            batch,
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / (self.heads.narrow as f32).sqrt(),
        };
        if let Some(few) = staged.few {
            launches.extend(attention(few).decode(workspace).map_err(refused)?);
        }
        if let Some(many) = staged.many {
            let attention = attention(many);
            launches.push(
                match self.prompts {
                    PromptKernels::Hopper => attention.prefill_hopper(rows, self.blocks),
                    _ => attention.prefill(),
                }
                .map_err(refused)?,
            );
        }
        let inputs = heads * head_dim;
        self.multiply_for_norm(launches, attended, layer.output, rows, inputs)
    }

    /// From what the norm gave to what the feed-forward layer adds to the residual stream.
    fn feed_forward(
        &self,
        launches: &mut Vec<Launch>,
        index: usize,
        rows: usize,
    ) -> Result<Product> {
        let Config { hidden_size: inputs, intermediate_size: inside, .. } = self.config;
        let Scratch { normed, gate_up, gated, .. } = self.scratch;
        let layer = &self.weights.layers[index];
        if rows <= FEW_ROWS && GatedGemm::is_faster(inside, inputs) {
            let (x, weights) = (normed, layer.gate_up);
            let one = GatedGemm { out: gated, x, weights, rows, outputs: inside, inputs };
            launches.push(one.launch().map_err(refused)?);
        } else {
            let (out, sizes) = (gate_up, (2 * inside, inputs));
            self.multiply(launches, (out, normed), layer.gate_up, rows, sizes, false)?;
            let gate = SwiGlu { out: gated, x: gate_up, rows, width: inside };
            launches.push(gate.launch().map_err(refused)?);
        }
        self.multiply_for_norm(launches, gated, layer.down, rows, inside)
    }

    /// All of a pass: the layers, and the logits of its first `wanted` wanted rows, of which there are few.
    pub(crate) fn step(&self, staged: &Staged, wanted: usize) -> Result<Vec<Launch>> {
        let mut launches = self.layers(staged)?;
        launches.push(self.pick(staged, 0, wanted)?);
        launches.extend(self.head(wanted)?);
        Ok(launches)
    }

    /// Picks `count` rows of what the last norm gave, those from number `first` on among the wanted.
    pub(crate) fn pick(&self, staged: &Staged, first: usize, count: usize) -> Result<Launch> {
        // As rows of an embedding table are.
        let pick = Embedding {
            out: self.scratch.picked,
            table: self.scratch.normed,
            tokens: staged.wanted + (first * 4) as u64,
            rows: count,
            vocabulary: staged.rows,
            width: self.config.hidden_size,
        };
        pick.launch().map_err(refused)
    }

    /// The logits of the first `count` picked rows.
    pub(crate) fn head(&self, count: usize) -> Result<Vec<Launch>> {
        let Config { hidden_size: inputs, vocab_size: outputs, .. } = self.config;
        let Scratch { picked: x, logits: out, gemm_parts, .. } = self.scratch;
        let weights = gemm::Weights::Bf16(self.weights.head);
        let product = Gemm { out, x, weights, rows: count, outputs, inputs };
        product.decode_f32(gemm_parts).map_err(refused)
    }

    /// The likeliest tokens of the first `count` rows of logits, to be noted from `found` on.
    pub(crate) fn argmax(&self, found: Address, count: usize) -> Result<Launch> {
        let scores = self.scratch.logits;
        let vocabulary = self.config.vocab_size;
        Argmax { found, scores, rows: count, vocabulary }.launch().map_err(refused)
    }

    /// `out [rows][outputs]` from `x [rows][inputs]` and a matrix `[outputs][inputs]`. `may_stay_apart` says whether the kernel
    /// that reads it adds splits itself; those of few rows then stay apart until the next product, which comes after that kernel.
    fn multiply(
        &self,
        launches: &mut Vec<Launch>,
        (out, x): (Address, Address),
        weights: Address,
        rows: usize,
        (outputs, inputs): (usize, usize),
        may_stay_apart: bool,
    ) -> Result<Product> {
        let product = Gemm { out, x, weights: gemm::Weights::Bf16(weights), rows, outputs, inputs };
        let parts = self.scratch.gemm_parts;
        match (rows <= FEW_ROWS, may_stay_apart) {
            (true, true) => {
                let (launch, product) = product.decode_parts(parts).map_err(refused)?;
                launches.push(launch);
                return Ok(product);
            }
            (true, false) => launches.extend(product.decode(parts).map_err(refused)?),
            (false, _) => launches.push(
                match self.prompts {
                    PromptKernels::Hopper => product.prefill_hopper(),
                    _ => product.prefill(),
                }
                .map_err(refused)?,
            ),
        }
        Ok(Product::Whole(out))
    }

    /// What is added to the residual stream, `[rows][hidden]` from `x [rows][inputs]`: in splits where the norm adds them.
    fn multiply_for_norm(
        &self,
        launches: &mut Vec<Launch>,
        x: Address,
        weights: Address,
        rows: usize,
        inputs: usize,
    ) -> Result<Product> {
        let (out, width) = (self.scratch.change, self.config.hidden_size);
        let norm_adds = AddRmsNorm::adds(gemm::splits(inputs), width);
        self.multiply(launches, (out, x), weights, rows, (width, inputs), norm_adds)
    }
}
