//! The processor's tokens; the same bits in any company, from any cache, with guesses and without.

use crate::world::{MODEL, assert_same, engine, engine_on, one_by_one, serve, tokens};
use cuda_kernels::{DeviceError, DeviceResult, Gpu, Interpreter, Launch, Recording, forward_gpu};
use naive_decode::{CpuExecutor, Executor, NaiveAttention, Pass, Result, Sampler, Span, Want};
use serving::engine::{EngineHandle, EngineRequest, Event, Refused};
use speculative::{DraftTree, FromText, Proposer};
use std::sync::Arc;

/// Prompts of several lengths; the first two begin alike, past a block.
fn asked() -> Vec<(Vec<u32>, usize)> {
    let shared = tokens(9, 37);
    let with = |more: u32, count: usize| [&shared[..], &tokens(more, count)].concat();
    vec![(with(1, 5), 9), (with(2, 20), 12), (tokens(3, 1), 14), (tokens(4, 70), 8)]
}

/// How far a logit may be off, as a part of the usual size of one: activations are rounded to bfloat16 some ten times a
/// layer, and what `cuda-executor`'s tests hold each logit to is the same.
const BOUND: f32 = 0.05;

#[test]
fn greedy_tokens_are_those_of_the_processor() {
    // On the processor every step runs the whole text. A token counts as far as the second likeliest is behind by more
    // than two logits can be off together; from the first that does not on, texts may differ.
    let certain = |prompt: &[u32], most: usize| {
        let (mut text, mut certain) = (prompt.to_vec(), Vec::new());
        while certain.len() < most {
            let attention = NaiveAttention::new(MODEL.isa);
            let mut executor = CpuExecutor { model: Arc::clone(&MODEL), attention };
            let pass = Pass::one(Span::new(0, 0, &text, Want::Last));
            let logits: Vec<f32> = executor.execute(&pass).unwrap().into_iter().collect();
            let size = (logits.iter().map(|x| x * x).sum::<f32>() / logits.len() as f32).sqrt();
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
            if logits[order[0]] - logits[order[1]] <= 2.0 * BOUND * size {
                break;
            }
            text.push(order[0] as u32);
            certain.push(order[0] as u32);
        }
        certain
    };
    let asked: Vec<_> = (20..28).map(|seed| (tokens(seed, 6 + seed as usize), 8)).collect();
    let answers = serve(&mut engine(640, |_| {}), &asked);
    let mut compared = 0;
    for ((prompt, most), answer) in asked.iter().zip(&answers) {
        let certain = certain(prompt, *most);
        let found: Vec<u32> = answer.tokens.iter().map(|event| event.token).collect();
        assert_eq!(found[..certain.len()], certain);
        compared += certain.len();
    }
    assert!(compared >= 24, "{compared} tokens of 64 were certain");
}

#[test]
fn a_request_has_the_same_bits_alone_and_among_others() {
    let alone: Vec<_> = asked()
        .iter()
        .map(|asked| serve(&mut engine(640, |_| {}), std::slice::from_ref(asked)).remove(0))
        .collect();
    assert_same(&serve(&mut engine(640, |_| {}), &asked()), &alone, "among others");
}

#[test]
fn a_prefix_that_is_known_gives_the_bits_of_one_that_is_read() {
    let found = one_by_one(&mut engine(640, |_| {}), &asked());
    let read = one_by_one(&mut engine(640, |options| options.prefixes = false), &asked());
    assert_same(&found, &read, "with prefixes");
    // Two whole blocks of what both begin with.
    assert_eq!(found[1].usage.cached_tokens, 32);
    assert_eq!(read[1].usage.cached_tokens, 0);
}

/// Proposes what came a few tokens before, and something else beside it.
struct Wild;

impl FromText for Wild {}

impl Proposer for Wild {
    fn name(&self) -> &'static str {
        "wild guesses"
    }

    fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
        let mut tree = DraftTree::empty();
        for back in [3, 2] {
            let start = context.len().saturating_sub(back);
            let chain: Vec<u32> = context[start..].iter().copied().take(depth).collect();
            tree.add_chain(None, &chain);
        }
        Ok(tree)
    }
}

#[test]
fn guesses_change_no_bit() {
    // Prompts that go round in circles, so that some guesses come true.
    let asked: Vec<_> = (0..3u32).map(|i| (tokens(i, 4).repeat(5), 16)).collect();
    let plain = serve(&mut engine(640, |options| options.draft = 0), &asked);
    let guessed = serve(
        &mut engine(640, |options| {
            options.draft = 3;
            options.proposer = Arc::new(|| Box::new(Wild));
        }),
        &asked,
    );
    assert_same(&guessed, &plain, "with guesses");
    let drafted: usize = guessed.iter().map(|answer| answer.usage.drafted_tokens).sum();
    assert!(drafted > 0);
}

#[test]
fn a_pool_that_is_too_small_changes_no_bit() {
    let asked: Vec<_> = (0..4u32).map(|i| (tokens(30 + i, 5), 55)).collect();
    let roomy = serve(&mut engine(640, |options| options.draft = 0), &asked);
    for host_bytes in [0, 1 << 24] {
        let mut small = engine(128, |options| {
            options.draft = 0;
            options.host_bytes = host_bytes;
        });
        let answers = serve(&mut small, &asked);
        assert_same(&answers, &roomy, "after waiting");
        let counters = small.state().counters;
        assert!(counters.preemptions > 0);
        assert_eq!(counters.parked > 0, host_bytes > 0);
    }
}

#[test]
fn hoppers_kernel_for_prompts_changes_no_bit() {
    let hopper = || {
        let mut gpu = Interpreter::new();
        gpu.is_hopper = true;
        engine_on(gpu, 640, |options| {
            options.draft = 3;
            options.proposer = Arc::new(|| Box::new(Wild));
        })
    };
    // One of the texts goes round in circles and is guessed at while the prompt of another is read.
    let mut asked = asked();
    asked.insert(0, (tokens(5, 4).repeat(2), 14));
    let alone: Vec<_> = asked
        .iter()
        .map(|asked| serve(&mut engine(640, |_| {}), std::slice::from_ref(asked)).remove(0))
        .collect();
    assert_same(&serve(&mut hopper(), &asked), &alone, "on a Hopper, among others");
}

/// A device that is gone after so many more launches and replays.
struct Dying(Interpreter, usize);

impl Dying {
    fn live(&mut self) -> DeviceResult<()> {
        self.1 = self.1.checked_sub(1).ok_or_else(|| DeviceError("an illegal address".into()))?;
        Ok(())
    }
}

impl Gpu for Dying {
    forward_gpu!(0: is_hopper alloc write read copy prepare record finish);

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        self.live()?;
        self.0.launch(launch)
    }

    fn replay(&mut self, recording: Recording) -> DeviceResult<()> {
        self.live()?;
        self.0.replay(recording)
    }
}

#[test]
fn an_engine_whose_device_fails_ends_and_says_so_to_everyone() {
    let request = || EngineRequest::new(tokens(1, 20), 30);
    let handle = EngineHandle::start(engine_on(Dying(Interpreter::new(), 60), 640, |_| {}));
    let handle = handle.unwrap();
    let mut tickets = [handle.submit(request()).unwrap(), handle.submit(request()).unwrap()];
    for ticket in &mut tickets {
        let mut last = None;
        while let Some(event) = ticket.blocking_recv() {
            last = Some(event);
        }
        match last.unwrap() {
            Event::Failed(error) => assert_eq!(error.to_string(), "CUDA: an illegal address"),
            other => panic!("{other:?}"),
        }
    }
    let began = std::time::Instant::now();
    while !handle.is_drained() {
        assert!(began.elapsed().as_secs() < 20, "the engine is gone");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(matches!(handle.submit(request()).err().unwrap(), Refused::Ended));
}
