//! A model on a device, running passes.

use crate::gpu::Gpu;
use crate::sequences::Sequences;
use crate::staging::{Staged, Staging, most_bytes, stage};
use crate::weights::{Weights, check};
use cuda_kernels::Address;
use cuda_kernels::attention::{PagedAttention, Workspace, splits};
use cuda_kernels::cache::{BLOCK_TOKENS, Cache, RopeCache};
use cuda_kernels::gemm::{self, Gemm};
use cuda_kernels::rows::{AddRmsNorm, Embedding, RmsNorm, SwiGlu};
use naive_decode::{Config, Error, Executor, Logits, Pass, Result, Rope, Tensors};
use ndarray::Array2;

/// Up to so many rows, the kernels for few rows are launched. Which does not change a bit.
const FEW_ROWS: usize = 64;

/// How much a device is to hold beside the weights.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Sequences.
    pub sequences: usize,
    /// Tokens of keys and values in all; rounded up to whole blocks.
    pub tokens: usize,
    /// Most tokens of one sequence; at most the model's context.
    pub capacity: usize,
    /// Most rows of a pass.
    pub rows: usize,
}

/// Memory for what a pass computes on its way. `[rows]` is the room's.
struct Scratch {
    /// The pass's arrays.
    staged: Address,
    /// `[rows][hidden]`: the residual stream.
    residual: Address,
    /// `[rows][hidden]`: what a norm gives.
    normed: Address,
    /// `[rows][hidden]`: what is added to the residual stream next.
    change: Address,
    /// `[rows][heads + 2 * kv_heads][head_dim]`
    qkv: Address,
    /// `[rows][heads][head_dim]`
    queries: Address,
    /// `[rows][heads][head_dim]`
    attended: Address,
    /// `[rows][2 * intermediate]`
    gate_up: Address,
    /// `[rows][intermediate]`
    gated: Address,
    /// Splits of matrix products with few rows, in f32.
    gemm_parts: Address,
    /// Splits of attention with few rows.
    workspace: Workspace,
    /// `[few rows][vocab]` in f32.
    logits: Address,
}

/// A Llama on a device: weights, keys and values in a paged pool, and the kernels between them, in bfloat16.
pub struct CudaExecutor<G> {
    gpu: G,
    config: Config,
    room: Room,
    weights: Weights,
    /// `[capacity][head_dim / 2]` pairs of cosine and sine in f32.
    turns: Address,
    /// `[blocks][layers][keys, values][kv_heads][BLOCK_TOKENS][head_dim]`: a block is one piece.
    pool: Address,
    scratch: Scratch,
    sequences: Sequences,
}

impl<G: Gpu> CudaExecutor<G> {
    /// Brings a model's weights to the device and sets memory aside.
    ///
    /// # Errors
    /// If the kernels do not fit the model's sizes, a tensor is missing or has another shape, the room is empty or longer
    /// than the model's context, or the device has too little memory.
    pub fn new(
        mut gpu: G,
        config: Config,
        rope: &Rope,
        tensors: Tensors,
        room: Room,
    ) -> Result<Self> {
        check(&config)?;
        if room.sequences == 0 || room.tokens == 0 || room.rows == 0 {
            return Err(Error::invalid("room on the device", format!("{room:?}"), "none of it 0"));
        }
        if room.capacity > rope.positions() {
            let (capacity, asked) = (rope.positions(), room.capacity);
            return Err(Error::Capacity { what: "the model's context".into(), capacity, asked });
        }
        let weights = Weights::load(&mut gpu, &config, tensors)?;
        let turns = turns(rope, config.head_dim, room.capacity)?;
        let turns_address = gpu.alloc(size_of_val(&turns[..]))?;
        gpu.write(turns_address, bytemuck::cast_slice(&turns))?;
        let blocks = room.tokens.div_ceil(BLOCK_TOKENS);
        let pool = gpu.alloc(blocks * block_elements(&config) * 2)?;
        let scratch = Scratch::new(&mut gpu, &config, room)?;
        let sequences = Sequences::new(room.sequences, room.capacity, blocks);
        Ok(CudaExecutor {
            gpu,
            config,
            room,
            weights,
            turns: turns_address,
            pool,
            scratch,
            sequences,
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it was given room for.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Tokens that a sequence holds.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn len(&self, sequence: usize) -> usize {
        self.sequences.lengths().of(sequence)
    }

    /// Rolls a sequence back to its first `length` tokens.
    ///
    /// # Errors
    /// If it does not have that many, or there is no such sequence.
    pub fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.sequences.truncate(sequence, length)
    }

    /// Bytes of keys and values for each token.
    pub fn kv_bytes_per_token(&self) -> usize {
        block_elements(&self.config) * 2 / BLOCK_TOKENS
    }

    fn check(&self, pass: &Pass) -> Result<()> {
        if pass.rows() > self.room.rows {
            let expected = format!("at most {}, for which there is room", self.room.rows);
            return Err(Error::invalid("rows of a pass on CUDA", pass.rows(), expected));
        }
        for span in &pass.spans {
            let vocabulary = self.config.vocab_size;
            if let Some(token) = span.tokens.iter().find(|&&token| token as usize >= vocabulary) {
                let expected = format!("below the vocabulary's {vocabulary}");
                return Err(Error::invalid("token", token, expected));
            }
            let capacity = self.room.capacity;
            if let Some(&position) = span.positions.iter().find(|&&position| position >= capacity) {
                let what = "positions on the device".into();
                return Err(Error::Capacity { what, capacity, asked: position + 1 });
            }
            for (what, found) in
                [("positions", span.positions.len()), ("visible slots", span.sees.len())]
            {
                if found != span.rows() {
                    let expected = format!("{}, one for each row", span.rows());
                    return Err(Error::invalid(format!("{what} of a span"), found, expected));
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, pass: &Pass) -> Result<Logits> {
        let mut staging = Staging::default();
        let staged = stage(&mut staging, self.scratch.staged, pass, &self.sequences)?;
        self.gpu.write(self.scratch.staged, &staging.bytes)?;
        let (rows, wanted) = (pass.rows(), pass.wanted().len());
        let Config { hidden_size: width, rms_norm_eps: epsilon, .. } = self.config;
        let Scratch { residual, normed, change, .. } = self.scratch;
        let embedding = Embedding {
            out: residual,
            table: self.weights.embedding,
            tokens: staged.tokens,
            rows,
            vocabulary: self.config.vocab_size,
            width,
        };
        self.launch(embedding.launch())?;
        let weight = self.weights.layers[0].attention_norm;
        let norm = RmsNorm { out: normed, x: residual, weight, rows, width, epsilon };
        self.launch(norm.launch())?;
        for index in 0..self.weights.layers.len() {
            self.attend(index, rows, &staged)?;
            let layer = &self.weights.layers[index];
            let next = match self.weights.layers.get(index + 1) {
                Some(next) => next.attention_norm,
                None => self.weights.final_norm,
            };
            let (gate_up, down) = (layer.gate_up, layer.down);
            let add = |weight| AddRmsNorm {
                out: normed,
                residual,
                x: change,
                weight,
                rows,
                width,
                epsilon,
            };
            let after_attention = add(layer.feed_forward_norm);
            self.launch(after_attention.launch())?;
            let inside = self.config.intermediate_size;
            self.multiply(self.scratch.gate_up, normed, gate_up, rows, 2 * inside, width)?;
            let Scratch { gate_up: x, gated: out, .. } = self.scratch;
            self.launch(SwiGlu { out, x, rows, width: inside }.launch())?;
            self.multiply(change, out, down, rows, width, inside)?;
            self.launch(add(next).launch())?;
        }
        self.head(wanted, rows, &staged)
    }

    /// From what the norm gave to what attention adds to the residual stream.
    fn attend(&mut self, index: usize, rows: usize, staged: &Staged) -> Result<()> {
        let Config { hidden_size: width, heads, kv_heads, head_dim, .. } = self.config;
        let Scratch { normed, change, qkv, queries, attended, workspace, .. } = self.scratch;
        let layer = &self.weights.layers[index];
        let (qkv_weights, output) = (layer.qkv, layer.output);
        self.multiply(qkv, normed, qkv_weights, rows, (heads + 2 * kv_heads) * head_dim, width)?;
        let head_stride = BLOCK_TOKENS * head_dim;
        let of_layer = kv_heads * head_stride;
        let keys = self.pool + (index * 2 * of_layer * 2) as u64;
        let cache = Cache {
            keys,
            values: keys + (of_layer * 2) as u64,
            block_stride: block_elements(&self.config) as i64,
            head_stride: head_stride as i64,
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
        self.launch(rope.launch())?;
        let attention = PagedAttention {
            out: attended,
            queries,
            cache,
            batch: staged.batch,
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
        };
        if rows <= FEW_ROWS {
            for launch in attention.decode(workspace).map_err(device)? {
                self.gpu.launch(&launch)?;
            }
        } else {
            self.launch(attention.prefill())?;
        }
        self.multiply(change, attended, output, rows, width, heads * head_dim)
    }

    /// Logits of the wanted rows, [`FEW_ROWS`] at a time.
    fn head(&mut self, wanted: usize, rows: usize, staged: &Staged) -> Result<Logits> {
        let Config { hidden_size: inputs, vocab_size: outputs, .. } = self.config;
        let mut logits = Array2::zeros((wanted, outputs));
        let Scratch { normed, change: x, gemm_parts, logits: out, .. } = self.scratch;
        let numbers = logits.as_slice_mut().expect("it was just made");
        for (i, numbers) in numbers.chunks_mut(FEW_ROWS * outputs).enumerate() {
            let count = numbers.len() / outputs;
            // Rows of what the last norm gave, picked as rows of an embedding table are.
            let tokens = staged.wanted + (i * FEW_ROWS * 4) as u64;
            let pick = Embedding {
                out: x,
                table: normed,
                tokens,
                rows: count,
                vocabulary: rows,
                width: inputs,
            };
            self.launch(pick.launch())?;
            let weights = gemm::Weights::Bf16(self.weights.head);
            let product = Gemm { out, x, weights, rows: count, outputs, inputs };
            for launch in product.decode_f32(gemm_parts).map_err(device)? {
                self.gpu.launch(&launch)?;
            }
            self.gpu.read(out, bytemuck::cast_slice_mut(numbers))?;
        }
        Ok(logits)
    }

    fn multiply(
        &mut self,
        out: Address,
        x: Address,
        weights: Address,
        rows: usize,
        outputs: usize,
        inputs: usize,
    ) -> Result<()> {
        let product = Gemm { out, x, weights: gemm::Weights::Bf16(weights), rows, outputs, inputs };
        if rows > FEW_ROWS {
            return self.launch(product.prefill());
        }
        for launch in product.decode(self.scratch.gemm_parts).map_err(device)? {
            self.gpu.launch(&launch)?;
        }
        Ok(())
    }

    fn launch(
        &mut self,
        launch: std::result::Result<cuda_kernels::Launch, cuda_kernels::Error>,
    ) -> Result<()> {
        self.gpu.launch(&launch.map_err(device)?)
    }
}

impl<G: Gpu> Executor for CudaExecutor<G> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        self.check(pass)?;
        if pass.rows() == 0 {
            return Ok(Array2::zeros((0, self.config.vocab_size)));
        }
        self.sequences.grow(pass)?;
        let logits = self.run(pass);
        match &logits {
            Ok(_) => self.sequences.commit(pass),
            Err(_) => self.sequences.undo(pass),
        }
        logits
    }
}

impl Scratch {
    fn new<G: Gpu>(gpu: &mut G, config: &Config, room: Room) -> Result<Self> {
        let Config { hidden_size: hidden, heads, kv_heads, head_dim, .. } = *config;
        let (inside, vocabulary) = (config.intermediate_size, config.vocab_size);
        let (rows, few) = (room.rows, room.rows.min(FEW_ROWS));
        let qkv = (heads + 2 * kv_heads) * head_dim;
        let shapes = [
            (qkv, hidden),
            (hidden, heads * head_dim),
            (2 * inside, hidden),
            (hidden, inside),
            (vocabulary, hidden),
        ];
        let parts = shapes.map(|(outputs, inputs)| gemm::splits(inputs) * outputs);
        let parts = parts.into_iter().max().unwrap_or(0);
        let attention = few * heads * splits(room.capacity);
        let mut bf16s = |elements: usize| gpu.alloc(rows * elements * 2);
        let (residual, normed, change) = (bf16s(hidden)?, bf16s(hidden)?, bf16s(hidden)?);
        let (qkv, queries) = (bf16s(qkv)?, bf16s(heads * head_dim)?);
        let attended = bf16s(heads * head_dim)?;
        let (gate_up, gated) = (bf16s(2 * inside)?, bf16s(inside)?);
        Ok(Scratch {
            staged: gpu.alloc(most_bytes(rows, room.sequences, room.capacity))?,
            residual,
            normed,
            change,
            qkv,
            queries,
            attended,
            gate_up,
            gated,
            gemm_parts: gpu.alloc(few * parts * 4)?,
            workspace: Workspace {
                parts: gpu.alloc(attention * head_dim * 4)?,
                states: gpu.alloc(attention * 2 * 4)?,
            },
            logits: gpu.alloc(few * vocabulary * 4)?,
        })
    }
}

/// Elements of a block: all layers' keys and values of [`BLOCK_TOKENS`] tokens.
fn block_elements(config: &Config) -> usize {
    config.layers * 2 * config.kv_heads * BLOCK_TOKENS * config.head_dim
}

/// Cosines and sines, `[positions][head_dim / 2][2]`: what becomes of pairs (1, 0) when they are turned.
fn turns(rope: &Rope, head_dim: usize, positions: usize) -> Result<Vec<f32>> {
    let half = head_dim / 2;
    let mut all = Vec::with_capacity(positions * head_dim);
    for position in 0..positions {
        let mut head = vec![1.0; half];
        head.resize(head_dim, 0.0);
        rope.rotate(&mut head, position)?;
        all.extend((0..half).flat_map(|pair| [head[pair], head[pair + half]]));
    }
    Ok(all)
}

/// A launch that does not fit is a pass that does not.
fn device(error: cuda_kernels::Error) -> Error {
    Error::file("CUDA", error)
}
