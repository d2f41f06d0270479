//! Guards and weaker tests that several faults share. Each says what was wrong, where, and what
//! would have been right.

use crate::decode::Decoder;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::pass::{Pass, Span, Want};

/// Every row's RoPE position is its slot. True as long as no rung drops or moves slots.
///
/// # Errors
/// Names the first row whose position is another.
pub fn positions_are_slots(pass: &Pass) -> Result<()> {
    for span in &pass.spans {
        for (slot, &position) in (span.start..).zip(&span.positions) {
            if position != slot {
                let what = format!("RoPE position of token {slot} of sequence {}", span.sequence);
                return Err(Error::invalid(what, position, format!("{slot}, its place")));
            }
        }
    }
    Ok(())
}

/// Both are the same bits.
///
/// # Errors
/// Names the first logit that differs; `what` says whose logits, `expected_from` who is right.
pub fn same_logits(what: &str, found: &[f32], expected: &[f32], expected_from: &str) -> Result<()> {
    if found.len() != expected.len() {
        let expected = format!("{}, as {expected_from}", expected.len());
        return Err(Error::invalid(format!("number of {what}"), found.len(), expected));
    }
    let differs = |(found, expected): (&f32, &f32)| found.to_bits() != expected.to_bits();
    match found.iter().zip(expected).position(differs) {
        None => Ok(()),
        Some(token) => Err(Error::invalid(
            format!("{what}, token {token}"),
            format!("{:.6}", found[token]),
            format!("{:.6}, {expected_from}", expected[token]),
        )),
    }
}

/// A row's logits do not depend on tokens after it: the last token is exchanged for another, and the
/// logits of all rows before it must keep every bit. `executor` is fresh on each call.
///
/// # Errors
/// Names the first row that changed. A text without a row before its last token, which shows nothing.
pub fn causal<E: Executor>(executor: impl Fn() -> E, tokens: &[u32]) -> Result<()> {
    if tokens.len() < 2 {
        return Err(Error::invalid("tokens of a text with a future", tokens.len(), "at least 2"));
    }
    let last = tokens.len() - 1;
    let mut exchanged = tokens.to_vec();
    let another = tokens.iter().find(|&&token| token != tokens[last]);
    exchanged[last] = another.copied().unwrap_or(u32::from(tokens[last] == 0));
    let run = |tokens: &[u32]| executor().execute(&Pass::one(Span::new(0, 0, tokens, Want::All)));
    let (before, after) = (run(tokens)?, run(&exchanged)?);
    for (row, (before, after)) in before.outer_iter().zip(after.outer_iter()).enumerate().take(last)
    {
        let what = format!("logits of row {row} once token {last} was exchanged");
        same_logits(&what, &after.to_vec(), &before.to_vec(), "as before: the future is not seen")?;
    }
    Ok(())
}

/// Feeding a text in two calls gives the same logits as feeding it in one. The first call takes
/// `first` tokens; `decoder` is fresh on each call.
///
/// # Errors
/// Names the first logit that differs.
pub fn one_call_equals_two(
    decoder: impl Fn() -> Result<Box<dyn Decoder>>,
    tokens: &[u32],
    first: usize,
) -> Result<()> {
    let whole = decoder()?.feed(tokens)?;
    let mut in_two = decoder()?;
    in_two.feed(&tokens[..first])?;
    let found = in_two.feed(&tokens[first..])?;
    let what = format!("logits after {first} + {} tokens", tokens.len() - first);
    same_logits(&what, &found, &whole, "as after all of them in one call")
}

/// Every logit of every step is a number.
///
/// # Errors
/// Names the first that is not.
pub fn finite(decoder: &mut dyn Decoder, prompt: &[u32], steps: &[u32]) -> Result<()> {
    let calls = std::iter::once(prompt).chain(steps.chunks(1));
    for (step, tokens) in calls.enumerate() {
        let logits = decoder.feed(tokens)?;
        if let Some(token) = logits.iter().position(|logit| !logit.is_finite()) {
            let what = format!("logit of token {token} at step {step}");
            return Err(Error::invalid(what, logits[token], "a number"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::break_it::Edited;
    use crate::executor::Logits;
    use crate::pass::Visible;
    use ndarray::Array2;

    /// A row's one logit is the sum of the tokens that it sees.
    struct Sums;

    impl Executor for Sums {
        fn execute(&mut self, pass: &Pass) -> Result<Logits> {
            let Span { tokens, sees, .. } = &pass.spans[0];
            let sum = |row: usize| tokens[sees[row].range.clone()].iter().sum::<u32>() as f32;
            Ok(Array2::from_shape_fn((tokens.len(), 1), |(row, _)| sum(row)))
        }
    }

    #[test]
    fn a_future_that_is_seen_is_noticed_in_any_text_that_has_one() {
        let sees_all = |span: &mut Span| {
            let all = Visible::until(span.end());
            span.sees.fill(all);
        };
        for text in [&[3, 4][..], &[3, 3], &[0, 0, 0], &[3, 4, 3]] {
            causal(|| Sums, text).unwrap();
            let edited = || Edited { executor: Sums, edit: sees_all };
            let said = causal(edited, text).unwrap_err().to_string();
            assert!(said.starts_with("logits of row 0 once token"), "{text:?}: {said}");
        }
        for text in [&[][..], &[3]] {
            let words = format!("a future is {}, expected at least 2", text.len());
            assert!(causal(|| Sums, text).unwrap_err().to_string().ends_with(&words));
        }
    }
}
