//! From a plan to a pass, and what it gave.

use super::Engine;
use super::member::Member;
use super::policy::{Plan, PlannedSpan};
use naive_decode::{Error, Likeliest, Pass, Result, Span, Want};
use ndarray::{Array2, ArrayView2, Axis, s};
use std::ops::Range;

/// What a request needs of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Logits of its wanted rows.
    Logits,
    /// The likeliest token after each of them, which no device has to bring logits back for.
    Tokens,
    /// The last row's hidden state.
    Embedding,
}

/// What a pass gave of a span's wanted rows.
#[derive(Debug)]
pub(super) struct SpanRows<'a> {
    /// The likeliest token after each, where it was enough and was found on the way.
    tokens: Vec<Option<u32>>,
    /// Logits of the others, `[others, vocab]`; where an embedding is wanted, the hidden state `[1, hidden]`.
    numbers: ArrayView2<'a, f32>,
}

/// What is known of the token after a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum After<'a> {
    /// Logits `[vocab]`.
    Logits(&'a [f32]),
    /// The token itself.
    Token(u32),
}

impl SpanRows<'_> {
    /// Wanted rows of the span.
    pub(super) fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Numbers of the rows without a token, in order: of all, for a request that needs them.
    pub(super) fn numbers(&self) -> ArrayView2<'_, f32> {
        self.numbers.view()
    }

    /// What is known of the token after one of them.
    pub(super) fn after(&self, row: usize) -> After<'_> {
        if let Some(token) = self.tokens[row] {
            return After::Token(token);
        }
        let before = self.tokens[..row].iter().filter(|token| token.is_none()).count();
        After::Logits(self.numbers.row(before).to_slice().expect("logits are contiguous"))
    }
}

/// What a pass gave, by span.
#[derive(Default)]
pub(super) struct PassRows {
    /// Logits or hidden states of all spans, in one piece or in several.
    numbers: Vec<Array2<f32>>,
    /// What there is of each span, or why there is nothing.
    spans: Vec<Result<Found>>,
}

struct Found {
    /// By wanted row.
    tokens: Vec<Option<u32>>,
    /// Which of `numbers`, and which of its rows, the rows without a token have.
    numbers: (usize, Range<usize>),
}

impl PassRows {
    /// Takes in those of the spans that come next.
    fn extend(&mut self, more: PassRows) {
        let before = self.numbers.len();
        self.numbers.extend(more.numbers);
        let further = |found: Found| {
            let (at, rows) = found.numbers;
            Found { numbers: (before + at, rows), ..found }
        };
        self.spans.extend(more.spans.into_iter().map(|span| span.map(further)));
    }

    /// Numbers that there are, of all spans.
    pub(super) fn len(&self) -> usize {
        self.numbers.iter().map(Array2::len).sum()
    }

    /// Each span's rows, in order.
    pub(super) fn by_span(&mut self) -> Vec<Result<SpanRows<'_>>> {
        let numbers = &self.numbers;
        let rows = |Found { tokens, numbers: (at, rows) }| SpanRows {
            tokens,
            numbers: numbers[at].slice(s![rows, ..]),
        };
        self.spans.drain(..).map(|span| span.map(rows)).collect()
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
    pub(super) fn execute(&mut self, pass: &Pass, indices: &[usize]) -> Result<PassRows> {
        let needs: Vec<Need> = indices.iter().map(|&index| self.members[index].need()).collect();
        match self.run_pass(pass, &needs) {
            Ok(rows) => Ok(rows),
            Err(error @ Error::Device { .. }) => Err(error),
            Err(error) if pass.spans.len() == 1 => {
                Ok(PassRows { numbers: Vec::new(), spans: vec![Err(error)] })
            }
            Err(_) => {
                let mut each = PassRows::default();
                for (span, &need) in pass.spans.iter().zip(&needs) {
                    match self.run_pass(&Pass::one(span.clone()), &[need]) {
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

    /// Runs a pass; `needs` is by span. Rows of those who want an embedding do not go through the head.
    fn run_pass(&mut self, pass: &Pass, needs: &[Need]) -> Result<PassRows> {
        if needs.contains(&Need::Embedding) {
            return self.run_embedding(pass, needs);
        }
        let is_enough: Vec<bool> = ranges(pass)
            .zip(needs)
            .flat_map(|(rows, &need)| rows.map(move |_| need == Need::Tokens))
            .collect();
        let Likeliest { tokens, logits } = self.pool.run_likeliest(pass, &is_enough)?;
        let mut first = 0;
        let found = ranges(pass).map(|rows| {
            let tokens = tokens[rows].to_vec();
            let begin = first;
            first += tokens.iter().filter(|token| token.is_none()).count();
            Ok(Found { tokens, numbers: (0, begin..first) })
        });
        let spans = found.collect();
        Ok(PassRows { numbers: vec![logits], spans })
    }

    /// The same where some want an embedding.
    fn run_embedding(&mut self, pass: &Pass, needs: &[Need]) -> Result<PassRows> {
        let hidden = self.pool.run_hidden(pass)?;
        let mut through_head = Vec::new();
        let mut spans = Vec::with_capacity(needs.len());
        for (rows, &need) in ranges(pass).zip(needs) {
            let tokens = vec![None; rows.len()];
            let numbers = match need {
                Need::Embedding => (1, rows),
                Need::Tokens | Need::Logits => {
                    let first = through_head.len();
                    through_head.extend(rows);
                    (0, first..through_head.len())
                }
            };
            spans.push(Ok(Found { tokens, numbers }));
        }
        let logits = self.pool.head(&hidden.select(Axis(0), &through_head))?;
        Ok(PassRows { numbers: vec![logits, hidden], spans })
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
    /// What it needs of the next pass.
    fn need(&self) -> Need {
        let is_plain = self.sampler.is_argmax()
            && self.form.is_none()
            && self.rules.is_none()
            && self.logprobs.is_none()
            && !self.reads_all()
            && self.generated() >= self.min_tokens;
        match (self.embeds, is_plain) {
            (true, _) => Need::Embedding,
            (false, true) => Need::Tokens,
            (false, false) => Need::Logits,
        }
    }

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
