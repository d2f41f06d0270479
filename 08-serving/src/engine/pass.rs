//! From a plan to a pass, and its logits.

use super::Engine;
use super::member::Member;
use super::policy::{Plan, PlannedSpan};
use naive_decode::{Error, Logits, Pass, Result, Span, Want};
use ndarray::{ArrayView2, Axis, s};
use std::ops::Range;

/// Logits of a pass, by span; hidden states where an embedding is wanted.
#[derive(Default)]
pub(super) struct PassLogits {
    /// Rows of all spans, in one piece or in several.
    logits: Vec<Logits>,
    /// Where each span's rows are: which of `logits`, and which of its rows. Or why there are none.
    spans: Vec<Result<(usize, Range<usize>)>>,
}

impl PassLogits {
    /// Takes in those of the spans that come next.
    fn extend(&mut self, more: PassLogits) {
        let before = self.logits.len();
        self.logits.extend(more.logits);
        let spans = more.spans.into_iter();
        self.spans.extend(spans.map(|span| span.map(|(at, rows)| (before + at, rows))));
    }

    /// Each span's logits `[wanted, vocab]`, in order.
    pub(super) fn by_span(&mut self) -> Vec<Result<ArrayView2<'_, f32>>> {
        let logits = &self.logits;
        let spans = self.spans.drain(..);
        spans.map(|span| span.map(|(at, rows)| logits[at].slice(s![rows, ..]))).collect()
    }
}

impl Engine {
    /// The spans of a plan, each with the place of its request among the members.
    pub(super) fn spans(&self, plan: &Plan) -> Result<Vec<(usize, Span)>> {
        let span = |planned: &PlannedSpan| {
            let index = self.index_of(planned.id)?;
            Ok((index, self.members[index].span(planned)?))
        };
        plan.spans.iter().map(span).collect()
    }

    // ANCHOR: run
    /// Runs a pass; `indices` are the places of the spans' requests among the members. If it fails, whoever is to
    /// blame is found by running each span alone: the others do not notice.
    ///
    /// # Errors
    /// If it is the device that has failed: then all others would fail too, each by itself and for ever.
    pub(super) fn execute(&mut self, pass: &Pass, indices: &[usize]) -> Result<PassLogits> {
        let embeds: Vec<bool> = indices.iter().map(|&index| self.members[index].embeds).collect();
        match self.run_pass(pass, &embeds) {
            Ok(logits) => Ok(logits),
            Err(error @ Error::Device { .. }) => Err(error),
            Err(error) if pass.spans.len() == 1 => {
                Ok(PassLogits { logits: Vec::new(), spans: vec![Err(error)] })
            }
            Err(_) => {
                let mut each = PassLogits::default();
                for (span, &embeds) in pass.spans.iter().zip(&embeds) {
                    match self.run_pass(&Pass::one(span.clone()), &[embeds]) {
                        Ok(one) => each.extend(one),
                        Err(error @ Error::Device { .. }) => return Err(error),
                        Err(error) => each.spans.push(Err(error)),
                    }
                }
                Ok(each)
            }
        }
    }
    // ANCHOR_END: run

    /// Runs a pass, of which some spans want an embedding. Their rows do not go through the head.
    fn run_pass(&mut self, pass: &Pass, embeds: &[bool]) -> Result<PassLogits> {
        if !embeds.contains(&true) {
            let spans = ranges(pass).map(|rows| Ok((0, rows))).collect();
            return Ok(PassLogits { logits: vec![self.pool.run(pass)?], spans });
        }
        let hidden = self.pool.run_hidden(pass)?;
        let mut through_head = Vec::new();
        let mut spans = Vec::with_capacity(embeds.len());
        for (rows, &embeds) in ranges(pass).zip(embeds) {
            if embeds {
                spans.push(Ok((1, rows)));
                continue;
            }
            let first = through_head.len();
            through_head.extend(rows);
            spans.push(Ok((0, first..through_head.len())));
        }
        let logits = self.pool.head(&hidden.select(Axis(0), &through_head))?;
        Ok(PassLogits { logits: vec![logits, hidden], spans })
    }
}

/// Where each span's rows are among a pass's logits.
fn ranges(pass: &Pass) -> impl Iterator<Item = Range<usize>> {
    pass.spans.iter().scan(0, |first, span| {
        let rows = match span.want {
            Want::Nothing => 0,
            Want::Last => 1,
            Want::All => span.rows(),
        };
        *first += rows;
        Some(*first - rows..*first)
    })
}

impl Member {
    /// A plan's rows as a span: the next of the text, and the guesses behind its last.
    fn span(&self, planned: &PlannedSpan) -> Result<Span> {
        let session = self.session();
        let session = session.ok_or_else(|| {
            Error::invalid("a request in the plan", self.id, "one that has come in")
        })?;
        let (sequence, held) = (session.sequence(), session.text().len());
        if !self.guessing.tree.is_empty() {
            return self.guessing.tree.span(sequence, &self.text);
        }
        let rows = planned.rows.min(self.text.len() - held);
        let want = match (self.reads_all(), held + rows == self.text.len()) {
            (true, _) => Want::All,
            (false, true) if self.reads_only => Want::Nothing,
            (false, true) => Want::Last,
            (false, false) => Want::Nothing,
        };
        Ok(Span::new(sequence, held, &self.text[held..held + rows], want))
    }
}
