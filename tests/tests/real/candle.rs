//! The other implementation: candle's llama for GGUF, on the same weights.
//!
//! It would multiply by quantised weights with quantised activations, which is another computation.
//! So it is given the same file with every tensor written out as f32, by candle's own reader: from
//! the file to the logits nothing here is shared with it.

use anyhow::Result;
use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use std::io::Cursor;
use std::path::Path;

pub(crate) struct Candle {
    weights: ModelWeights,
    /// Tokens fed.
    length: usize,
}

impl Candle {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let device = Device::Cpu;
        let mut file = std::fs::File::open(path)?;
        let content = Content::read(&mut file)?;
        let mut tensors = Vec::new();
        for name in content.tensor_infos.keys() {
            let numbers = content.tensor(&mut file, name, &device)?.dequantize(&device)?;
            tensors.push((name.as_str(), QTensor::quantize(&numbers, GgmlDType::F32)?));
        }
        let metadata: Vec<(&str, &Value)> =
            content.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, t)| (*name, t)).collect();
        let mut plain = Cursor::new(Vec::new());
        gguf_file::write(&mut plain, &metadata, &tensors)?;
        plain.set_position(0);
        let content = Content::read(&mut plain)?;
        let weights = ModelWeights::from_gguf(content, &mut plain, &device)?;
        Ok(Candle { weights, length: 0 })
    }

    /// The logits after one or more tokens that follow those fed before.
    pub(crate) fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let input = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        let logits = self.weights.forward(&input, self.length)?;
        self.length += tokens.len();
        Ok(logits.flatten_all()?.to_vec1()?)
    }
}
