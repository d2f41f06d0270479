//! A Llama's weights on the device, in bfloat16.

use crate::shared::failed;
use cuda_kernels::{Address, Gpu};
use half::bf16;
use naive_decode::{Config, Error, Result, Tensors};

/// One block's weights; matrices are `[outputs][inputs]`.
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
    /// Uploads what `tensors` gives, each number rounded to bfloat16.
    pub(crate) fn load<G: Gpu>(gpu: &mut G, config: &Config, tensors: Tensors) -> Result<Self> {
        let Config { hidden_size: hidden, heads, kv_heads, head_dim, .. } = *config;
        let (inside, table) = (config.intermediate_size, [config.vocab_size, hidden]);
        let embedding = upload(gpu, tensors, &[("model.embed_tokens.weight", &table)])?;
        let layer = |gpu: &mut G, index: usize| {
            let mut load = |parts: &[(&str, &[usize])]| {
                let names: Vec<String> = parts
                    .iter()
                    .map(|(part, _)| format!("model.layers.{index}.{part}.weight"))
                    .collect();
                let parts: Vec<(&str, &[usize])> = names
                    .iter()
                    .zip(parts)
                    .map(|(name, (_, shape))| (name.as_str(), *shape))
                    .collect();
                upload(gpu, tensors, &parts)
            };
            let [queries, keys] = [heads, kv_heads].map(|heads| [heads * head_dim, hidden]);
            Ok(Layer {
                attention_norm: load(&[("input_layernorm", &[hidden])])?,
                qkv: load(&[
                    ("self_attn.q_proj", &queries),
                    ("self_attn.k_proj", &keys),
                    ("self_attn.v_proj", &keys),
                ])?,
                output: load(&[("self_attn.o_proj", &[hidden, heads * head_dim])])?,
                feed_forward_norm: load(&[("post_attention_layernorm", &[hidden])])?,
                gate_up: load(&[
                    ("mlp.gate_proj", &[inside, hidden]),
                    ("mlp.up_proj", &[inside, hidden]),
                ])?,
                down: load(&[("mlp.down_proj", &[hidden, inside])])?,
            })
        };
        let layers = (0..config.layers).map(|index| layer(gpu, index)).collect::<Result<_>>()?;
        let final_norm = upload(gpu, tensors, &[("model.norm.weight", &[hidden])])?;
        let head = match config.tied_head {
            true => embedding,
            false => upload(gpu, tensors, &[("lm_head.weight", &table)])?,
        };
        Ok(Weights { embedding, layers, final_norm, head })
    }
}

/// Tensors one after the other.
fn upload<G: Gpu>(gpu: &mut G, tensors: Tensors, parts: &[(&str, &[usize])]) -> Result<Address> {
    let mut bits: Vec<u16> = Vec::new();
    for (name, shape) in parts {
        let numbers = tensors(name, shape)?;
        bits.extend(numbers.into_iter().map(|number| bf16::from_f32(number).to_bits()));
    }
    let address = gpu.alloc(size_of_val(&bits[..])).map_err(failed)?;
    gpu.write(address, bytemuck::cast_slice(&bits)).map_err(failed)?;
    Ok(address)
}

/// Whether the kernels fit the model.
pub(crate) fn check(config: &Config) -> Result<()> {
    if ![64, 128].contains(&config.head_dim) {
        return Err(Error::invalid("head_dim for CUDA", config.head_dim, "64 or 128"));
    }
    let widths = [
        ("hidden_size", config.hidden_size),
        ("intermediate_size", config.intermediate_size),
        ("vocab_size", config.vocab_size),
    ];
    match widths.into_iter().find(|(_, width)| !width.is_multiple_of(8)) {
        Some((what, width)) => {
            Err(Error::invalid(format!("{what} for CUDA"), width, "a multiple of 8"))
        }
        None => Ok(()),
    }
}
