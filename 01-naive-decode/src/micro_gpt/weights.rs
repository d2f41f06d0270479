//! Reading the names model: a config.json and a safetensors file.

use super::{Layer, Matrix, MicroGpt};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::json::read_json;
use serde::Deserialize;

const CONFIG: &str = "config.json of the names model";
const WEIGHTS: &str = "weights of the names model";

/// Sizes of a [`MicroGpt`] and its letters, as its config.json gives them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct MicroConfig {
    /// Width of every vector between the layers.
    pub n_embd: usize,
    /// Number of layers.
    pub n_layer: usize,
    /// Attention heads; they share out the `n_embd` columns evenly.
    pub n_head: usize,
    /// Longest sequence, in tokens.
    pub block_size: usize,
    /// Tokens in all: the letters and one that begins and ends a name.
    pub vocab_size: usize,
    /// The letters, in order of their tokens.
    pub characters: String,
    /// The token that begins and ends a name.
    pub bos_token_id: u32,
    /// Keeps the norm of a zero vector finite.
    pub rms_norm_eps: f32,
}

impl MicroConfig {
    /// The tokens of some letters, or nothing if one is not among the model's.
    pub fn encode(&self, letters: &str) -> Option<Vec<u32>> {
        let token = |letter| self.characters.chars().position(|c| c == letter);
        letters.chars().map(|letter| token(letter).map(|id| id as u32)).collect()
    }

    /// The letter of a token; nothing for the token that ends a name.
    pub fn letter(&self, token: u32) -> Option<char> {
        self.characters.chars().nth(token as usize)
    }

    fn validate(&self) -> Result<()> {
        let refuse = |what: &str, found: String, expected: String| {
            Err(Error::file(CONFIG, Error::invalid(what, found, expected)))
        };
        for (what, size) in [
            ("n_embd", self.n_embd),
            ("n_layer", self.n_layer),
            ("n_head", self.n_head),
            ("block_size", self.block_size),
        ] {
            if !(1..=1 << 16).contains(&size) {
                return refuse(what, size.to_string(), "from 1 to 65536".into());
            }
        }
        if !self.n_embd.is_multiple_of(self.n_head) {
            let expected = format!("a multiple of n_head = {}", self.n_head);
            return refuse("n_embd", self.n_embd.to_string(), expected);
        }
        let letters = self.characters.chars().count();
        if self.vocab_size != letters + 1 {
            let expected = format!("{}: {letters} characters and one token more", letters + 1);
            return refuse("vocab_size", self.vocab_size.to_string(), expected);
        }
        if self.bos_token_id as usize != letters {
            let expected = format!("{letters}, the token after the characters");
            return refuse("bos_token_id", self.bos_token_id.to_string(), expected);
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            return refuse(
                "rms_norm_eps",
                self.rms_norm_eps.to_string(),
                "a positive number".into(),
            );
        }
        Ok(())
    }
}

impl MicroGpt {
    /// Builds the model from the contents of its config.json and its safetensors file.
    ///
    /// # Errors
    /// If either is malformed, or a tensor is missing, of another shape than the configuration
    /// implies, or none of finite numbers.
    pub fn from_bytes(config: &[u8], weights: &'static [u8]) -> Result<Self> {
        let config: MicroConfig = read_json(CONFIG, config)?;
        config.validate()?;
        let file = Checkpoint::embedded(WEIGHTS, weights)?;
        let (vocab, block, d) = (config.vocab_size, config.block_size, config.n_embd);
        let layers = (0..config.n_layer).map(|i| {
            let read = |name: &str, rows, columns| {
                matrix(&file, &format!("layer{i}.{name}"), rows, columns)
            };
            Ok(Layer {
                attn_wq: read("attn_wq", d, d)?,
                attn_wk: read("attn_wk", d, d)?,
                attn_wv: read("attn_wv", d, d)?,
                attn_wo: read("attn_wo", d, d)?,
                mlp_fc1: read("mlp_fc1", 4 * d, d)?,
                mlp_fc2: read("mlp_fc2", d, 4 * d)?,
            })
        });
        Ok(MicroGpt {
            layers: layers.collect::<Result<_>>()?,
            wte: matrix(&file, "wte", vocab, d)?,
            wpe: matrix(&file, "wpe", block, d)?,
            lm_head: matrix(&file, "lm_head", vocab, d)?,
            config,
        })
    }
}

/// One tensor as a list of rows.
fn matrix(weights: &Checkpoint, name: &str, rows: usize, columns: usize) -> Result<Matrix> {
    let numbers = weights.tensor(name, &[rows, columns])?;
    Ok(numbers.chunks_exact(columns).map(<[f32]>::to_vec).collect())
}
