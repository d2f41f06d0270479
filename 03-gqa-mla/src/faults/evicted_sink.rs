//! The attention sink is evicted.

use crate::evict::{Budget, EvictingCache, Sinks};
use kv_cache::faults::guards::equals_naive;
use kv_cache::{CachedDecoder, KvCache, forward_kv_cache};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{
    Attention, CpuExecutor, Decoder, Error, Executor, Model, Pass, Result, Span, Want,
    forward_attention,
};
use std::sync::Arc;

/// Tokens that this break-it generates.
const TOKENS: usize = 80;

/// Entries that each head keeps, on both sides.
const BUDGET: usize = 48;

/// Tokens that prefill takes at once: what is dropped matters to the next chunk already.
const CHUNK: usize = 16;

/// An evicting cache that drops the sinks as soon as it would have to drop anything.
///
/// This is what a plain ring does: the oldest entry goes first, and the oldest of all is the sink.
pub struct ForgetsSinks(EvictingCache<Sinks>);

impl ForgetsSinks {
    /// With a cache that would keep them.
    pub fn new(cache: EvictingCache<Sinks>) -> Self {
        ForgetsSinks(cache)
    }

    /// The cache beneath.
    pub fn cache(&self) -> &EvictingCache<Sinks> {
        &self.0
    }
}

impl Attention for ForgetsSinks {
    forward_attention!(0: begin attend);

    // ANCHOR: fault
    fn commit(&mut self, pass: &Pass) {
        self.0.commit(pass);
        for span in &pass.spans {
            if span.end() > self.0.budget() {
                self.0
                    .drop_range(span.sequence, 0..Sinks::FOUR.count)
                    .expect("the sequence has just been committed");
            }
        }
    }
    // ANCHOR_END: fault
}

impl KvCache for ForgetsSinks {
    forward_kv_cache!(0: len capacity truncate bytes_per_token allocated_bytes);
}

/// A window that slides past the first tokens.
pub const EVICTED_SINK: BreakIt = BreakIt {
    name: "evicted-sink",
    package: "gqa-mla",
    cites: &["Xiao et al. 2023 (StreamingLLM), §3.1", "vllm-project/vllm#1304"],
    symptom: "all is well until the text is longer than the window; then the weight that rested \
              on the first tokens goes wherever it can, and the text is another",
    guard: "every head still holds the first four tokens",
    weaker_test: Some("a text no longer than the window decodes as the naive loop does"),
    run: |bench| {
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            let model = Arc::clone(&bench.model);
            match side {
                Side::Clean => Ok(Box::new(CachedDecoder::new(model, cache(bench)?, Some(CHUNK))?)),
                Side::Broken => {
                    let cache = ForgetsSinks::new(cache(bench)?);
                    Ok(Box::new(CachedDecoder::new(model, cache, Some(CHUNK))?))
                }
            }
        };
        let guard = |side| match side {
            Side::Clean => {
                let mut cache = cache(bench)?;
                walk(&bench.model, &mut cache, &bench.prompt)?;
                sinks_are_held(&cache, &bench.model, 0)
            }
            Side::Broken => {
                let mut cache = ForgetsSinks::new(cache(bench)?);
                walk(&bench.model, &mut cache, &bench.prompt)?;
                sinks_are_held(cache.cache(), &bench.model, 0)
            }
        };
        let weaker = |side| {
            let short = &bench.prompt[..BUDGET.min(bench.prompt.len())];
            let model = Arc::clone(&bench.model);
            let attention = cache(bench)?;
            let executor: Box<dyn Executor> = match side {
                Side::Clean => Box::new(CpuExecutor { model, attention }),
                Side::Broken => {
                    Box::new(CpuExecutor { model, attention: ForgetsSinks::new(attention) })
                }
            };
            equals_naive(&bench.model, executor, short)
        };
        Trial {
            about: &EVICTED_SINK,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

fn cache(bench: &Bench) -> Result<EvictingCache<Sinks>> {
    let (model, budget) = (&bench.model, Budget::Entries(BUDGET));
    EvictingCache::new(model, model.context(), 1, budget, Sinks::FOUR)
}

fn walk(model: &Model, cache: &mut dyn KvCache, tokens: &[u32]) -> Result<()> {
    for (start, chunk) in (0..).step_by(CHUNK).zip(tokens.chunks(CHUNK)) {
        model.forward(&Pass::one(Span::new(0, start, chunk, Want::Last)), &mut *cache)?;
    }
    Ok(())
}

// ANCHOR: guard
/// Every head of every layer that keeps anything holds the sequence's first tokens. A few
/// comparisons a head: cheap enough to run after every pass.
///
/// # Errors
/// Names the first layer and head that does not, and the first slot that it holds instead.
pub fn sinks_are_held(cache: &EvictingCache<Sinks>, model: &Model, sequence: usize) -> Result<()> {
    let sinks = Sinks::FOUR.count.min(cache.len(sequence));
    for (layer, block) in model.blocks.iter().enumerate() {
        for kv_head in 0..block.projection.kv().map_or(0, |kv| kv.heads) {
            let slots = cache.slots(sequence, layer, kv_head);
            if !(0..sinks).all(|sink| slots.get(sink) == Some(&sink)) {
                let what = format!("first slots held in layer {layer}, head {kv_head}");
                let found = format!("{:?}", &slots[..sinks.min(slots.len())]);
                return Err(Error::invalid(what, found, format!("0 to {}: the sinks", sinks - 1)));
            }
        }
    }
    Ok(())
}
// ANCHOR_END: guard
