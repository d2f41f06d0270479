//! A GGUF file of K-quants, as candle's quantiser writes it: matrices of Q4_K and Q5_0 keep their codes when they are packed.

use anyhow::Result;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use flash_attention::kernels::Simd;
use flash_attention::packed::{Format, Memory, Packed, PackedLinear, Weights};
use flash_attention::threads::Pool;
use model_files::{ModelFiles, dequantise};
use naive_decode::{Isa, LoadOptions, Model, NaiveAttention, Pass, Span, Want};
use serving::packed::{Keep, load_packed};
use std::path::Path;

/// Numbers to a row: a block of a K-quant.
const WIDTH: usize = 256;

/// Numbers about zero that follow no pattern, as a trained matrix has them: most are small.
fn weights(seed: usize, count: usize) -> Vec<f32> {
    let unit = |i: usize| {
        let hash = ((i + seed * 7_919) as u32).wrapping_mul(0x9e37_79b1).rotate_left(13);
        (hash.wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|i| 0.1 * (unit(3 * i) + unit(3 * i + 1) + unit(3 * i + 2)) / 3.0).collect()
}

/// A Llama of one block, whose matrices are of as many types as files called Q4_K_M have.
fn write(path: &Path) -> Result<()> {
    let matrices = [
        ("token_embd", GgmlDType::Q6K),
        ("blk.0.attn_q", GgmlDType::Q4K),
        ("blk.0.attn_k", GgmlDType::Q4K),
        ("blk.0.attn_v", GgmlDType::Q6K),
        ("blk.0.attn_output", GgmlDType::Q5_0),
        ("blk.0.ffn_gate", GgmlDType::Q4K),
        ("blk.0.ffn_up", GgmlDType::Q4K),
        ("blk.0.ffn_down", GgmlDType::Q4K),
    ];
    let norms = ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"];
    let mut tensors = Vec::new();
    for (seed, (name, kind)) in matrices.into_iter().enumerate() {
        let numbers = weights(seed, WIDTH * WIDTH);
        let matrix = Tensor::from_vec(numbers, (WIDTH, WIDTH), &Device::Cpu)?;
        tensors.push((format!("{name}.weight"), QTensor::quantize(&matrix, kind)?));
    }
    for name in norms {
        let ones = Tensor::from_vec(vec![1f32; WIDTH], WIDTH, &Device::Cpu)?;
        tensors.push((format!("{name}.weight"), QTensor::quantize(&ones, GgmlDType::F32)?));
    }
    let number = |number: usize| Value::U32(number as u32);
    let text = |text: &str| Value::String(text.into());
    let tokens = (0..WIDTH).map(|i| match i {
        0 => text("<unk>"),
        1 => text("<s>"),
        2 => text("</s>"),
        _ => text(&format!("t{i}")),
    });
    let kinds = (0..WIDTH).map(|i| Value::I32(if i < 3 { 3 } else { 1 }));
    let metadata = [
        ("general.architecture", text("llama")),
        ("llama.block_count", number(1)),
        ("llama.context_length", number(64)),
        ("llama.embedding_length", number(WIDTH)),
        ("llama.feed_forward_length", number(WIDTH)),
        ("llama.attention.head_count", number(4)),
        ("llama.attention.head_count_kv", number(4)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.rope.freq_base", Value::F32(10_000.0)),
        ("llama.rope.dimension_count", number(WIDTH / 4)),
        ("llama.vocab_size", number(WIDTH)),
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.tokens", Value::Array(tokens.collect())),
        ("tokenizer.ggml.scores", Value::Array(vec![Value::F32(0.0); WIDTH])),
        ("tokenizer.ggml.token_type", Value::Array(kinds.collect())),
        ("tokenizer.ggml.bos_token_id", number(1)),
        ("tokenizer.ggml.eos_token_id", number(2)),
    ];
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut std::fs::File::create(path)?, &metadata, &tensors)?;
    Ok(())
}

fn logits(model: &Model) -> Result<Vec<f32>> {
    let pass = Pass::one(Span::new(0, 0, &[1, 17, 200, 5, 99, 31], Want::All));
    Ok(model.forward(&pass, &mut NaiveAttention::new(model.isa))?.into_raw_vec_and_offset().0)
}

#[test]
fn codes_of_k_quants_are_kept_and_said_to_be_converted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("Q4_K_M.gguf");
    write(&path)?;
    let files = ModelFiles::open_gguf(&path)?;
    let pool = Pool::new(2);
    let load = |weights| load_packed(&files, weights, LoadOptions::default(), &pool, Keep::Never);
    let kept = load(Weights::AsStored)?;
    let of = |format| -> Vec<&Packed> {
        kept.packed.iter().filter(|entry| entry.format == format).collect()
    };
    // Queries and keys are one matrix, beside values of another format; gate and up are one, too.
    let [fours] = of(Format::Q4_1)[..] else { panic!("{:?}", kept.packed) };
    let [eights] = of(Format::Q8_0)[..] else { panic!("{:?}", kept.packed) };
    assert!(!fours.as_stored && !eights.as_stored, "{:?}", kept.packed);
    assert_eq!((fours.matrices, eights.matrices), (3, 3), "{}", kept.weights());
    assert_eq!(fours.bytes, 5 * WIDTH * WIDTH / 32 * 20);

    // What is asked for is had without a detour where the codes are of it, and by way of f32 where not.
    let plain = logits(&files.load(LoadOptions::default())?)?;
    let size = plain.iter().map(|logit| logit.abs()).fold(0.0, f32::max);
    for weights in [Weights::AsStored, Weights::As(Format::Q4_1), Weights::As(Format::Q8_0)] {
        let loaded = load(weights)?;
        if let Weights::As(_) = weights {
            // All become one format, so queries, keys and values are one matrix, and gate and up.
            assert_eq!(loaded.packed.iter().map(|entry| entry.matrices).sum::<usize>(), 5);
        }
        let found = logits(&loaded.model)?;
        let off = found.iter().zip(&plain).map(|(a, b)| (a - b).abs());
        let furthest = off.fold(0.0, f32::max) / size;
        let most = if weights == Weights::As(Format::Q4_1) { 0.2 } else { 0.02 };
        assert!(furthest < most, "{weights:?}: {furthest}");
    }
    Ok(())
}

#[test]
fn five_bits_of_the_codes_are_nearer_than_eight_and_a_half_of_others() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("Q4_K_M.gguf");
    write(&path)?;
    let files = ModelFiles::open_gguf(&path)?;
    let raw = files.raw("model.layers.0.mlp.up_proj.weight").expect("it is there");
    let numbers = dequantise(raw.kind, &raw.bytes);
    let off = |others: &[f32]| {
        let squares = numbers.iter().zip(others).map(|(a, b)| (a - b).powi(2) as f64);
        squares.sum::<f64>().sqrt()
    };
    let recoded = raw.recoded().expect("the codes are four bits");
    let kept = off(&dequantise(recoded.kind, &recoded.bytes));

    let (pool, simd, memory) = (Pool::new(1), Simd::within(Isa::best()), Memory::new(1));
    let eight =
        PackedLinear::from_floats(Format::Q8_0, &numbers, WIDTH, WIDTH, simd, &pool, &memory)?;
    let mut anew = vec![0.0; WIDTH * WIDTH];
    anew.chunks_mut(WIDTH).enumerate().for_each(|(output, row)| eight.row(output, row));
    assert!(5.0 * kept < off(&anew), "{kept} with its codes, {} with new ones", off(&anew));
    Ok(())
}
