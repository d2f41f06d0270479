//! A whole language model in plain lists: Karpathy's microGPT, which makes up names.
//!
//! It reads a name letter by letter and scores every letter that could come next. There is nothing
//! here but `Vec<f32>` and loops, and still it has all that a large model has: embeddings,
//! attention over what came before, a feed-forward block, a score per token. Begin here.
//!
//! The same model runs in two ways. [`MicroGpt::forward`] is told the whole name so far and works
//! everything out afresh. [`MicroGpt::step`] is told only the newest letter, and remembers the keys
//! and values of the others in lists that grow: a *key-value cache*, the subject of this project.
//! Both do the same arithmetic in the same order, so they agree to the last bit.

mod weights;

pub use weights::MicroConfig;

use crate::error::{Error, Result};

/// A matrix as a list of rows: `matrix[output][input]`.
type Matrix = Vec<Vec<f32>>;

/// What a layer remembers: `lists[layer][position]` is one key, or one value, `[n_embd]`.
pub type Lists = Vec<Vec<Vec<f32>>>;

/// The names model. Token `i` is the `i`-th letter; one more token begins and ends each name.
#[derive(Debug, Clone)]
pub struct MicroGpt {
    config: MicroConfig,
    wte: Matrix,     // token embeddings    [vocab_size][n_embd]
    wpe: Matrix,     // position embeddings [block_size][n_embd]
    lm_head: Matrix, // a score per token   [vocab_size][n_embd]
    layers: Vec<Layer>,
}

#[derive(Debug, Clone)]
struct Layer {
    attn_wq: Matrix, // [n_embd][n_embd]
    attn_wk: Matrix, // [n_embd][n_embd]
    attn_wv: Matrix, // [n_embd][n_embd]
    attn_wo: Matrix, // [n_embd][n_embd]
    mlp_fc1: Matrix, // [4 n_embd][n_embd]
    mlp_fc2: Matrix, // [n_embd][4 n_embd]
}

impl MicroGpt {
    /// Sizes, letters and the beginning-and-end token.
    pub fn config(&self) -> &MicroConfig {
        &self.config
    }

    /// Scores for the token after `tokens`, `[vocab_size]`, from nothing but the tokens.
    ///
    /// To make a name of n letters this way, and find that it ends there, costs 1 + 2 + … + (n + 1)
    /// positions of work.
    ///
    /// # Errors
    /// If `tokens` is empty, longer than the block, or holds an id outside the vocabulary.
    // ANCHOR: forward
    pub fn forward(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let mut rows = Vec::new(); // [positions][n_embd]
        for (position, &token) in tokens.iter().enumerate() {
            rows.push(self.embed(token, position)?);
        }
        for layer in &self.layers {
            let normed: Matrix = rows.iter().map(|x| self.rmsnorm(x)).collect();
            let all = |w: &Matrix| normed.iter().map(|h| linear(h, w)).collect::<Matrix>();
            let (queries, keys, values) =
                (all(&layer.attn_wq), all(&layer.attn_wk), all(&layer.attn_wv));
            for (t, x) in rows.iter_mut().enumerate() {
                // Position t sees itself and the past. That is the whole causal mask.
                let seen = self.attend(&queries[t], &keys[..=t], &values[..=t]);
                *x = self.finish(layer, x, &seen);
            }
        }
        let last = rows.last().ok_or_else(|| Error::invalid("prompt", "empty", "a token"))?;
        Ok(linear(last, &self.lm_head))
    }
    // ANCHOR_END: forward

    /// The lists that [`MicroGpt::step`] begins a name with: one empty list per layer.
    pub fn empty_lists(&self) -> Lists {
        vec![Vec::new(); self.layers.len()]
    }

    /// Scores for the token after `token`, `[vocab_size]`, given what the lists remember.
    ///
    /// Appends this token's key and value to each layer's lists. Its query is used once and
    /// dropped: no later position ever asks for it.
    ///
    /// # Errors
    /// If `position` is past the block, if `token` is outside the vocabulary, or if the lists do
    /// not hold exactly the `position` tokens before this one.
    pub fn step(
        &self,
        token: u32,
        position: usize,
        keys: &mut Lists,
        values: &mut Lists,
    ) -> Result<Vec<f32>> {
        self.check_lists(position, keys)?;
        self.check_lists(position, values)?;
        let mut x = self.embed(token, position)?; // [n_embd]
        for (li, layer) in self.layers.iter().enumerate() {
            let normed = self.rmsnorm(&x);
            let query = linear(&normed, &layer.attn_wq);
            keys[li].push(linear(&normed, &layer.attn_wk));
            values[li].push(linear(&normed, &layer.attn_wv));
            // No mask: the future is not in the lists yet.
            let seen = self.attend(&query, &keys[li], &values[li]);
            x = self.finish(layer, &x, &seen);
        }
        Ok(linear(&x, &self.lm_head))
    }

    // ANCHOR: embed
    /// What a token is, plus where it stands.
    fn embed(&self, token: u32, position: usize) -> Result<Vec<f32>> {
        let token_row = self.wte.get(token as usize).ok_or_else(|| {
            Error::invalid("token", token, format!("an id below {}", self.wte.len()))
        })?;
        let position_row = self.wpe.get(position).ok_or_else(|| Error::Capacity {
            what: "the names model's block".into(),
            capacity: self.wpe.len(),
            asked: position + 1,
        })?;
        Ok(self.rmsnorm(&add(token_row, position_row)))
    }
    // ANCHOR_END: embed

    // ANCHOR: attend
    /// Each head compares its part of the query with every key, and mixes the values accordingly.
    fn attend(&self, query: &[f32], keys: &[Vec<f32>], values: &[Vec<f32>]) -> Vec<f32> {
        let head_dim = self.config.n_embd / self.config.n_head;
        let mut out = vec![0.0; self.config.n_embd];
        for head in 0..self.config.n_head {
            let part = head * head_dim..(head + 1) * head_dim;
            let scale = (head_dim as f32).sqrt();
            let scores: Vec<f32> =
                keys.iter().map(|k| dot(&query[part.clone()], &k[part.clone()]) / scale).collect();
            for (weight, value) in softmax(&scores).iter().zip(values) {
                for (o, v) in out[part.clone()].iter_mut().zip(&value[part.clone()]) {
                    *o += weight * v;
                }
            }
        }
        out
    }
    // ANCHOR_END: attend

    // ANCHOR: finish
    /// The rest of a layer: what was seen is added to `x`, then what the feed-forward makes of it.
    fn finish(&self, layer: &Layer, x: &[f32], seen: &[f32]) -> Vec<f32> {
        let x = add(x, &linear(seen, &layer.attn_wo));
        let mut hidden = linear(&self.rmsnorm(&x), &layer.mlp_fc1); // [4 n_embd]
        hidden.iter_mut().for_each(|h| *h = h.max(0.0));
        add(&x, &linear(&hidden, &layer.mlp_fc2))
    }
    // ANCHOR_END: finish

    /// Scales a vector to a root mean square of 1.
    fn rmsnorm(&self, x: &[f32]) -> Vec<f32> {
        let mean_square = dot(x, x) / x.len() as f32;
        let scale = 1.0 / (mean_square + self.config.rms_norm_eps).sqrt();
        x.iter().map(|v| v * scale).collect()
    }

    fn check_lists(&self, position: usize, lists: &Lists) -> Result<()> {
        let found: Vec<usize> = lists.iter().map(Vec::len).collect();
        let expected = vec![position; self.layers.len()];
        if found == expected {
            return Ok(());
        }
        let expected = format!("{expected:?}: every earlier position, in every layer");
        Err(Error::invalid("length of the key-value lists", format!("{found:?}"), expected))
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// One output per row of the matrix.
fn linear(x: &[f32], matrix: &Matrix) -> Vec<f32> {
    matrix.iter().map(|row| dot(row, x)).collect()
}

// ANCHOR: softmax
/// Scores to shares that sum to 1. Taking the largest off first keeps `exp` from overflowing.
fn softmax(scores: &[f32]) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|s| libm::expf(s - largest)).collect();
    let total: f32 = weights.iter().sum();
    weights.iter().map(|w| w / total).collect()
}
// ANCHOR_END: softmax

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector whose first head is this and whose other heads are zeros.
    fn first_head(numbers: [f32; 4]) -> Vec<f32> {
        let mut vector = numbers.to_vec();
        vector.resize(16, 0.0);
        vector
    }

    #[test]
    fn attention_by_hand() {
        let model =
            MicroGpt::from_bytes(embedded_models::NAMES.config, embedded_models::NAMES.weights)
                .unwrap();
        let query = first_head([1.0, 0.0, 2.0, 1.0]);
        let keys =
            [[2.0, 1.0, 0.0, 2.0], [0.0, 3.0, 1.0, -2.0], [0.0, 1.0, 1.0, 0.0]].map(first_head);
        let values =
            [[1.0, 0.0, 0.0, 2.0], [0.0, 4.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0]].map(first_head);
        let scores = keys.each_ref().map(|key| dot(&query, key) / 2.0);
        assert_eq!(scores, [2.0, 0.0, 1.0]);
        let percent: Vec<f32> = softmax(&scores).iter().map(|w| (100.0 * w).round()).collect();
        assert_eq!(percent, [67.0, 9.0, 24.0]);
        let mixed = model.attend(&query, &keys, &values);
        let mixed: Vec<f32> = mixed.iter().map(|x| (100.0 * x).round() / 100.0).collect();
        assert_eq!(mixed[..4], [0.67, 0.36, 0.98, 1.33]);
    }
}
