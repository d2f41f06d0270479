//! The faults of this rung: each changes a pass on its way to the executor.
//!
//! All three hide for the same reason: the first token after the prompt can be right, the text is
//! fluent, and nothing crashes.

use crate::break_it::{
    Bench, BreakIt, Checked, Edited, Report, Side, Trial, causal, finite, one_call_equals_two,
    positions_are_slots, same_logits,
};
use crate::decode::{Decoder, NaiveDecoder};
use crate::error::Result;
use crate::executor::Executor;
use crate::pass::{Span, Visible};

/// Tokens that these break-its generate; the naive loop pays for each with the whole text.
const TOKENS: usize = 48;

/// Tokens that a guard takes from the end of the prompt as if they had been generated.
const STEPS: usize = 4;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![FUTURE_VISIBLE, ROPE_OFF_BY_ONE, ROPE_RESTARTS]
}

/// No causal mask in prefill.
pub const FUTURE_VISIBLE: BreakIt = BreakIt {
    name: "future-visible",
    package: "naive-decode",
    cites: &[
        "Mikyx-1/TinyLLM#17",
        "lablup/mlxcel#619",
        "transformer anatomy post, CachedAttention",
    ],
    symptom: "each row of the prompt sees all of the prompt; the text stays fluent, and is another",
    guard: "logits of a row do not change when a later token does",
    weaker_test: Some("a prompt of one token gives the right logits"),
    run: |bench| {
        let decoder = |side| Ok(decoder(bench, side, bench.naive_executor(), future_visible()));
        let guard = |side| {
            let prompt = &bench.prompt;
            match side {
                Side::Clean => causal(|| bench.naive_executor(), prompt),
                Side::Broken => {
                    let edited =
                        || Edited { executor: bench.naive_executor(), edit: future_visible() };
                    causal(edited, prompt)
                }
            }
        };
        let weaker = |side| {
            let one = &bench.prompt[..1];
            let found = decoder(side)?.feed(one)?;
            same_logits("logits after one token", &found, &bench.naive_logits(one)?, "right")
        };
        trial(bench, &FUTURE_VISIBLE, &decoder, &guard, &weaker)
    },
};

/// Generated tokens stand one position further than they should.
pub const ROPE_OFF_BY_ONE: BreakIt = BreakIt {
    name: "rope-off-by-one",
    package: "naive-decode",
    cites: &["Physical-Intelligence/openpi#705", "KV-cache workshop, FAQ"],
    symptom: "one position is left out after the prompt; every word fits, and now and then it is another",
    guard: "every row's RoPE position is its slot",
    weaker_test: Some("the first generated token's logits are right"),
    run: |bench| {
        let decoder = |side| Ok(decoder(bench, side, bench.naive_executor(), one_too_far()));
        let guard = |side| checked_positions(bench, side, one_too_far());
        let weaker = |side| first_logits_are_right(bench, &mut *decoder(side)?);
        trial(bench, &ROPE_OFF_BY_ONE, &decoder, &guard, &weaker)
    },
};

/// Positions of generated tokens start at zero again.
pub const ROPE_RESTARTS: BreakIt = BreakIt {
    name: "rope-restarts",
    package: "naive-decode",
    cites: &["Blaizzy/mlx-vlm#1983", "RobertCsordas/moeut#6"],
    symptom: "the answer believes that it stands inside the prompt; it repeats and mixes things up",
    guard: "feeding a text in two calls gives the logits of feeding it in one",
    weaker_test: Some("every logit of every step is a number"),
    run: |bench| {
        let decoder = |side| Ok(decoder(bench, side, bench.naive_executor(), restart()));
        let prompt = &bench.prompt;
        let first = prompt.len() - STEPS;
        let guard = |side| one_call_equals_two(|| decoder(side), prompt, first);
        let weaker = |side| finite(&mut *decoder(side)?, &prompt[..first], &prompt[first..]);
        trial(bench, &ROPE_RESTARTS, &decoder, &guard, &weaker)
    },
};

fn trial(
    bench: &Bench,
    about: &BreakIt,
    decoder: &dyn Fn(Side) -> Result<Box<dyn Decoder>>,
    guard: &dyn Fn(Side) -> Result<()>,
    weaker_test: &dyn Fn(Side) -> Result<()>,
) -> Result<Report> {
    let weaker_test = Some(weaker_test);
    Trial { about, tokens: TOKENS, decoder, guard, weaker_test, recall: None }
        .run_until_it_shows(bench)
}

/// The naive loop over `executor`, on the broken side with `edit` in between.
fn decoder<E: Executor + 'static>(
    bench: &Bench,
    side: Side,
    executor: E,
    edit: impl FnMut(&mut Span) + 'static,
) -> Box<dyn Decoder> {
    let capacity = bench.model.context();
    match side {
        Side::Clean => Box::new(NaiveDecoder::over(executor, capacity)),
        Side::Broken => Box::new(NaiveDecoder::over(Edited { executor, edit }, capacity)),
    }
}

/// The guard sits next to the model, below the fault, as it would in an engine.
fn checked_positions(
    bench: &Bench,
    side: Side,
    edit: impl FnMut(&mut Span) + 'static,
) -> Result<()> {
    let checked = Checked { executor: bench.naive_executor(), check: positions_are_slots };
    let mut decoder = decoder(bench, side, checked, edit);
    let (first, steps) = bench.prompt.split_at(bench.prompt.len() - STEPS);
    decoder.feed(first)?;
    steps.chunks(1).try_for_each(|step| decoder.feed(step).map(drop))
}

fn first_logits_are_right(bench: &Bench, decoder: &mut dyn Decoder) -> Result<()> {
    let found = decoder.feed(&bench.prompt)?;
    same_logits("logits after the prompt", &found, &bench.naive_logits(&bench.prompt)?, "right")
}

// ANCHOR: future_visible
/// The first pass is the prompt; all its rows see all of it, in this pass and every later one.
fn future_visible() -> impl FnMut(&mut Span) {
    let mut prompt = None;
    move |span| {
        let prompt = *prompt.get_or_insert(span.rows());
        span.sees[..prompt].fill(Visible::until(prompt));
    }
}
// ANCHOR_END: future_visible

// ANCHOR: positions
/// `position = prompt + step + 1`, where `step` already begins at the slot after the prompt.
fn one_too_far() -> impl FnMut(&mut Span) {
    generated_positions(|position, _| position + 1)
}

/// `position = step`: the length of the prompt is not added.
fn restart() -> impl FnMut(&mut Span) {
    generated_positions(|position, prompt| position - prompt)
}

/// Changes the positions of all rows after the first pass's: `change(position, prompt's length)`.
fn generated_positions(change: fn(usize, usize) -> usize) -> impl FnMut(&mut Span) {
    let mut prompt = None;
    move |span| {
        let prompt = *prompt.get_or_insert(span.rows());
        for position in &mut span.positions[prompt..] {
            *position = change(*position, prompt);
        }
    }
}
// ANCHOR_END: positions
