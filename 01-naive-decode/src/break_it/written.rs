//! Two texts that are compared as they are: for faults that leave every logit right and choose, or serve, wrongly.

use super::report::{Report, Surprise};
use super::trial::{check, surprise, text};
use super::{Bench, BreakIt, Side};
use crate::error::Result;
use crate::executor::Executor;
use crate::pass::{Pass, Span, Want};

/// What both sides have written after one prompt, however they came to it.
pub struct Written<'a> {
    /// The break-it.
    pub about: &'a BreakIt,
    /// What was asked.
    pub prompt: &'a [u32],
    /// What correct code answered.
    pub clean: &'a [u32],
    /// What the faulty code answered.
    pub broken: &'a [u32],
    /// The check that must pass on the clean side and fail on the broken one.
    pub guard: &'a dyn Fn(Side) -> Result<()>,
    /// The check that passes on both sides.
    pub weaker_test: Option<&'a dyn Fn(Side) -> Result<()>>,
}

impl Written<'_> {
    /// Runs both checks. The model is the same on both sides, and so is its surprise.
    ///
    /// # Errors
    /// If the model cannot run the texts.
    pub fn report(self, bench: &Bench) -> Result<Report> {
        let Written { about, prompt, clean, broken, guard, weaker_test } = self;
        let all = [prompt, clean].concat();
        let pass = Pass::one(Span::new(0, 0, &all, Want::All));
        let logits = bench.naive_executor().execute(&pass)?;
        let before = logits.outer_iter().skip(prompt.len() - 1);
        let before: Vec<Vec<f32>> = before.take(clean.len()).map(|row| row.to_vec()).collect();
        let surprise = surprise(&before, clean);
        // A text that ends early differs where it ends.
        let differ = clean.iter().zip(broken).position(|(a, b)| a != b);
        let shorter = clean.len().min(broken.len());
        let ends_early = (clean.len() != broken.len()).then_some(shorter);
        Ok(Report {
            name: about.name,
            package: about.package,
            cites: about.cites,
            symptom: about.symptom,
            prompt: bench.tokenizer.decode(prompt)?,
            tried: 1,
            first_difference: differ.or(ends_early),
            first_logit_difference: None,
            surprise: Surprise { clean: surprise.clone(), broken: surprise },
            guard: check(about.guard, guard),
            weaker_test: about.weaker_test.zip(weaker_test).map(|(w, run)| check(w, run)),
            recall: None,
            clean: text(bench, prompt, clean)?,
            broken: text(bench, prompt, broken)?,
        })
    }
}
