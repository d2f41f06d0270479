//! A small model in bfloat16, and engines for it.

use cuda_executor::{CudaExecutor, Room, kv_bytes_per_token};
use cuda_kernels::{Gpu, Interpreter};
use half::bf16;
use naive_decode::{Config, Element, LoadOptions, Model, Result, Tensors, dense, random_tensors};
use serving::engine::{Engine, EngineOptions, EngineRequest, Event, Step, TokenEvent, Usage};
use std::sync::{Arc, LazyLock};
use std::thread::sleep;
use std::time::Duration;

pub(crate) const VOCAB: u32 = 64;
pub(crate) const SEED: u64 = 3;

/// Heads that are narrower than the kernels', and share keys.
fn config() -> Config {
    Config {
        hidden_size: 24,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        intermediate_size: 40,
        vocab_size: VOCAB as usize,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: None,
        trained_context: 160,
        tied_head: false,
        end_tokens: Vec::new(),
    }
}

/// The processor's model, with weights and keys and values as a GPU has them.
pub(crate) static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| {
    let rounded = |name: &str, shape: &[usize]| -> Result<Vec<f32>> {
        let numbers = random_tensors(SEED)(name, shape)?;
        Ok(numbers.into_iter().map(|number| bf16::from_f32(number).to_f32()).collect())
    };
    let options = LoadOptions { kv_element: Element::Bf16, ..LoadOptions::default() };
    Arc::new(Model::assemble(config(), options, &rounded, &dense(options.isa)).unwrap())
});

/// An engine on the interpreter, with a pool for so many tokens.
pub(crate) fn engine(pool_tokens: usize, change: impl FnOnce(&mut EngineOptions)) -> Engine {
    engine_on(Interpreter::new(), pool_tokens, change)
}

/// The same on this device.
pub(crate) fn engine_on<G: Gpu + 'static>(
    gpu: G,
    pool_tokens: usize,
    change: impl FnOnce(&mut EngineOptions),
) -> Engine {
    let bytes = kv_bytes_per_token(&config()).unwrap();
    let mut options = EngineOptions::for_texts(160, bytes);
    options.rows = 80; // more than the kernels for few rows take
    options.running = 4;
    change(&mut options);
    let target = executor_on(gpu, pool_tokens, options.rows);
    Engine::over(Box::new(target), options).unwrap()
}

/// The model on the interpreter, with a pool for so many tokens and passes of so many rows.
pub(crate) fn executor(pool_tokens: usize, rows: usize) -> CudaExecutor<Interpreter> {
    executor_on(Interpreter::new(), pool_tokens, rows)
}

/// The same on this device.
fn executor_on<G: Gpu + 'static>(gpu: G, pool_tokens: usize, rows: usize) -> CudaExecutor<G> {
    executor_of(gpu, pool_tokens, rows, &random_tensors(SEED))
}

/// A model of these tensors, of the same shape.
pub(crate) fn executor_of<G: Gpu + 'static>(
    gpu: G,
    pool_tokens: usize,
    rows: usize,
    tensors: Tensors,
) -> CudaExecutor<G> {
    let room = Room { tokens: pool_tokens, capacity: 160, rows };
    CudaExecutor::new(gpu, config(), &MODEL.rope, tensors, room).unwrap()
}

/// Numbers that look random and are always the same.
pub(crate) fn tokens(seed: u32, count: usize) -> Vec<u32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % VOCAB
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// What came of a request: its tokens, each with the likeliest and how likely they were, and what it took; its prompt's
/// tokens and its embedding, if it asked for them.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<TokenEvent>,
    pub(crate) usage: Usage,
    pub(crate) prompt: Vec<TokenEvent>,
    pub(crate) embedding: Vec<f32>,
}

/// Hands in all of them at once, greedy, and runs until they are done. Everything must hold after each step.
pub(crate) fn serve(engine: &mut Engine, asked: &[(Vec<u32>, usize)]) -> Vec<Answer> {
    let request = |(prompt, tokens): &(Vec<u32>, usize)| {
        let request = EngineRequest::new(prompt.clone(), *tokens);
        EngineRequest { logprobs: Some(2), ..request }
    };
    serve_requests(engine, asked.iter().map(request))
}

/// The same with all that a request may ask for.
pub(crate) fn serve_requests(
    engine: &mut Engine,
    requests: impl IntoIterator<Item = EngineRequest>,
) -> Vec<Answer> {
    let submit = |request| engine.submit(request).unwrap();
    let mut tickets: Vec<_> = requests.into_iter().map(submit).collect();
    let mut answers: Vec<Answer> = tickets.iter().map(|_| Answer::default()).collect();
    loop {
        let step = engine.step().unwrap();
        engine.check_integrity().unwrap();
        for (ticket, answer) in tickets.iter_mut().zip(&mut answers) {
            while let Ok(event) = ticket.try_recv() {
                match event {
                    Event::Token(token) => answer.tokens.push(token),
                    Event::Finished { usage, .. } => answer.usage = usage,
                    Event::Prompt(prompt) => answer.prompt = prompt,
                    Event::Embedding(embedding) => answer.embedding = embedding,
                    Event::Failed(error) => panic!("{error}"),
                    _ => {}
                }
            }
        }
        match step {
            // Nothing runs until somebody else has found what may come next.
            Step::Idle(_) if engine.state().paused > 0 => sleep(Duration::from_millis(1)),
            Step::Idle(_) => return answers,
            Step::Ran(_) => {}
        }
    }
}

/// The same, each when the one before is done.
pub(crate) fn one_by_one(engine: &mut Engine, asked: &[(Vec<u32>, usize)]) -> Vec<Answer> {
    asked.iter().map(|asked| serve(engine, std::slice::from_ref(asked)).remove(0)).collect()
}

/// Every token, and how likely it and the next likeliest were, to the last bit.
pub(crate) fn assert_same(found: &[Answer], right: &[Answer], what: &str) {
    for (i, (found, right)) in found.iter().zip(right).enumerate() {
        assert!(!right.tokens.is_empty());
        assert!(found.tokens == right.tokens, "request {i}, {what}");
    }
}
