//! From logits to tokens: masks, sampling, guesses, the end.

use super::event::{Event, FinishReason, TokenEvent};
use super::form::{Allowed, Form};
use super::member::Member;
use super::pass::{After, SpanRows};
use super::request::TokenSet;
use super::rules::{check_left, is_nothing_left};
use naive_decode::{Result, Span};
use ndarray::{ArrayView2, s};
use std::borrow::Cow;
use std::time::Instant;

/// What came of one request's span.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Tokens of the text that the pool holds from now on, and the slots that they were written to.
    pub(super) tokens: Vec<u32>,
    pub(super) slots: Vec<usize>,
    /// Tokens that were chosen.
    pub(super) chosen: usize,
    /// Guesses that rows were run for, the first if any; those that were looked at, one after the other; those that came true.
    pub(super) guessed: usize,
    pub(super) judged: usize,
    pub(super) came_true: usize,
    /// Why the text is done, if it is.
    pub(super) end: Option<FinishReason>,
}

impl Member {
    /// Takes in what a pass gave of a span's wanted rows. Until then what may come next is waited for; where it is not known
    /// by then, the last row counts as not run.
    ///
    /// # Errors
    /// If no token can be chosen. The request cannot go on then.
    pub(super) fn take_in(
        &mut self,
        span: &Span,
        wanted: &SpanRows,
        until: Instant,
    ) -> Result<Outcome> {
        let guessed = self.guessing.tree.len();
        let rows = span.rows() - guessed;
        let mut outcome = Outcome {
            tokens: span.tokens[..rows].to_vec(),
            slots: (span.start..span.start + rows).collect(),
            guessed,
            ..Outcome::default()
        };
        if self.reads_all() {
            self.score(span.start, wanted.numbers().slice(s![..rows, ..]));
        }
        if span.start + rows < self.text.len() {
            return Ok(outcome);
        }
        if self.embeds {
            self.events.push(Event::Embedding(wanted.numbers().iter().copied().collect()));
        }
        if let Some(scored) = self.scored.take() {
            self.events.push(Event::Prompt(scored));
        }
        if self.max_tokens == 0 {
            outcome.end = Some(FinishReason::Length);
            return Ok(outcome);
        }
        // The rows that count: after the text's last token, and after each guess.
        let last = wanted.rows() - 1 - guessed;
        let path = self.write(|row| wanted.after(last + row), until, &mut outcome)?;
        if outcome.chosen == 0 {
            outcome.tokens.pop();
            outcome.slots.pop();
            outcome.guessed = 0;
            self.form.iter_mut().for_each(Form::put_off);
        }
        for node in path {
            outcome.tokens.push(self.guessing.tree.nodes()[node].token);
            outcome.slots.push(span.start + rows + node);
        }
        Ok(outcome)
    }

    // ANCHOR: write
    /// Chooses tokens for as long as the one before was guessed: `after` 0 is what is known of the token after the text,
    /// `after` `1 + i` of that after guess `i`. Gives the guesses that came true and were gone on from. Where a form is not
    /// known `until` then, it ends there.
    ///
    /// Each token is chosen as it would be without guesses, with the next random number of the request's own. So
    /// guesses change when a token comes, never which. For guesses that are named and not drawn, as a
    /// lookup's are, this keeps as many as the rule of acceptance by probability does.
    fn write<'a>(
        &mut self,
        after: impl Fn(usize) -> After<'a>,
        until: Instant,
        outcome: &mut Outcome,
    ) -> Result<Vec<usize>> {
        let mut path = Vec::new();
        loop {
            let at = path.last().copied();
            let token = match after(at.map_or(0, |node: usize| node + 1)) {
                After::Logits(logits) => {
                    let Some(allowed) = self.allowed(until) else {
                        // Guesses may be left that nobody has looked at.
                        path.pop();
                        return Ok(path);
                    };
                    let token = self.next_token(logits, allowed?)?;
                    self.events.push(Event::Token(TokenEvent::new(token, logits, self.logprobs)));
                    token
                }
                After::Token(token) => {
                    // Its random number is used up all the same: the next one is the next token's.
                    self.sampler.uniform();
                    self.events.push(Event::Token(TokenEvent::alone(token)));
                    token
                }
            };
            self.text.push(token);
            outcome.chosen += 1;
            let tree = &self.guessing.tree;
            let guess = tree.children(at).find(|&child| tree.nodes()[child].token == token);
            outcome.judged += usize::from(tree.children(at).next().is_some());
            outcome.came_true += usize::from(guess.is_some());
            outcome.end = self.end_after(token);
            if let Some(form) = self.form.as_mut().filter(|_| outcome.end.is_none()) {
                form.accept(token);
            }
            match guess {
                Some(guess) if outcome.end.is_none() => path.push(guess),
                _ => return Ok(path),
            }
        }
    }
    // ANCHOR_END: write

    /// What may come next; nothing if that is not known by then.
    fn allowed(&mut self, until: Instant) -> Option<Allowed> {
        self.form.as_mut().map_or(Some(Ok(None)), |form| form.next(until))
    }

    // ANCHOR: next
    /// The next token, by logits `[vocab]`: one of those that are allowed, if not all are.
    fn next_token(&mut self, logits: &[f32], allowed: Option<TokenSet>) -> Result<u32> {
        let mut scores = Cow::Borrowed(logits);
        if let Some(allowed) = &allowed {
            allowed.keep(scores.to_mut());
        }
        // What is whole ends, whatever else may be said, and however many tokens were asked for at least.
        if let Some(rules) = self.rules.as_ref().filter(|_| self.may_go_on(&scores)) {
            rules.apply(scores.to_mut(), &self.text[self.prompt..]);
            // So does what might have gone on, if nothing is left for it to go on with.
            let ends = self.end_tokens.iter().map(|&token| token as usize);
            let ends =
                ends.filter(|&token| allowed.as_ref().is_some_and(|it| it.contains(token as u32)));
            if is_nothing_left(&scores) {
                ends.for_each(|token| scores.to_mut()[token] = logits[token]);
            }
            check_left(&scores)?;
        }
        if self.generated() < self.min_tokens && self.may_go_on(&scores) {
            for &token in &self.end_tokens {
                scores.to_mut()[token as usize] = f32::NEG_INFINITY;
            }
        }
        self.sampler.sample(&scores, &self.text)
    }
    // ANCHOR_END: next

    /// Whether any token is left, by scores `[vocab]`, after which there is another.
    fn may_go_on(&self, scores: &[f32]) -> bool {
        let mut left = (0..).zip(scores).filter(|(_, score)| **score > f32::NEG_INFINITY);
        left.any(|(token, _)| !self.end_tokens.contains(&token))
    }

    fn end_after(&self, token: u32) -> Option<FinishReason> {
        if self.end_tokens.contains(&token) {
            return Some(FinishReason::Stop);
        }
        (self.generated() >= self.max_tokens).then_some(FinishReason::Length)
    }

    /// Notes how likely the prompt's tokens were, by logits `[rows, vocab]` after the tokens from `start` on.
    fn score(&mut self, start: usize, logits: ArrayView2<f32>) {
        let top = Some(self.scored_top);
        let Some(scored) = &mut self.scored else { return };
        for (next, row) in (start + 1..self.prompt).zip(logits.outer_iter()) {
            // One that had to read its prompt again knows some already.
            if next == scored.len() + 1 {
                let row = row.to_slice().expect("logits are contiguous");
                scored.push(TokenEvent::new(self.text[next], row, top));
            }
        }
    }
}
