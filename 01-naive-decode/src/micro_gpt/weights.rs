//! Reading the names model: a config.json and a safetensors file.

use super::{Layer, Matrix, MicroGpt};
use crate::error::{Error, Result};
use safetensors::{Dtype, SafeTensors};
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
        Ok(())
    }
}

impl MicroGpt {
    /// Builds the model from the contents of its config.json and its safetensors file.
    ///
    /// # Errors
    /// If either is malformed, or a tensor is missing, not f32, or of another shape than the
    /// configuration implies.
    pub fn from_bytes(config: &[u8], weights: &[u8]) -> Result<Self> {
        let config: MicroConfig =
            serde_json::from_slice(config).map_err(|e| Error::json(CONFIG, &e))?;
        config.validate()?;
        let file = SafeTensors::deserialize(weights).map_err(|e| Error::file(WEIGHTS, e))?;
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
fn matrix(file: &SafeTensors, name: &str, rows: usize, columns: usize) -> Result<Matrix> {
    let expected = vec![rows, columns];
    let Ok(tensor) = file.tensor(name) else {
        let tensor = name.into();
        return Err(Error::MissingTensor { file: WEIGHTS.into(), tensor, expected });
    };
    if tensor.shape() != expected {
        let (tensor, found) = (name.into(), tensor.shape().to_vec());
        return Err(Error::TensorShape { file: WEIGHTS.into(), tensor, expected, found });
    }
    if tensor.dtype() != Dtype::F32 {
        let problem = format!("tensor `{name}` holds {:?}, expected F32", tensor.dtype());
        return Err(Error::file(WEIGHTS, problem));
    }
    let (numbers, _) = tensor.data().as_chunks::<4>();
    let row = |row: &[[u8; 4]]| row.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    Ok(numbers.chunks_exact(columns).map(row).collect())
}
