//! The same checkpoint with more or fewer key-value heads.
//!
//! Multi-head attention has a key-value head for each query head, multi-query attention (Shazeer
//! 2019) one for all, grouped-query attention (Ainslie et al. 2023) something between. All three
//! are one rule: query head `h` reads key-value head `h / (heads / kv_heads)`. No key is ever
//! copied for it; the rule is in [`naive_decode::attend_span`], and the number of heads is in the
//! weights.
//!
//! To compare the three, equal models are wanted. A head can be repeated, which changes no logit
//! and costs cache, or several can be pooled into one, which saves cache and loses something.

use naive_decode::{Checkpoint, Config, Error, LoadOptions, Model, Pack, Result, Tensors, dense};

/// Loads a Llama-family checkpoint as if it had `kv_heads` key-value heads.
///
/// With more heads than the checkpoint has, each is repeated for the query heads that shared it:
/// the logits stay the same bits, and a token costs as many times the bytes. With fewer,
/// neighbouring heads are averaged, which is where Ainslie et al. (2023) start from; they then
/// train on, so that the model gets used to it. Without that, answers suffer.
///
/// # Errors
/// A number of heads that neither divides the checkpoint's nor is a multiple of it, or that does
/// not divide the query heads; or whatever is wrong with the checkpoint.
pub fn with_kv_heads(
    config: Config,
    checkpoint: &Checkpoint,
    kv_heads: usize,
    options: LoadOptions,
) -> Result<Model> {
    let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
    assemble(config, kv_heads, options, &tensors, &dense(options.isa))
}

/// As [`with_kv_heads`], from tensors of any origin, each matrix stored as `pack` decides. `config`
/// and `tensors` are those of the checkpoint as it is.
///
/// # Errors
/// As [`with_kv_heads`], and whatever `tensors` or `pack` refuses.
pub fn assemble(
    config: Config,
    kv_heads: usize,
    options: LoadOptions,
    tensors: Tensors,
    pack: Pack,
) -> Result<Model> {
    let Config { heads, kv_heads: held, head_dim, .. } = config;
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of the {heads} query heads");
        return Err(Error::invalid("number of key-value heads", kv_heads, expected));
    }
    if !held.is_multiple_of(kv_heads) && !kv_heads.is_multiple_of(held) {
        let expected = format!("a divisor or a multiple of the checkpoint's {held}");
        return Err(Error::invalid("number of key-value heads", kv_heads, expected));
    }
    let converted = |name: &str, shape: &[usize]| {
        let is_kv = [".k_proj.weight", ".v_proj.weight"].iter().any(|end| name.ends_with(end));
        match shape {
            // [kv_heads · D, hidden], one head's rows after another's
            [_, hidden] if is_kv => {
                let rows = tensors(name, &[held * head_dim, *hidden])?;
                let head = head_dim * hidden;
                Ok(match kv_heads >= held {
                    true => repeated(&rows, head, kv_heads / held),
                    false => pooled(&rows, head, held / kv_heads),
                })
            }
            _ => tensors(name, shape),
        }
    };
    Model::assemble(Config { kv_heads, ..config }, options, &converted, pack)
}

// ANCHOR: convert
/// Each head of `head` numbers `times` times in a row: its copies meet the query heads of its
/// group.
fn repeated(rows: &[f32], head: usize, times: usize) -> Vec<f32> {
    rows.chunks_exact(head).flat_map(|rows| rows.repeat(times)).collect()
}

/// The mean of every `together` neighbouring heads of `head` numbers.
fn pooled(rows: &[f32], head: usize, together: usize) -> Vec<f32> {
    let mean =
        |heads: &[f32], i: usize| heads[i..].iter().step_by(head).sum::<f32>() / together as f32;
    rows.chunks_exact(head * together)
        .flat_map(|heads| (0..head).map(move |i| mean(heads, i)))
        .collect()
}
// ANCHOR_END: convert

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_repeated_in_place_and_pooled_with_their_neighbours() {
        // Four heads of two numbers.
        let rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 10.0];
        assert_eq!(repeated(&rows[..4], 2, 2), [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        assert_eq!(pooled(&rows, 2, 2), [2.0, 3.0, 7.0, 8.0]);
        assert_eq!(pooled(&rows, 2, 4), [4.5, 5.5]);
        assert_eq!(pooled(&repeated(&rows, 2, 4), 2, 4), rows);
    }
}
