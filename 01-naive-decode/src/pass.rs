//! What one forward pass is asked to do.
//!
//! A pass is a ragged batch: some new tokens of one sequence, some of another. A whole prompt, a
//! chunk of one, one token of each of a hundred sequences, a draft to verify: all are spans in a
//! pass, and one forward function serves them all.

use std::ops::Range;

/// Which of a span's rows need logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// None: more of the prompt is still to come.
    Nothing,
    /// The last row's, to choose the next token from.
    Last,
    /// Every row's: to verify a draft, or to score a text.
    All,
}

/// Slots of its sequence that one row may look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// A run of slots: everything so far for a causal row, the last few for a windowed one.
    pub range: Range<usize>,
    /// Single slots after `range`, ascending: in a draft tree, the row's ancestors and itself.
    pub also: Vec<usize>,
}

impl Visible {
    /// Slots `0..end`.
    pub fn until(end: usize) -> Self {
        Visible { range: 0..end, also: Vec::new() }
    }

    /// Whether the row may look at this slot.
    pub fn contains(&self, slot: usize) -> bool {
        self.range.contains(&slot) || self.also.binary_search(&slot).is_ok()
    }

    /// One past the last slot that may be looked at.
    pub fn end(&self) -> usize {
        self.also.last().map_or(self.range.end, |last| last.saturating_add(1))
    }

    /// Places of the visible slots when they stand in line, only the last `window` if given.
    ///
    /// A slot of `range` is in the place of its own number, those of `also` follow without a gap: a
    /// branch of a draft tree stands as it would alone, and a window counts no slot between.
    pub fn places(&self, window: Option<usize>) -> Range<usize> {
        let end = self.range.end + self.also.len();
        let start = window.map_or(0, |window| end.saturating_sub(window));
        start.max(self.range.start)..end
    }

    /// The slot in such a place.
    pub fn slot(&self, place: usize) -> usize {
        place.checked_sub(self.range.end).map_or(place, |i| self.also[i])
    }

    /// Whether no slot is named twice and all are in order.
    pub(crate) fn is_ascending(&self) -> bool {
        self.range.start <= self.range.end
            && self.also.first().is_none_or(|&slot| slot >= self.range.end)
            && self.also.is_sorted_by(|a, b| a < b)
    }
}

/// Consecutive new tokens of one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Which sequence; an index chosen by whoever owns the caches.
    pub sequence: usize,
    /// Tokens of the sequence that came before, which is also the slot of this span's first row.
    pub start: usize,
    /// The new tokens, one row each.
    pub tokens: Vec<u32>,
    /// RoPE position of each row. Equal to its slot, unless a rung has dropped or moved slots.
    pub positions: Vec<usize>,
    /// What each row may look at; its own slot is the last of it.
    pub sees: Vec<Visible>,
    /// Which rows need logits.
    pub want: Want,
}

impl Span {
    // ANCHOR: span
    /// Tokens that follow `start` earlier ones; each row sees all that came before, and itself.
    pub fn new(sequence: usize, start: usize, tokens: &[u32], want: Want) -> Self {
        let positions: Vec<usize> = (start..start + tokens.len()).collect();
        let sees = positions.iter().map(|&position| Visible::until(position + 1)).collect();
        Span { sequence, start, tokens: tokens.to_vec(), positions, sees, want }
    }
    // ANCHOR_END: span

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Slot after the span's last row.
    pub fn end(&self) -> usize {
        self.start.saturating_add(self.rows())
    }

    fn wanted(&self) -> Range<usize> {
        let rows = self.rows();
        match self.want {
            Want::Nothing => rows..rows,
            Want::Last => rows.saturating_sub(1)..rows,
            Want::All => 0..rows,
        }
    }
}

/// The spans of one forward pass. Rows are numbered through all of them, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pass {
    /// The spans; at most one per sequence.
    pub spans: Vec<Span>,
}

impl Pass {
    /// A pass over one span.
    pub fn one(span: Span) -> Self {
        Pass { spans: vec![span] }
    }

    /// Rows of all spans together.
    pub fn rows(&self) -> usize {
        self.spans.iter().map(Span::rows).sum()
    }

    /// Each span with the rows of the pass that are its own.
    pub fn spans_with_rows(&self) -> impl Iterator<Item = (&Span, Range<usize>)> {
        self.spans.iter().scan(0, |first, span| {
            let rows = *first..*first + span.rows();
            *first = rows.end;
            Some((span, rows))
        })
    }

    /// Rows of the pass that need logits, in order.
    pub fn wanted(&self) -> Vec<usize> {
        self.spans_with_rows()
            .flat_map(|(span, rows)| span.wanted().map(move |row| rows.start + row))
            .collect()
    }

    /// RoPE positions of all rows, in order.
    pub fn positions(&self) -> Vec<usize> {
        self.spans.iter().flat_map(|span| span.positions.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_numbered_through_all_spans() {
        let pass = Pass {
            spans: vec![
                Span::new(3, 0, &[7, 8, 9], Want::Last),
                Span::new(1, 5, &[4], Want::Nothing),
                Span::new(0, 2, &[1, 2], Want::All),
            ],
        };
        assert_eq!(pass.rows(), 6);
        assert_eq!(pass.wanted(), [2, 4, 5]);
        assert_eq!(pass.positions(), [0, 1, 2, 5, 2, 3]);
        assert_eq!(pass.spans[2].sees[1], Visible::until(4));
        assert_eq!(pass.spans[2].end(), 4);
    }

    #[test]
    fn a_window_keeps_the_last_slots_of_a_run_and_of_a_tree() {
        assert_eq!(Visible::until(10).places(None), 0..10);
        assert_eq!(Visible::until(10).places(Some(4)), 6..10);
        assert_eq!(Visible::until(3).places(Some(4)), 0..3);
        assert_eq!(Visible { range: 7..10, also: vec![] }.places(Some(4)), 7..10);
        let tree = Visible { range: 0..10, also: vec![11, 14] };
        assert!(tree.contains(9) && tree.contains(11) && !tree.contains(12));
        let within = |window| tree.places(Some(window)).map(|place| tree.slot(place));
        assert_eq!(within(4).collect::<Vec<_>>(), [8, 9, 11, 14]);
        assert_eq!(within(1).collect::<Vec<_>>(), [14]);
        assert_eq!(within(0).count(), 0);
    }

    #[test]
    fn slots_out_of_order_are_noticed() {
        let is_ascending = |range, also| Visible { range, also }.is_ascending();
        assert!(is_ascending(0..3, vec![3, 5]) && is_ascending(2..2, vec![]));
        let backwards = Range { start: 3, end: 2 };
        assert!(!is_ascending(backwards, vec![]));
        assert!(!is_ascending(0..3, vec![2, 5]));
        assert!(!is_ascending(0..3, vec![5, 5]));
    }
}
