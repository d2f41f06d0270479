//! What both faults of text have in common: one answer, sent in pieces, rightly and wrongly.

use naive_decode::break_it::{Bench, BreakIt, Report, Side, Text, Written};
use naive_decode::{Error, Result};

/// The pieces of an answer, one for each token until it ends.
pub(super) type Pieces<'a> = &'a dyn Fn(&[u32], Side) -> Result<Vec<String>>;

/// One answer whose tokens are right on both sides; only the pieces that are sent differ.
pub(super) struct Sent<'a> {
    pub(super) about: &'a BreakIt,
    pub(super) prompt: &'a [u32],
    pub(super) answer: &'a [u32],
    pub(super) pieces: Pieces<'a>,
    pub(super) guard: &'a dyn Fn(Side) -> Result<()>,
    pub(super) weaker_test: &'a dyn Fn(Side) -> Result<()>,
}

impl Sent<'_> {
    pub(super) fn report(self, bench: &Bench) -> Result<Report> {
        let Sent { about, prompt, answer, pieces, guard, weaker_test } = self;
        let weaker_test = Some(weaker_test);
        let written = Written { about, prompt, clean: answer, broken: answer, guard, weaker_test };
        let mut report = written.report(bench)?;
        let sent = |side| -> Result<Text> {
            let tokens = pieces(answer, side)?;
            Ok(Text { text: tokens.concat(), tokens })
        };
        report.clean = sent(Side::Clean)?;
        report.broken = sent(Side::Broken)?;
        let both = report.clean.tokens.iter().zip(&report.broken.tokens);
        report.first_difference = both.into_iter().position(|(clean, broken)| clean != broken);
        Ok(report)
    }
}

/// The pieces make up the text that is expected.
pub(super) fn makes_up(pieces: &[String], expected: &str) -> Result<()> {
    match pieces.concat() {
        sent if sent == expected => Ok(()),
        sent => Err(Error::invalid(
            "the text that was sent",
            format!("{sent:?}"),
            format!("{expected:?}"),
        )),
    }
}
