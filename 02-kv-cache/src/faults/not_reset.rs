//! A cache that still holds the request before.

use super::{TOKENS, other_prompt, store};
use crate::{Cached, CachedDecoder, KvCache, forward_kv_cache};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, same_logits};
use naive_decode::{
    Attention, Decoder, Executor, Pass, Result, Span, Want, argmax, forward_attention,
};

/// Tokens that the request before has generated.
const EARLIER_TOKENS: usize = 8;

/// A cache whose reset does nothing.
pub struct KeepsRows<A>(A);

impl<A: Attention> Attention for KeepsRows<A> {
    forward_attention!(0: begin attend commit);
}

impl<A: KvCache> KvCache for KeepsRows<A> {
    forward_kv_cache!(0: len capacity bytes_per_token allocated_bytes);

    fn truncate(&mut self, _sequence: usize, _length: usize) -> Result<()> {
        Ok(())
    }
}

/// The second call goes on where the first one ended.
pub const CACHE_NOT_RESET: BreakIt = BreakIt {
    name: "cache-not-reset",
    package: "kv-cache",
    cites: &["rasbt/LLMs-from-scratch#925", "huggingface/candle#3901"],
    symptom: "the first request is right; the second one still sees it, and answers with its facts",
    guard: "a new request says that it starts at slot 0, and the cache must agree",
    weaker_test: Some("the first request decodes as the naive loop does"),
    run: |bench| {
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            match side {
                Side::Clean => Ok(Box::new(second_call(bench, cache(bench)?)?)),
                Side::Broken => Ok(Box::new(second_call(bench, KeepsRows(cache(bench)?))?)),
            }
        };
        let guard = |side| match side {
            Side::Clean => starts_at_zero(bench, second_call(bench, cache(bench)?)?),
            Side::Broken => starts_at_zero(bench, second_call(bench, KeepsRows(cache(bench)?))?),
        };
        let weaker = |side| {
            let first: Box<dyn Decoder> = match side {
                Side::Clean => {
                    Box::new(CachedDecoder::new(bench.model.clone(), cache(bench)?, None)?)
                }
                Side::Broken => Box::new(CachedDecoder::new(
                    bench.model.clone(),
                    KeepsRows(cache(bench)?),
                    None,
                )?),
            };
            first_call_is_right(bench, first)
        };
        Trial {
            about: &CACHE_NOT_RESET,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

fn cache(bench: &Bench) -> Result<Cached<crate::ContiguousStore>> {
    Ok(Cached::new(store(&bench.model, 1)?, bench.model.isa))
}

/// Another user's request, from start to end; then the reset.
fn second_call<A: KvCache>(bench: &Bench, cache: A) -> Result<CachedDecoder<A>> {
    let mut decoder = CachedDecoder::new(bench.model.clone(), cache, None)?;
    let mut logits = decoder.feed(&other_prompt(bench)?)?;
    for _ in 0..EARLIER_TOKENS {
        logits = decoder.feed(&[argmax(&logits)?])?;
    }
    decoder.truncate(0)?;
    Ok(decoder)
}

fn starts_at_zero<A: KvCache>(bench: &Bench, mut decoder: CachedDecoder<A>) -> Result<()> {
    decoder.executor.execute(&Pass::one(Span::new(0, 0, &bench.prompt, Want::Last))).map(drop)
}

fn first_call_is_right(bench: &Bench, mut decoder: Box<dyn Decoder>) -> Result<()> {
    let found = decoder.feed(&bench.prompt)?;
    let expected = bench.naive_logits(&bench.prompt)?;
    same_logits("logits of the first call", &found, &expected, "as the naive loop has it")
}
