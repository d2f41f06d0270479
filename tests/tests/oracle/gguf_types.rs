//! Every quantisation type that candle has, written by its quantiser and read by both: the same bits.
//!
//! candle and this project each implement ggml's definitions; neither takes code from the other.

use anyhow::Result;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use model_files::{BlockType, Gguf};

const TYPES: [(GgmlDType, BlockType); 13] = [
    (GgmlDType::F32, BlockType::F32),
    (GgmlDType::F16, BlockType::F16),
    (GgmlDType::BF16, BlockType::BF16),
    (GgmlDType::Q4_0, BlockType::Q4_0),
    (GgmlDType::Q4_1, BlockType::Q4_1),
    (GgmlDType::Q5_0, BlockType::Q5_0),
    (GgmlDType::Q5_1, BlockType::Q5_1),
    (GgmlDType::Q8_0, BlockType::Q8_0),
    (GgmlDType::Q2K, BlockType::Q2K),
    (GgmlDType::Q3K, BlockType::Q3K),
    (GgmlDType::Q4K, BlockType::Q4K),
    (GgmlDType::Q5K, BlockType::Q5K),
    (GgmlDType::Q6K, BlockType::Q6K),
];

/// Rows of very different sizes and offsets, so that scales and smallest values of all sizes come up.
fn weights(rows: usize, columns: usize) -> Vec<f32> {
    let number = |i: usize| {
        let hash = (i as u32).wrapping_mul(0x9e37_79b1).rotate_left(13).wrapping_mul(0x85eb_ca6b);
        let unit = (hash >> 8) as f32 / (1 << 23) as f32 - 1.0;
        let row = i / columns;
        (unit + 0.3 * (i / 32 % 5) as f32) * 2.0_f32.powi(row as i32 - 6)
    };
    (0..rows * columns).map(number).collect()
}

#[test]
fn every_type_is_read_as_candle_reads_it() -> Result<()> {
    let (rows, columns) = (12, 768);
    let device = Device::Cpu;
    let source = Tensor::from_vec(weights(rows, columns), (rows, columns), &device)?;
    let quantised: Vec<QTensor> = TYPES
        .iter()
        .map(|(kind, _)| Ok(QTensor::quantize(&source, *kind)?))
        .collect::<Result<_>>()?;
    let names: Vec<String> =
        (0..TYPES.len()).map(|layer| format!("blk.{layer}.ffn_up.weight")).collect();
    let tensors: Vec<(&str, &QTensor)> = names.iter().map(String::as_str).zip(&quantised).collect();
    let architecture = Value::String("llama".into());
    let heads = Value::U32(4);
    let metadata =
        [("general.architecture", &architecture), ("llama.attention.head_count", &heads)];
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("every type.gguf");
    gguf_file::write(&mut std::fs::File::create(&path)?, &metadata, &tensors)?;

    let gguf = Gguf::open(&path)?;
    for (layer, (tensor, (_, kind))) in quantised.iter().zip(TYPES).enumerate() {
        let name = format!("model.layers.{layer}.mlp.up_proj.weight");
        let raw = gguf.raw(&name).expect("candle wrote it");
        assert_eq!((raw.kind, raw.shape), (kind, vec![rows, columns]));
        assert!(raw.bytes == tensor.data()?, "{kind}: other bytes");
        let ours = gguf.tensor(&name, &[rows, columns])?;
        let theirs: Vec<f32> = tensor.dequantize(&device)?.flatten_all()?.to_vec1()?;
        let differing = ours.iter().zip(&theirs).position(|(a, b)| a.to_bits() != b.to_bits());
        if let Some(at) = differing {
            panic!("{kind}: number {at} is {} here and {} there", ours[at], theirs[at]);
        }
        // The test would pass on two readers that read zeros.
        let error = ours.iter().zip(weights(rows, columns)).map(|(a, b)| (a - b).abs());
        let largest = ours.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        assert!(largest > 32.0 && error.fold(0.0, f32::max) < 0.5 * largest, "{kind}");
    }
    Ok(())
}
