//! A small model, on the processor and on the interpreter.

use cuda_executor::{CudaExecutor, Room};
use cuda_kernels::{Gpu, Interpreter};
use half::bf16;
use kv_cache::CachedExecutor;
use naive_decode::{
    Config, CpuExecutor, Executor, LoadOptions, Logits, Model, NaiveAttention, Pass, Result, Span,
    Want, dense, random_tensors,
};
use std::sync::Arc;

/// A Llama with every size that the kernels ask for, and none beyond.
pub(crate) fn config() -> Config {
    Config {
        hidden_size: 72,
        layers: 2,
        heads: 3,
        kv_heads: 1,
        head_dim: 64,
        intermediate_size: 136,
        vocab_size: 80,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: None,
        trained_context: 320,
        tied_head: false,
        end_tokens: Vec::new(),
    }
}

pub(crate) const SEED: u64 = 5;

/// Weights as the device has them.
pub(crate) fn rounded(name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    let numbers = random_tensors(SEED)(name, shape)?;
    Ok(numbers.into_iter().map(|number| bf16::from_f32(number).to_f32()).collect())
}

pub(crate) fn on_processor() -> Arc<Model> {
    let options = LoadOptions::default();
    Arc::new(Model::assemble(config(), options, &rounded, &dense(options.isa)).unwrap())
}

pub(crate) const ROOM: Room = Room { tokens: 640, capacity: 320, rows: 128 };

/// The interpreter, as a Hopper or as another device.
pub(crate) fn interpreter(is_hopper: bool) -> Interpreter {
    let mut gpu = Interpreter::new();
    gpu.is_hopper = is_hopper;
    gpu
}

/// With three sequences open.
pub(crate) fn on_device(room: Room) -> CudaExecutor<Interpreter> {
    on(Interpreter::new(), room).unwrap()
}

/// The same on this device, if it can be.
pub(crate) fn on<G: Gpu + 'static>(gpu: G, room: Room) -> Result<CudaExecutor<G>> {
    let (rope, tensors) = (&on_processor().rope, random_tensors(SEED));
    let mut executor = CudaExecutor::new(gpu, config(), rope, &tensors, room)?;
    (0..3).for_each(|sequence| assert_eq!(executor.cache_mut().open(), sequence));
    Ok(executor)
}

pub(crate) fn bits(logits: Logits) -> Vec<f32> {
    logits.into_raw_vec_and_offset().0
}

pub(crate) fn text(length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i + 3 * i) % 79).collect()
}

/// The same spans on the processor, which keeps nothing: all earlier tokens are run again.
pub(crate) fn right(spans: &[(&[u32], usize)]) -> Vec<Vec<f32>> {
    let model = on_processor();
    let mut logits = Vec::new();
    for (text, rows) in spans {
        let attention = NaiveAttention::new(model.isa);
        let mut executor = CpuExecutor { model: Arc::clone(&model), attention };
        let pass = Pass::one(Span::new(0, 0, text, Want::All));
        let all = executor.execute(&pass).unwrap();
        logits.extend(all.rows().into_iter().skip(text.len() - rows).map(|row| row.to_vec()));
    }
    logits
}

/// Activations are rounded to bf16, to 2^-9 of themselves on average, some ten times a layer; errors of many elements add up
/// as their root. A hundredth of a logit's usual size is about what that comes to; five of them are not exceeded.
pub(crate) fn assert_near(found: &Logits, right: &[Vec<f32>]) {
    assert_eq!(found.nrows(), right.len());
    for (row, (found, right)) in found.rows().into_iter().zip(right).enumerate() {
        let size = (right.iter().map(|x| x * x).sum::<f32>() / right.len() as f32).sqrt();
        for (token, (found, right)) in found.iter().zip(right).enumerate() {
            let off = (found - right).abs() / size;
            assert!(off < 0.05, "row {row}, token {token}: {found}, right is {right}");
        }
    }
}

/// Logits of a text's last row, fed in pieces that end at these places.
pub(crate) fn fed(ends: &[usize], text: &[u32]) -> Vec<f32> {
    let mut executor = on_device(ROOM);
    let mut start = 0;
    let mut last = None;
    for &end in ends {
        last =
            Some(executor.execute(&Pass::one(Span::new(1, start, &text[start..end], Want::Last))));
        start = end;
    }
    last.unwrap().unwrap().into_raw_vec_and_offset().0
}
