//! Trees that are grown level by level: what a draft model and an MTP block have in common.

use crate::tree::{DraftTree, Node, sees};
use naive_decode::{Error, Logits, Result, Sampler, Span, Want};
use ndarray::ArrayView1;
use std::sync::Arc;

/// A tree that is to be grown.
pub(crate) struct Levels<'a> {
    /// The text that it stands behind.
    pub(crate) context: &'a [u32],
    /// Levels.
    pub(crate) depth: usize,
    /// Nodes that the cache has room for.
    pub(crate) room: usize,
    /// Children of each node, by depth; the last number goes on.
    pub(crate) widths: &'a [usize],
}

impl Levels<'_> {
    // ANCHOR: grow
    /// Grows a tree from the logits after the text. `run` gives the logits after each node of a level, and is
    /// not asked for the last one's.
    pub(crate) fn grow(
        &self,
        first: Vec<f32>,
        sampler: &mut Sampler,
        mut run: impl FnMut(&DraftTree, &[usize]) -> Result<Logits>,
    ) -> Result<DraftTree> {
        let mut tree = DraftTree::empty();
        let mut parents = vec![(None, first)];
        for level in 0..self.depth {
            let width = self.widths[level.min(self.widths.len() - 1)];
            let mut added = Vec::new();
            for (parent, logits) in &parents {
                added.extend(self.add_children(&mut tree, *parent, logits, width, sampler)?);
            }
            tree.truncate(self.room);
            added.retain(|&node| node < self.room);
            if added.is_empty() {
                break;
            }
            if level + 1 < self.depth {
                let logits = run(&tree, &added)?;
                let rows = logits.outer_iter().map(|row: ArrayView1<f32>| row.to_vec());
                parents = added.into_iter().map(Some).zip(rows).collect();
            }
        }
        Ok(tree)
    }
    // ANCHOR_END: grow

    /// Adds children behind a node: drawn without replacement while there is anything to draw, then the
    /// likeliest of what is left.
    fn add_children(
        &self,
        tree: &mut DraftTree,
        parent: Option<usize>,
        logits: &[f32],
        width: usize,
        sampler: &mut Sampler,
    ) -> Result<Vec<usize>> {
        let path = parent.map_or(Vec::new(), |parent| tree.path(parent));
        let before: Vec<u32> = path.into_iter().map(|node| tree.nodes()[node].token).collect();
        let mut q = sampler.distribution(logits, &[self.context, &before].concat())?;
        let mut rest: Vec<f32> = logits.to_vec();
        let mut children = Vec::new();
        for _ in 0..width.min(logits.len()) {
            let (token, drawn_from) = match q.iter().any(|&q| q > 0.0) {
                true => (sampler.draw(&q), Some(Arc::from(&q[..]))),
                false => (naive_decode::argmax(&rest)?, None),
            };
            children.push(tree.add(Node { token, parent, drawn_from }));
            // The next one is drawn from the others.
            rest[token as usize] = f32::NEG_INFINITY;
            q[token as usize] = 0.0;
            let total: f64 = q.iter().map(|&q| f64::from(q)).sum();
            if total > 0.0 {
                q.iter_mut().for_each(|q| *q = (f64::from(*q) / total) as f32);
            }
        }
        Ok(children)
    }
}

/// One level of a tree as a span behind `text` slots, whose first token is the text's token `offset`. Node `i`
/// is in slot `text + i`; each sees the text and its own path.
pub(super) fn level_span(
    sequence: usize,
    text: usize,
    offset: usize,
    tree: &DraftTree,
    level: &[usize],
) -> Span {
    let tokens: Vec<u32> = level.iter().map(|&node| tree.nodes()[node].token).collect();
    let mut span = Span::new(sequence, text + level[0], &tokens, Want::All);
    for (row, &node) in level.iter().enumerate() {
        let path = tree.path(node);
        span.positions[row] = offset + text + path.len() - 1;
        span.sees[row] = sees(text, path);
    }
    span
}

/// Children of each node, by depth, as a proposer is told.
pub(super) fn check_widths(widths: &[usize]) -> Result<Vec<usize>> {
    if widths.is_empty() || widths.contains(&0) {
        let found = format!("{widths:?}");
        return Err(Error::invalid("children of a draft's nodes", found, "at least 1 each"));
    }
    Ok(widths.to_vec())
}

/// Nodes of a tree of those widths that goes so deep; if that is no number any more, the largest there is.
pub(super) fn nodes(widths: &[usize], depth: usize) -> usize {
    let level = |before: &mut usize, level: usize| {
        *before = before.saturating_mul(widths[level.min(widths.len() - 1)]);
        Some(*before)
    };
    (0..depth).scan(1, level).fold(0, usize::saturating_add)
}
