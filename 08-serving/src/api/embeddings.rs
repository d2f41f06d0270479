//! Embeddings, as they are asked for and answered.

use super::completions::{Asked, asked};
use super::messages::Prompt;
use super::{ApiError, MOST_INPUTS};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use naive_decode::Tokenizer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The body of `POST /v1/embeddings`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct EmbeddingRequest {
    /// Which model; there is one.
    pub model: Option<String>,
    /// What to embed: a text, tokens, or a list of either, of 2,048 at most.
    #[schema(required = true, nullable = false)]
    pub input: Option<Prompt>,
    /// `"float"`, or `"base64"` for the bytes of the numbers (f32, little-endian); floats if not given.
    pub encoding_format: Option<Encoding>,
    /// Numbers of an embedding. As many as the model has and no other: one that was not trained for it
    /// (Matryoshka) says little in its first few.
    pub dimensions: Option<usize>,
    /// Who may share cached inputs: those with the same salt and the same API key.
    pub cache_salt: Option<String>,
    /// Lower goes first; 0 if not given. Another one only where the server lets requests go before others.
    pub priority: Option<i32>,
    /// Who asks, as the client sees it; not looked at.
    pub user: Option<String>,
    /// What nobody knows.
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

/// How an embedding is written down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// A list of numbers.
    #[default]
    Float,
    /// Their bytes.
    Base64,
}

impl EmbeddingRequest {
    /// Tokens of each input.
    ///
    /// # Errors
    /// 400: no input, an empty one, too many, or tokens that the vocabulary lacks.
    pub fn inputs(&self, tokenizer: &Tokenizer, vocabulary: usize) -> Result<Vec<Asked>, ApiError> {
        let write = |tokens: &[u32]| tokenizer.decode(tokens);
        asked("input", self.input.clone(), MOST_INPUTS, (tokenizer, vocabulary), &write)
    }

    /// Checks how many numbers are wanted, of a model that has so many.
    ///
    /// # Errors
    /// 400: another number.
    pub fn check_dimensions(&self, there: usize) -> Result<(), ApiError> {
        match self.dimensions {
            Some(wanted) if wanted != there => {
                let expected = format!("{there}: this model's embeddings cannot be cut");
                Err(ApiError::value("dimensions", wanted, &expected))
            }
            _ => Ok(()),
        }
    }
}

/// The answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Embeddings {
    /// `"list"`
    pub object: &'static str,
    /// One for each input, in order.
    pub data: Vec<Embedding>,
    /// Which model answers.
    pub model: String,
    /// What it came to.
    pub usage: EmbeddingUsage,
}

/// One embedding.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Embedding {
    /// `"embedding"`
    pub object: &'static str,
    /// Which input.
    pub index: usize,
    /// Its embedding, of length 1.
    pub embedding: Numbers,
}

/// Numbers, as they were asked for.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Numbers {
    /// A list.
    Float(Vec<f32>),
    /// Base64 of their bytes.
    Base64(String),
}

impl Numbers {
    /// A hidden state brought to length 1 (L2), so that a dot product of two is their cosine; one that is all zeros
    /// stays so.
    pub fn of(hidden: &[f32], encoding: Encoding) -> Self {
        let squares: f64 = hidden.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let length = if squares > 0.0 { squares.sqrt() } else { 1.0 };
        let numbers = hidden.iter().map(|&x| (f64::from(x) / length) as f32);
        match encoding {
            Encoding::Float => Numbers::Float(numbers.collect()),
            Encoding::Base64 => {
                let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
                Numbers::Base64(STANDARD.encode(bytes))
            }
        }
    }
}

/// What a request came to, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct EmbeddingUsage {
    /// Of the inputs.
    pub prompt_tokens: usize,
    /// The same: nothing is written.
    pub total_tokens: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_have_length_one_either_way() {
        let numbers = Numbers::of(&[3.0, 0.0, -4.0], Encoding::Float);
        assert_eq!(numbers, Numbers::Float(vec![0.6, 0.0, -0.8]));
        let Numbers::Base64(text) = Numbers::of(&[0.0, 2.0], Encoding::Base64) else {
            unreachable!()
        };
        assert_eq!(STANDARD.decode(text).unwrap(), [0, 0, 0, 0, 0, 0, 0x80, 0x3f]);
        assert_eq!(Numbers::of(&[0.0; 2], Encoding::Float), Numbers::Float(vec![0.0; 2]));
    }
}
