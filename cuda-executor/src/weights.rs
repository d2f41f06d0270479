//! A Llama's weights on the device, in bfloat16.

use crate::heads::Heads;
use crate::memory::BlockShape;
use crate::shared::failed;
use cuda_kernels::cache::BLOCK_TOKENS;
use cuda_kernels::{Address, Gpu};
use half::bf16;
use naive_decode::{Config, Error, Result, Tensors};

/// One block's weights; matrices are `[outputs][inputs]`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Layer {
    /// `[hidden]`
    pub(crate) attention_norm: Address,
    /// `[(heads + 2 * kv_heads) * head_dim][hidden]`: queries, keys, values.
    pub(crate) qkv: Address,
    /// `[hidden][heads * head_dim]`
    pub(crate) output: Address,
    /// `[hidden]`
    pub(crate) feed_forward_norm: Address,
    /// `[2 * intermediate][hidden]`: gate, then up.
    pub(crate) gate_up: Address,
    /// `[hidden][intermediate]`
    pub(crate) down: Address,
}

/// All of a model's weights.
pub(crate) struct Weights {
    /// `[vocab][hidden]`
    pub(crate) embedding: Address,
    pub(crate) layers: Vec<Layer>,
    /// `[hidden]`
    pub(crate) final_norm: Address,
    /// `[vocab][hidden]`; the embedding if the two are tied.
    pub(crate) head: Address,
}

impl Weights {
    /// A model's weights that are on no device: every address is 0.
    pub(crate) fn nowhere(config: &Config) -> Self {
        let layers = vec![Layer::default(); config.layers];
        Weights { embedding: 0, layers, final_norm: 0, head: 0 }
    }

    /// Bytes that a model's weights take.
    pub(crate) fn bytes(config: &Config, heads: Heads) -> usize {
        let Config { hidden_size: hidden, intermediate_size: inside, .. } = *config;
        let table = config.vocab_size * hidden;
        let attention = (2 * config.heads + 2 * config.kv_heads) * heads.wide * hidden;
        let layer = attention + 3 * inside * hidden + 2 * hidden;
        let tables = if config.tied_head { table } else { 2 * table };
        (tables + config.layers * layer + hidden) * size_of::<bf16>()
    }

    /// Uploads what `tensors` gives, each number rounded to bfloat16, heads in the kernels' width.
    pub(crate) fn load<G: Gpu>(
        gpu: &mut G,
        config: &Config,
        heads: Heads,
        tensors: Tensors,
    ) -> Result<Self> {
        let hidden = config.hidden_size;
        let (inside, table) = (config.intermediate_size, [config.vocab_size, hidden]);
        let embedding = upload(gpu, &tensors("model.embed_tokens.weight", &table)?)?;
        let layer = |gpu: &mut G, index: usize| {
            let tensor = |part: &str, shape: &[usize]| {
                tensors(&format!("model.layers.{index}.{part}.weight"), shape)
            };
            // Queries, keys and values, one matrix after the other.
            let mut qkv = Vec::new();
            for (part, count) in [
                ("self_attn.q_proj", config.heads),
                ("self_attn.k_proj", config.kv_heads),
                ("self_attn.v_proj", config.kv_heads),
            ] {
                let matrix = tensor(part, &[count * heads.narrow, hidden])?;
                qkv.extend(heads.outputs(matrix, hidden));
            }
            let output = tensor("self_attn.o_proj", &[hidden, config.heads * heads.narrow])?;
            let mut gate_up = tensor("mlp.gate_proj", &[inside, hidden])?;
            gate_up.extend(tensor("mlp.up_proj", &[inside, hidden])?);
            Ok(Layer {
                attention_norm: upload(gpu, &tensor("input_layernorm", &[hidden])?)?,
                qkv: upload(gpu, &qkv)?,
                output: upload(gpu, &heads.inputs(output, config.heads))?,
                feed_forward_norm: upload(gpu, &tensor("post_attention_layernorm", &[hidden])?)?,
                gate_up: upload(gpu, &gate_up)?,
                down: upload(gpu, &tensor("mlp.down_proj", &[hidden, inside])?)?,
            })
        };
        let layers = (0..config.layers).map(|index| layer(gpu, index)).collect::<Result<_>>()?;
        let final_norm = upload(gpu, &tensors("model.norm.weight", &[hidden])?)?;
        let head = match config.tied_head {
            true => embedding,
            false => upload(gpu, &tensors("lm_head.weight", &table)?)?,
        };
        Ok(Weights { embedding, layers, final_norm, head })
    }
}

/// Numbers in memory of their own.
fn upload<G: Gpu>(gpu: &mut G, numbers: &[f32]) -> Result<Address> {
    let bits: Vec<u16> = numbers.iter().map(|&number| bf16::from_f32(number).to_bits()).collect();
    let address = gpu.alloc(size_of_val(&bits[..])).map_err(failed)?;
    gpu.write(address, bytemuck::cast_slice(&bits)).map_err(failed)?;
    Ok(address)
}

/// Whether the kernels fit a Llama of this shape, and in which heads.
///
/// # Errors
/// Names what does not fit.
pub(crate) fn check(config: &Config) -> Result<Heads> {
    let widths = [
        ("hidden_size", config.hidden_size),
        ("intermediate_size", config.intermediate_size),
        ("vocab_size", config.vocab_size),
    ];
    match widths.into_iter().find(|(_, width)| !width.is_multiple_of(8)) {
        Some((what, width)) => {
            Err(Error::invalid(format!("{what} for CUDA"), width, "a multiple of 8"))
        }
        None => Heads::of(config.head_dim),
    }
}

/// Bytes of keys and values for each token of a Llama of this shape, for whoever has to decide before there is a device.
///
/// # Errors
/// If the kernels do not fit the model; names what does not.
pub fn kv_bytes_per_token(config: &Config) -> Result<usize> {
    let heads = check(config)?;
    Ok(BlockShape::of(config, heads).bytes() / BLOCK_TOKENS)
}
