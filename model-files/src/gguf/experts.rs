//! Experts, and DeepSeek's tensors, as they were before llama.cpp's conversion.
//!
//! Conversion lays the experts of a block on top of each other, one tensor for all. It also cuts
//! `kv_b_proj`, which makes every head's keys and values from the latent, into the part for keys,
//! transposed, and the part for values. Files from before it did so have the matrix whole.

use crate::blocks::{BlockType, RawTensor, dequantise};
use std::borrow::Cow;

/// Where tensors are found by the name that the file has for them.
pub(super) type Stored<'s, 'f> = &'s dyn Fn(&str) -> Option<RawTensor<'f>>;

/// The tensor that Hugging Face calls `name`, made from what the file has.
pub(super) fn derived<'f>(name: &str, stored: Stored<'_, 'f>) -> Option<RawTensor<'f>> {
    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    if part == "self_attn.kv_b_proj.weight" {
        let piece = |piece: &str| stored(&format!("blk.{layer}.{piece}.weight"));
        return joined(&piece("attn_k_b")?, &piece("attn_v_b")?);
    }
    let (number, matrix) = part.strip_prefix("mlp.experts.")?.split_once('.')?;
    let matrix = matrix.strip_suffix("_proj.weight")?;
    let all = stored(&format!("blk.{layer}.ffn_{matrix}_exps.weight"))?;
    expert(number.parse().ok()?, all)
}

/// One of the experts `[experts, outputs, inputs]`.
fn expert(number: usize, all: RawTensor) -> Option<RawTensor> {
    let [experts, outputs, inputs] = *all.shape.as_slice() else { return None };
    if number >= experts || !all.bytes.len().is_multiple_of(experts) {
        return None;
    }
    let length = all.bytes.len() / experts;
    let own = number * length..(number + 1) * length;
    let bytes = match all.bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[own]),
        Cow::Owned(bytes) => Cow::Owned(bytes[own].to_vec()),
    };
    Some(RawTensor { kind: all.kind, shape: vec![outputs, inputs], bytes })
}

/// `k [heads, latent, nope]` and `v [heads, value, latent]` as `[heads · (nope + value), latent]`,
/// in f32: a block of quantised numbers cannot be transposed.
fn joined<'f>(k: &RawTensor, v: &RawTensor) -> Option<RawTensor<'f>> {
    let [heads, latent, nope] = *k.shape.as_slice() else { return None };
    let [other_heads, value, other_latent] = *v.shape.as_slice() else { return None };
    if (heads, latent) != (other_heads, other_latent) || heads * latent * nope * value == 0 {
        return None;
    }
    let (k, v) = (dequantise(k.kind, &k.bytes), dequantise(v.kind, &v.bytes));
    let mut bytes = Vec::with_capacity((k.len() + v.len()) * size_of::<f32>());
    for (k, v) in k.chunks_exact(latent * nope).zip(v.chunks_exact(value * latent)) {
        let keys = (0..nope).flat_map(|row| k[row..].iter().step_by(nope));
        bytes.extend(keys.chain(v).flat_map(|number| number.to_le_bytes()));
    }
    let shape = vec![heads * (nope + value), latent];
    Some(RawTensor { kind: BlockType::F32, shape, bytes: Cow::Owned(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(shape: [usize; 3], first: usize) -> RawTensor<'static> {
        let count = shape.iter().product::<usize>();
        let bytes = (first..first + count).flat_map(|i| (i as f32).to_le_bytes()).collect();
        RawTensor { kind: BlockType::F32, shape: shape.to_vec(), bytes: Cow::Owned(bytes) }
    }

    #[test]
    fn keys_are_turned_back_and_stand_before_values_head_by_head() {
        // Two heads, a latent of 3, 2 numbers of a key, 1 of a value.
        let joined = joined(&numbers([2, 3, 2], 0), &numbers([2, 1, 3], 100)).unwrap();
        assert_eq!(joined.shape, [6, 3]);
        assert_eq!(
            dequantise(joined.kind, &joined.bytes),
            [
                0.0, 2.0, 4.0, 1.0, 3.0, 5.0, 100.0, 101.0, 102.0, //
                6.0, 8.0, 10.0, 7.0, 9.0, 11.0, 103.0, 104.0, 105.0,
            ]
        );
    }

    #[test]
    fn an_expert_is_a_slice_and_there_is_none_past_the_last() {
        let stored =
            |name: &str| (name == "blk.4.ffn_up_exps.weight").then(|| numbers([3, 2, 2], 0));
        let read = |number: usize| {
            let name = format!("model.layers.4.mlp.experts.{number}.up_proj.weight");
            derived(&name, &stored).map(|raw| dequantise(raw.kind, &raw.bytes))
        };
        assert_eq!(read(1).unwrap(), [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(read(3), None);
        assert!(derived("model.layers.5.mlp.experts.0.up_proj.weight", &stored).is_none());
    }
}
