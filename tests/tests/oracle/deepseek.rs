//! Somebody else's DeepSeek-V2 on the same files: candle-transformers, in f32 on the processor.
//!
//! Tiny checkpoints of random weights in the layout of DeepSeek-V2-Lite, with dense and expert
//! layers, read back from disk by both. candle expands keys and values as our explicit form does;
//! our absorbed form has to say the same.
//!
//! Three things candle does otherwise are kept out of the comparison.
//!
//! * `group_limited_greedy` picks groups by the scores of experts, not of groups: an expert's
//!   number is then taken for a group's. DeepSeek's own code and Hugging Face's score groups. Only
//!   the greedy method is compared.
//! * `norm_topk_prob` it cannot run: a row of weights is divided by their sum without spreading the
//!   sum. No weights are normed here.
//! * Angles are products of f32 numbers, ours are f64 until the cosine is taken (see `llama.rs`).
//!   With random weights and few tokens that hides in the tolerance.
//!
//! Where the factor of YaRN goes (`mscale` over `mscale_all_dim` on the angles, `mscale_all_dim`
//! squared on the scores) candle follows DeepSeek's code. Hugging Face's port of V2 leaves out the
//! latter.

use crate::compare::largest;
use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::deepseek2::{DeepSeekV2, DeepSeekV2Config};
use gqa_mla::mla::{self, Form, MlaConfig};
use model_files::Safetensors;
use naive_decode::{LoadOptions, Model, NaiveAttention, Pass, Span, Want, dense, random_tensors};
use ndarray::Array2;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest difference of two logits, as a share of the largest: several times the 4.4e-6 that was
/// measured over 80 tokens.
const TOLERANCE: f32 = 2e-5;

const VOCAB: usize = 101;

/// As V2-Lite: no query compression, experts from the second layer on, a stretched context.
const LITE: &str = r#"{"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false,
    "hidden_act": "silu", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 101, "rms_norm_eps": 1e-6,
    "rope_theta": 10000, "max_position_embeddings": 128, "tie_word_embeddings": false,
    "q_lora_rank": null, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 12, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 8,
    "num_experts_per_tok": 3, "n_shared_experts": 2, "moe_intermediate_size": 24, "n_group": 1,
    "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": false,
    "routed_scaling_factor": 1.5, "rope_scaling": {"type": "yarn", "factor": 4,
        "original_max_position_embeddings": 64, "beta_fast": 8, "beta_slow": 1, "mscale": 0.707,
        "mscale_all_dim": 1.2}}"#;

/// With compressed queries, a tied head, and experts in every second layer.
const COMPRESSED: &str = r#"{"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false,
    "hidden_act": "silu", "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 6, "intermediate_size": 64, "vocab_size": 101, "rms_norm_eps": 1e-6,
    "rope_theta": 50000, "max_position_embeddings": 96, "tie_word_embeddings": true,
    "q_lora_rank": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 10, "qk_rope_head_dim": 12,
    "v_head_dim": 14, "first_k_dense_replace": 0, "moe_layer_freq": 2, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 20, "n_group": 1,
    "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": false,
    "routed_scaling_factor": 2.0, "rope_scaling": null}"#;

/// A tensor's shape and bytes, by name.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

/// Random weights, written down as the loader asks for them.
fn random_weights(config: &MlaConfig) -> Result<Tensors> {
    let written = RefCell::new(Tensors::new());
    let random = random_tensors(4);
    let tensors = |name: &str, shape: &[usize]| {
        let mut values = random(name, shape)?;
        // Sharper attention than random weights give, so that position and scale matter.
        if name.contains("q_proj") || name.contains("q_b_proj") {
            values.iter_mut().for_each(|v| *v *= 3.0);
        }
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        written.borrow_mut().insert(name.to_owned(), (shape.to_vec(), bytes));
        Ok(values)
    };
    let options = LoadOptions::default();
    mla::assemble(config, Form::Explicit, options, &tensors, &dense(options.isa))?;
    Ok(written.into_inner())
}

/// Writes a checkpoint into `files` files; with more than one, and an index of which holds what.
fn write(directory: &Path, json: &str, tensors: &Tensors, files: usize) -> Result<Vec<PathBuf>> {
    std::fs::write(directory.join("config.json"), json)?;
    let mut paths = Vec::new();
    let mut index = BTreeMap::new();
    for file in 0..files {
        let name = match files {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{files:05}.safetensors", file + 1),
        };
        let mine = tensors.iter().skip(file).step_by(files);
        let views = mine.clone().map(|(name, (shape, bytes))| {
            Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        });
        let views: Vec<_> = views.collect::<Result<_>>()?;
        paths.push(directory.join(&name));
        safetensors::serialize_to_file(views, None, &paths[file]).context("writing weights")?;
        index.extend(mine.map(|(tensor, _)| (tensor.clone(), name.clone())));
    }
    if files > 1 {
        let json = serde_json::json!({ "metadata": {}, "weight_map": index });
        std::fs::write(directory.join("model.safetensors.index.json"), json.to_string())?;
    }
    Ok(paths)
}

/// candle's logits after each token, decoded one by one with its own cache, and after the last once
/// more from one pass over them all.
fn candle_logits(json: &str, paths: &[PathBuf], tokens: &[u32]) -> Result<(Array2<f32>, Vec<f32>)> {
    let config: DeepSeekV2Config = serde_json::from_str(json)?;
    let device = Device::Cpu;
    let mut weights = std::collections::HashMap::new();
    for path in paths {
        weights.extend(candle_core::safetensors::load(path, &device)?);
    }
    let mut model =
        DeepSeekV2::new(&config, VarBuilder::from_tensors(weights, DType::F32, &device))?;
    let mut forward = |tokens: &[u32], position: usize| -> Result<Vec<f32>> {
        if position == 0 {
            model.clear_kv_cache();
        }
        let input = Tensor::new(tokens, &device)?.unsqueeze(0)?;
        Ok(model.forward(&input, position)?.flatten_all()?.to_vec1()?)
    };
    let mut rows = Vec::new();
    for (position, &token) in tokens.iter().enumerate() {
        rows.extend(forward(&[token], position)?);
    }
    let last = forward(tokens, 0)?;
    Ok((Array2::from_shape_vec((tokens.len(), VOCAB), rows)?, last))
}

fn our_logits(model: &Model, tokens: &[u32]) -> Result<Array2<f32>> {
    let pass = Pass::one(Span::new(0, 0, tokens, Want::All));
    Ok(model.forward(&pass, &mut NaiveAttention::new(model.isa))?)
}

fn greedy(logits: impl Iterator<Item = f32>) -> usize {
    let best = logits.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.expect("a vocabulary is not empty").0
}

fn compare(name: &str, json: &str, files: usize) -> Result<()> {
    let config = MlaConfig::from_json(name, json.as_bytes())?;
    let directory = tempfile::tempdir()?;
    let paths = write(directory.path(), json, &random_weights(&config)?, files)?;
    let tokens: Vec<u32> = (0..80).map(|i| (i * i + 7 * i + 5) % VOCAB as u32).collect();
    let (theirs, last) = candle_logits(json, &paths, &tokens)?;
    let scale = largest(theirs.iter().copied());
    let (options, weights) =
        (LoadOptions::default(), Safetensors::open_directory(directory.path())?);
    let tensors = |name: &str, shape: &[usize]| weights.tensor(name, shape);
    for form in [Form::Explicit, Form::Absorbed] {
        let model = mla::assemble(&config, form, options, &tensors, &dense(options.isa))?;
        let ours = our_logits(&model, &tokens)?;
        let from_last = ours.row(tokens.len() - 1).into_iter().zip(&last).map(|(a, b)| a - b);
        let difference = largest((&ours - &theirs).into_iter().chain(from_last)) / scale;
        println!("{name}, {form:?}: largest logit {scale:.3}, {difference:.2e} of it apart");
        assert!(difference <= TOLERANCE, "{name}, {form:?}: {difference:e} apart");
        for (row, (a, b)) in ours.outer_iter().zip(theirs.outer_iter()).enumerate() {
            let (a, b) = (greedy(a.iter().copied()), greedy(b.iter().copied()));
            assert_eq!(a, b, "{name}, {form:?}: token after {}", row + 1);
        }
    }
    Ok(())
}

#[test]
fn the_layout_of_v2_lite_is_a_deepseek() -> Result<()> {
    compare("lite", LITE, 1)
}

#[test]
fn compressed_queries_in_a_checkpoint_of_several_files_are_a_deepseek() -> Result<()> {
    compare("compressed", COMPRESSED, 3)
}
