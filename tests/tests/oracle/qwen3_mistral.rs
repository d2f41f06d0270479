//! Somebody else's Qwen3 and Mistral on the same files: candle-transformers, in f32 on the
//! processor.
//!
//! What Llama's oracle (`llama.rs`) cannot say: that queries and keys are normed head by head
//! before they are turned, and that a window is as wide as it should be. candle's Qwen3 has no
//! window, and its Mistral lets a row see one token more than `sliding_window` says; Hugging Face's
//! own masks count the row itself, and so do we. It is told one less here.

use crate::compare::largest;
use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{mistral, qwen3};
use gqa_mla::hybrid::{self, HybridConfig};
use model_files::Safetensors;
use naive_decode::{LoadOptions, NaiveAttention, Pass, Span, Want, dense, random_tensors};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

/// Largest difference of two logits as a share of the largest: random weights, short texts.
const TOLERANCE: f32 = 2e-5;

const TOKENS: usize = 60;

fn config(architecture: &str, sliding_window: &str) -> String {
    format!(
        r#"{{"architectures": ["{architecture}"], "hidden_size": 96, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 24,
            "intermediate_size": 160, "vocab_size": 333, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": false,
            "attention_bias": false, "hidden_act": "silu", "max_window_layers": 3,
            "use_sliding_window": false, "use_flash_attn": false,
            "sliding_window": {sliding_window}}}"#
    )
}

/// Writes a checkpoint of that shape with random weights.
fn write(directory: &Path, config: &str) -> Result<()> {
    std::fs::write(directory.join("config.json"), config)?;
    let hybrid = HybridConfig::from_json("config.json", config.as_bytes())?;
    let tensors = RefCell::new(BTreeMap::new());
    let random = random_tensors(5);
    let record = |name: &str, shape: &[usize]| {
        let values = random(name, shape)?;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        tensors.borrow_mut().insert(name.to_owned(), (shape.to_vec(), bytes));
        Ok(values)
    };
    let options = LoadOptions::default();
    hybrid::assemble(hybrid, options, &record, &dense(options.isa))?;
    let tensors = tensors.into_inner();
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?))
    });
    let views: Vec<_> = views.collect::<Result<_>>()?;
    safetensors::serialize_to_file(views, None, &directory.join("model.safetensors"))?;
    Ok(())
}

/// Our logits after each token, and candle's for every text up to that token, as far apart as they
/// get.
fn compare(directory: &Path, theirs: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<()> {
    let config =
        HybridConfig::from_json("config.json", &std::fs::read(directory.join("config.json"))?)?;
    let (options, weights) = (LoadOptions::default(), Safetensors::open_directory(directory)?);
    let tensors = |name: &str, shape: &[usize]| weights.tensor(name, shape);
    let model = hybrid::assemble(config, options, &tensors, &dense(options.isa))?;
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| (i * i + 7 * i) % 333).collect();
    let pass = Pass::one(Span::new(0, 0, &tokens, Want::All));
    let ours = model.forward(&pass, &mut NaiveAttention::new(model.isa))?;
    for length in [1, 2, 7, 8, 9, 10, 31, TOKENS] {
        let input = Tensor::new(&tokens[..length], &Device::Cpu)?.unsqueeze(0)?;
        let theirs: Vec<f32> = theirs(&input)?.flatten_all()?.to_vec1()?;
        let ours = ours.row(length - 1);
        assert_eq!(ours.len(), theirs.len());
        let scale = largest(theirs.iter().copied());
        let apart = largest(ours.iter().zip(&theirs).map(|(a, b)| a - b));
        assert!(apart <= TOLERANCE * scale, "after {length}: {apart:e} apart, largest {scale}");
    }
    Ok(())
}

fn weights(directory: &Path) -> Result<VarBuilder<'static>> {
    let bytes = std::fs::read(directory.join("model.safetensors"))?;
    Ok(VarBuilder::from_buffered_safetensors(bytes, DType::F32, &Device::Cpu)?)
}

#[test]
fn qk_norm_is_qwen3s() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = config("Qwen3ForCausalLM", "null");
    write(directory.path(), &config)?;
    let theirs: qwen3::Config = serde_json::from_str(&config)?;
    let mut model = qwen3::ModelForCausalLM::new(&theirs, weights(directory.path())?)?;
    compare(directory.path(), &mut |input| {
        model.clear_kv_cache();
        Ok(model.forward(input, 0)?)
    })
}

#[test]
fn a_window_is_mistrals() -> Result<()> {
    for window in [None, Some(1), Some(8), Some(30)] {
        let directory = tempfile::tempdir()?;
        let said = window.map_or("null".into(), |window: usize| window.to_string());
        let config = config("MistralForCausalLM", &said);
        write(directory.path(), &config)?;
        let mut theirs: mistral::Config = serde_json::from_str(&config)?;
        theirs.sliding_window = window.map(|window| window - 1);
        let mut model = mistral::Model::new(&theirs, weights(directory.path())?)?;
        compare(directory.path(), &mut |input| {
            model.clear_kv_cache();
            Ok(model.forward(input, 0)?)
        })?;
    }
    Ok(())
}
