//! `candle-llama FILE.gguf PREFILL DECODE`: how many tokens a second candle reads of a prompt, and generates greedily from one
//! token on; the second of two times, as one JSON object.

use candle_core::quantized::gguf_file::Content;
use candle_core::{D, Device, Result, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use std::fs::File;
use std::time::Instant;

/// A model that has read nothing yet.
fn model(path: &str) -> Result<ModelWeights> {
    let mut file = File::open(path)?;
    let content = Content::read(&mut file).map_err(|error| error.with_path(path))?;
    ModelWeights::from_gguf(content, &mut file, &Device::Cpu)
}

/// The likeliest token after some that follow `before` earlier ones.
fn next(model: &mut ModelWeights, tokens: &[u32], before: usize) -> Result<u32> {
    let tokens = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
    model.forward(&tokens, before)?.argmax(D::Minus1)?.squeeze(0)?.to_scalar()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, prefill, decode] = &arguments[..] else {
        candle_core::bail!("usage: candle-llama FILE.gguf PREFILL DECODE");
    };
    let count = |number: &str| number.parse::<usize>().map_err(candle_core::Error::wrap);
    let (prefill, decode) = (count(prefill)?, count(decode)?);
    let prompt: Vec<u32> = (0..prefill as u32).map(|i| i * 37 % 40_000 + 10).collect();
    let (mut read, mut generated) = (0.0, 0.0);
    for _ in 0..2 {
        let mut reader = model(path)?;
        let began = Instant::now();
        next(&mut reader, &prompt, 0)?;
        read = prefill as f64 / began.elapsed().as_secs_f64();
        let (mut writer, mut token) = (model(path)?, 1);
        let began = Instant::now();
        for before in 0..decode {
            token = next(&mut writer, &[token], before)?;
        }
        generated = decode as f64 / began.elapsed().as_secs_f64();
    }
    println!(r#"{{"prefill {prefill}": {read}, "decode {decode}": {generated}}}"#);
    Ok(())
}
