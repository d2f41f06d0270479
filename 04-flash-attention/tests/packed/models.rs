//! Whole models with packed weights.

use embedded_models::TARGET;
use flash_attention::fusion::Fused;
use flash_attention::packed::{Format, PackedFile, PackedFrom, Packer, Rows, Weights};
use flash_attention::threads::Pool;
use kv_cache::CONTIGUOUS;
use naive_decode::{
    Checkpoint, Config, Error, Isa, LoadOptions, Model, NAIVE, Pack, Packing, Request, Rung,
    Sampler, Sampling, Settings, generate,
};
use ndarray::{Array2, s};
use std::sync::Arc;

const PROMPT: [u32; 12] = [11, 300, 42, 7, 911, 60, 5, 88, 130, 17, 23, 400];

/// The embedded target with its matrices in one format.
fn target(format: Format, isa: Isa, threads: usize) -> Arc<Model> {
    let config = Config::from_json("config.json", TARGET.config).unwrap();
    let checkpoint = Checkpoint::embedded("model.safetensors", TARGET.weights).unwrap();
    let stored = |_: &str| Ok(None::<Rows>);
    let options = LoadOptions { isa, context: Some(128), ..LoadOptions::default() };
    let pool = Pool::new(threads);
    let packer = Packer::new(Weights::As(format), isa, &pool, &stored);
    let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
    let fused = Fused::new(&packer, &pool);
    let model = Model::assemble(config, options, &tensors, &fused).unwrap();
    let [packed] = packer.packed()[..] else { panic!("one format") };
    // Four stacks a layer, and the table, once.
    assert_eq!(packed.matrices, 4 * model.config.layers + 1);
    assert!((packed.format, packed.as_stored) == (format, false));
    Arc::new(model)
}

/// Every logit of every step, as bits.
fn logits(rung: &Rung, model: &Arc<Model>) -> Vec<Vec<u32>> {
    let settings = Settings { capacity: 64, prefill_chunk: Some(5), threads: None };
    let mut decoder = (rung.start)(model.clone(), settings).unwrap();
    let request = Request { prompt: PROMPT.to_vec(), tokens: 20, end_tokens: vec![] };
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let steps = generate(&mut *decoder, sampler, request).unwrap();
    steps.map(|step| step.unwrap().logits.iter().map(|l| l.to_bits()).collect()).collect()
}

#[test]
fn packed_f32_is_rung_01_to_the_bit() {
    let options = LoadOptions { context: Some(128), ..LoadOptions::default() };
    let plain = Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options).unwrap();
    let expected = logits(&NAIVE, &Arc::new(plain));
    for isa in Isa::available() {
        for threads in [1, 2] {
            let model = target(Format::F32, isa, threads);
            assert!(logits(&CONTIGUOUS, &model) == expected, "{isa:?}, {threads} threads");
        }
    }
}

#[test]
fn every_format_is_the_same_naive_and_cached_on_every_path() {
    for format in Format::ALL {
        let expected = logits(&NAIVE, &target(format, Isa::best(), 2));
        for isa in Isa::available() {
            let found = logits(&CONTIGUOUS, &target(format, isa, 1));
            assert!(found == expected, "{format:?}, {isa:?}");
        }
    }
}

#[test]
fn narrower_weights_take_fewer_bytes() {
    let bytes = |format| target(format, Isa::best(), 1).weight_bytes() as f64;
    let full = bytes(Format::F32);
    for (format, bits) in [(Format::Bf16, 16.0), (Format::Q8_0, 8.5), (Format::Q4_0, 4.5)] {
        let part = bytes(format) / full;
        assert!((part - bits / 32.0).abs() < 0.03, "{format:?}: {part}");
    }
}

/// A config alone may have sizes without end: nothing is set aside before the file has been asked.
#[test]
fn a_stack_beyond_all_counting_is_refused_by_its_shape() {
    let stored = |_: &str| Ok(None::<Rows>);
    let packer = Packer::new(Weights::As(Format::Q8_0), Isa::best(), &Pool::new(1), &stored);
    let tensors =
        |name: &str, shape: &[usize]| Err(Error::invalid(name, format!("{shape:?}"), "[6, 2]"));
    for outputs in [1 << 38, 1 << 44] {
        let matrices = ["gate.weight", "up.weight"].map(|name| (name.to_owned(), outputs));
        let said = packer.stacked(&matrices, 1 << 24, &tensors).err().unwrap().to_string();
        assert!(said.contains("gate.weight is [") && said.ends_with("expected [6, 2]"), "{said}");
    }
}

/// Not to be stored as an infinity: the type's range is said, and where the weight is.
#[test]
fn a_weight_past_the_types_range_is_refused_by_name() {
    let stored = |_: &str| Ok(None::<Rows>);
    let packer = Packer::new(Weights::As(Format::F16), Isa::best(), &Pool::new(1), &stored);
    let tensors = |_: &str, _: &[usize]| Ok(vec![1.0, 2.0, 3.0, 4.0, 70_000.0, 6.0]);
    let said = packer.matrix("x.weight", 2, 3, &tensors).err().unwrap().to_string();
    let expected = "`x.weight`: weight 1 of row 1 of a f16 matrix is 70000, expected from -6.5504e4 \
                    to 6.5504e4";
    assert_eq!(said, expected);
}

/// Matrices that the file has in different formats are not made alike to be stacked.
#[test]
fn what_is_stored_differently_stays_apart() {
    let config = Config::from_json("config.json", TARGET.config).unwrap();
    let checkpoint = Checkpoint::embedded("model.safetensors", TARGET.weights).unwrap();
    let Config { layers, hidden_size: hidden, intermediate_size: wide, head_dim, .. } = config;
    let (q_width, kv_width) = (config.heads * head_dim, config.kv_heads * head_dim);
    let stored = |name: &str| {
        let part = name.split('.').rev().nth(1).unwrap_or_default();
        let (format, outputs, inputs) = match part {
            "q_proj" => (Format::Q8_0, q_width, hidden),
            "k_proj" => (Format::Q8_0, kv_width, hidden),
            "v_proj" => (Format::Q4_0, kv_width, hidden),
            "o_proj" => (Format::Q8_0, hidden, q_width),
            "gate_proj" => (Format::Q8_0, wide, hidden),
            "up_proj" => (Format::Q4_0, wide, hidden),
            "down_proj" => (Format::Q8_0, hidden, wide),
            _ => return Ok(None),
        };
        let weights = checkpoint.tensor(name, &[outputs, inputs])?;
        Rows::encoded(format, &weights, outputs, inputs).map(Some)
    };
    let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.packed");
    let from = PackedFrom { sources: [7; 32], weights: Weights::AsStored, threads: 2 };
    let (pool, options) = (Pool::new(2), LoadOptions::default());
    let model = |fuse: bool| {
        let packer = Packer::new(Weights::AsStored, options.isa, &pool, &stored);
        let fused = Fused::new(&packer, &pool);
        let pack: Pack = if fuse { &fused } else { &packer };
        let model = Model::assemble(config.clone(), options, &tensors, pack).unwrap();
        // Two and five of seven, of which queries' and keys' may be one, and the table, which nobody stores.
        let packed = packer.packed();
        let count = |format| packed.iter().filter(move |p| p.format == format).map(|p| p.matrices);
        assert_eq!(count(Format::Q4_0).sum::<usize>(), 2 * layers);
        let eight = if fuse { 4 } else { 5 };
        assert_eq!(count(Format::Q8_0).sum::<usize>(), eight * layers + 1);
        packer.write(&path, &from).unwrap();
        Arc::new(model)
    };
    let expected = logits(&CONTIGUOUS, &model(false));
    assert!(logits(&CONTIGUOUS, &model(true)) == expected);
    // As the file has it that was written last: no matrix is read from anywhere else.
    let file = PackedFile::open(&path, &from).unwrap();
    let none = |_: &str| Ok(None::<Rows>);
    let packer = Packer::new(from.weights, options.isa, &pool, &none).with_file(&file);
    let vectors = |name: &str, shape: &[usize]| match shape {
        [_] => checkpoint.tensor(name, shape),
        _ => Err(Error::invalid("a matrix", name, "in the file")),
    };
    let fused = Fused::new(&packer, &pool);
    let mapped = Arc::new(Model::assemble(config, options, &vectors, &fused).unwrap());
    assert!(logits(&CONTIGUOUS, &mapped) == expected);
}

/// Phi's files have queries', keys' and values' maps in one matrix.
#[test]
fn some_rows_of_a_matrix_are_kept_as_they_are_stored() {
    let (shape, pool) = ([40, 64], Pool::new(2));
    let numbers: Vec<f32> = (0..40 * 64).map(|i| (i * i % 251) as f32 / 128.0 - 1.0).collect();
    let tensors = |_: &str, _: &[usize]| Ok(numbers.clone());
    for format in [Format::Q4_0, Format::Q8_0, Format::Bf16] {
        let stored = |_: &str| Rows::encoded(format, &numbers, 40, 64).map(Some);
        let packer = Packer::new(Weights::AsStored, Isa::best(), &pool, &stored);
        let never = || unreachable!("they are stored");
        let fused = Fused::new(&packer, &pool);
        let some = fused.rows("all", shape, 7..31, &never).unwrap();
        let all = fused.matrix("all", 40, 64, &tensors).unwrap();
        let x = Array2::from_shape_fn((3, 64), |(row, i)| (row + i) as f32 / 64.0 - 0.4);
        assert_eq!(some.apply(x.view()), all.apply(x.view()).slice(s![.., 7..31]));
        let [packed] = packer.packed()[..] else { panic!("one format") };
        assert!((packed.format, packed.as_stored, packed.matrices) == (format, true, 2));
    }
}

/// The fast mode of BF16 takes a BF16 file's weights as they are.
#[test]
fn the_fast_mode_is_packed_from_what_is_stored() {
    let checkpoint = Checkpoint::embedded("model.safetensors", TARGET.weights).unwrap();
    let (name, shape) = ("model.layers.0.mlp.down_proj.weight", {
        let config = Config::from_json("config.json", TARGET.config).unwrap();
        [config.hidden_size, config.intermediate_size]
    });
    let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
    let packed = |weights, kept| {
        let stored = |name: &str| {
            let floats = checkpoint.tensor(name, &shape)?;
            Rows::encoded(kept, &floats, shape[0], shape[1]).map(Some)
        };
        let packer = Packer::new(Weights::As(weights), Isa::best(), &Pool::new(1), &stored);
        packer.matrix(name, shape[0], shape[1], &tensors).unwrap();
        let both = [(name.to_owned(), shape[0]), (name.to_owned(), shape[0])];
        assert_eq!(packer.stacked(&both, shape[1], &tensors).unwrap().len(), 1);
        let [packed] = packer.packed()[..] else { panic!("both the same way") };
        (packed.format, packed.as_stored)
    };
    assert_eq!(packed(Format::Bf16Fast, Format::Bf16), (Format::Bf16Fast, true));
    assert_eq!(packed(Format::Bf16Fast, Format::Q8_0), (Format::Bf16Fast, false));
    assert_eq!(packed(Format::Bf16, Format::Bf16), (Format::Bf16, true));
}
