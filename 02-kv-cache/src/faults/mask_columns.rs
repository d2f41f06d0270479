//! A mask cut from the wrong rows.

use super::{Stepper, TOKENS, executor, guards, store};
use naive_decode::break_it::{Bench, BreakIt, Edited, Side, Trial};
use naive_decode::{Decoder, Executor, Result, Span, Visible};

/// Tokens that prefill takes at once.
const CHUNK: usize = 32;

/// The causal mask is a triangle: row `i` sees columns `0..=i`. A chunk that starts at slot `s`
/// needs rows `s..`; cut by its columns alone it gets rows `0..`, and forgets what came before. A
/// single row, where no mask is needed, is not affected.
pub const MASK_COLUMNS: BreakIt = BreakIt {
    name: "mask-columns",
    package: "kv-cache",
    cites: &["rasbt/LLMs-from-scratch#1048", "hyprstream/hyprstream#1521", "QwenLM/Qwen#979"],
    symptom: "a long prompt, fed in chunks, is half forgotten; a short one is not",
    guard: "prefill in chunks gives the logits of prefill in one pass",
    weaker_test: Some("prefill in one pass, then single steps, are as the naive loop's"),
    run: |bench| {
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            let executor = cut_from_row_zero(bench, side)?;
            Ok(Box::new(Stepper::new(executor, bench.model.context(), CHUNK)))
        };
        let guard = |side| {
            guards::any_chunk_gives_the_same(bench, || cut_from_row_zero(bench, side), CHUNK)
        };
        let weaker = |side| {
            guards::equals_naive(&bench.model, cut_from_row_zero(bench, side)?, &bench.prompt)
        };
        Trial {
            about: &MASK_COLUMNS,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

fn cut_from_row_zero(bench: &Bench, side: Side) -> Result<Box<dyn Executor>> {
    let executor = executor(&bench.model, store(&bench.model, 1)?);
    let edit = |span: &mut Span| {
        if span.rows() > 1 {
            for (i, sees) in span.sees.iter_mut().enumerate() {
                *sees = Visible::until(i + 1);
            }
        }
    };
    Ok(match side {
        Side::Clean => Box::new(executor),
        Side::Broken => Box::new(Edited { executor, edit }),
    })
}
