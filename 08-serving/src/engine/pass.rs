//! From a plan to a pass, and its logits.

use super::Engine;
use super::member::Member;
use super::policy::{Plan, PlannedSpan};
use naive_decode::{Error, Logits, Pass, Result, Span, Want};
use ndarray::{ArrayView2, s};
use std::ops::Range;

/// Logits of a pass, by span.
pub(super) struct PassLogits {
    /// One for the whole pass, or one for each span.
    logits: Vec<Logits>,
    /// Where each span's rows are: which of `logits`, and which of its rows. Or why there are none.
    spans: Vec<Result<(usize, Range<usize>)>>,
}

impl PassLogits {
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
    /// Runs a pass. If it fails, whoever is to blame is found by running each span alone: the others do not
    /// notice.
    pub(super) fn execute(&mut self, pass: &Pass) -> PassLogits {
        match self.pool.run(pass) {
            Ok(logits) => PassLogits {
                logits: vec![logits],
                spans: ranges(pass).map(|rows| Ok((0, rows))).collect(),
            },
            Err(error) if pass.spans.len() == 1 => {
                PassLogits { logits: Vec::new(), spans: vec![Err(error)] }
            }
            Err(_) => {
                let mut each = PassLogits { logits: Vec::new(), spans: Vec::new() };
                for span in &pass.spans {
                    let logits = self.pool.run(&Pass::one(span.clone()));
                    each.spans.push(logits.map(|logits| {
                        let rows = 0..logits.nrows();
                        each.logits.push(logits);
                        (each.logits.len() - 1, rows)
                    }));
                }
                each
            }
        }
    }
    // ANCHOR_END: run
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
            (false, true) => Want::Last,
            (false, false) => Want::Nothing,
        };
        Ok(Span::new(sequence, held, &self.text[held..held + rows], want))
    }
}
