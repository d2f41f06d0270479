//! RoPE positions that part from the cache's slots.

use super::{Stepper, TOKENS, executor, store};
use naive_decode::break_it::{Bench, BreakIt, Checked, Edited, Side, Trial, positions_are_slots};
use naive_decode::{Decoder, Error, Executor, Logits, NaiveDecoder, Pass, Result, Span, argmax};

/// Tokens that a check takes from the end of the prompt as if they had been generated.
const STEPS: usize = 4;

/// Tokens to generate without a cache, where each costs the whole text.
const UNCACHED_TOKENS: usize = 32;

/// The offset is advanced by the prompt's length once too often.
pub const ROPE_OFFSET_GROWS: BreakIt = BreakIt {
    name: "rope-offset-grows",
    package: "kv-cache",
    cites: &["skyzh/tiny-llm#46"],
    symptom: "the answer starts a whole prompt too far away; what was near is far",
    guard: "every row's RoPE position is its slot",
    weaker_test: Some("positions of generated tokens rise by one"),
    run: |bench| {
        let decoder =
            |side| Ok(stepper(bench, side, executor(&bench.model, store(&bench.model, 1)?)));
        let guard = |side| {
            let executor = executor(&bench.model, store(&bench.model, 1)?);
            let checked = Checked { executor, check: positions_are_slots };
            feed_steps(bench, &mut *stepper(bench, side, checked))
        };
        let weaker = |side| {
            let executor = executor(&bench.model, store(&bench.model, 1)?);
            feed_steps(bench, &mut *stepper(bench, side, Rising { executor, last: None }))
        };
        Trial {
            about: &ROPE_OFFSET_GROWS,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// A call without a cache starts at the position where the last cached call ended.
///
/// RoPE hides this one almost perfectly: it only knows distances, and all distances are right.
/// Logits differ in their last bits. A model with learnt positions would fall silent, and this one
/// will too, once the left-over position and the new text together pass the context.
pub const CACHED_POSITION_LEAKS: BreakIt = BreakIt {
    name: "cached-position-leaks",
    package: "kv-cache",
    cites: &["rasbt/LLMs-from-scratch#1048", "huggingface/candle#1517"],
    symptom: "no token changes, since RoPE knows distances only; but logits do, and long texts are refused",
    guard: "every row's RoPE position is its slot",
    weaker_test: Some("the likeliest token is the same as before at every step"),
    run: |bench| {
        let decoder = |side| Ok(uncached(bench, side, bench.naive_executor()));
        let guard = |side| {
            let executor = bench.naive_executor();
            let checked = Checked { executor, check: positions_are_slots };
            feed_steps(bench, &mut *uncached(bench, side, checked))
        };
        let weaker = |side| {
            let mut decoder = decoder(side)?;
            let mut right = NaiveDecoder::new(bench.model.clone());
            for (step, tokens) in steps(bench).enumerate() {
                let found = argmax(&decoder.feed(tokens)?)?;
                let expected = argmax(&right.feed(tokens)?)?;
                if found != expected {
                    let what = format!("likeliest token at step {step}");
                    return Err(Error::invalid(what, found, expected.to_string()));
                }
            }
            Ok(())
        };
        Trial {
            about: &CACHED_POSITION_LEAKS,
            tokens: UNCACHED_TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run(bench)
    },
};

/// Cached decoding over `executor`; on the broken side the offset has grown by the prompt's length.
fn stepper<E: Executor + 'static>(bench: &Bench, side: Side, executor: E) -> Box<dyn Decoder> {
    let mut prompt = None;
    let edit = move |span: &mut Span| {
        let prompt = *prompt.get_or_insert(span.rows());
        if span.start > 0 {
            span.positions.iter_mut().for_each(|position| *position += prompt);
        }
    };
    let context = bench.model.context();
    match side {
        Side::Clean => Box::new(Stepper::new(executor, context, usize::MAX)),
        Side::Broken => Box::new(Stepper::new(Edited { executor, edit }, context, usize::MAX)),
    }
}

/// The naive loop over `executor`; on the broken side a cached call has been made before, and has
/// left its position behind.
fn uncached<E: Executor + 'static>(bench: &Bench, side: Side, executor: E) -> Box<dyn Decoder> {
    let left_over = bench.prompt.len() + TOKENS;
    let edit = move |span: &mut Span| {
        span.positions.iter_mut().for_each(|position| *position += left_over);
    };
    let context = bench.model.context();
    match side {
        Side::Clean => Box::new(NaiveDecoder::over(executor, context)),
        Side::Broken => Box::new(NaiveDecoder::over(Edited { executor, edit }, context)),
    }
}

/// The prompt, but for its last tokens, and then those one by one.
fn steps(bench: &Bench) -> impl Iterator<Item = &[u32]> {
    let (prefill, steps) = bench.prompt.split_at(bench.prompt.len() - STEPS);
    std::iter::once(prefill).chain(steps.chunks(1))
}

fn feed_steps(bench: &Bench, decoder: &mut dyn Decoder) -> Result<()> {
    steps(bench).try_for_each(|tokens| decoder.feed(tokens).map(drop))
}

/// Weaker test: single rows stand one position further each time.
struct Rising<E> {
    executor: E,
    last: Option<usize>,
}

impl<E: Executor> Executor for Rising<E> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        if let [position] = pass.positions()[..]
            && let Some(last) = self.last.replace(position)
            && position != last + 1
        {
            let expected = format!("{}, one more than the last", last + 1);
            return Err(Error::invalid("position", position, expected));
        }
        self.executor.execute(pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_left_over_position_does_in_the_end_is_refuse_texts_that_would_fit() {
        let bench = Bench::embedded().unwrap();
        let long = vec![bench.prompt[0]; bench.model.context() - bench.prompt.len()];
        uncached(&bench, Side::Clean, bench.naive_executor()).feed(&long).unwrap();
        let error = uncached(&bench, Side::Broken, bench.naive_executor()).feed(&long).unwrap_err();
        assert!(matches!(error, Error::Capacity { .. }), "{error}");
    }
}
