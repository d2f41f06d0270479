//! What a smaller model would say.

use crate::proposer::Proposer;
use crate::tree::{DraftTree, Node};
use kv_cache::KvCache;
use naive_decode::{
    CpuExecutor, Error, Executor, Model, Pass, Result, Sampler, Span, Visible, Want,
};
use paged_cache::{PagedCache, Room};
use std::sync::Arc;

// ANCHOR: draft_model
/// A smaller model of the same vocabulary, with a paged cache of its own.
///
/// Tokens are *drawn*, as the target's are, with the same temperature, filters and penalties: what is drawn
/// from a distribution near the target's is kept more often than its likeliest token would be.
pub struct DraftModel {
    executor: CpuExecutor<PagedCache>,
    /// Sequence of the draft's cache.
    sequence: usize,
    /// The text that the cache holds.
    held: Vec<u32>,
    /// Children of each node, by depth; the last number goes on.
    widths: Vec<usize>,
}
// ANCHOR_END: draft_model

impl DraftModel {
    /// A draft for one text of a target's.
    ///
    /// # Errors
    /// If the two do not have the same vocabulary.
    pub fn new(draft: Arc<Model>, target: &Model) -> Result<Self> {
        let (found, expected) = (draft.config.vocab_size, target.config.vocab_size);
        if found != expected {
            let expected = format!("{expected}, the target's");
            return Err(Error::invalid("the draft's vocabulary", found, expected));
        }
        // The tree's slots come after the text's.
        let room = Room::for_tokens(&draft, draft.context() + 256)?;
        let capacity = draft.context() + 256;
        let mut cache = PagedCache::new(&draft, Room { capacity, ..room })?;
        let sequence = cache.open();
        let executor = CpuExecutor { model: draft, attention: cache };
        Ok(DraftModel { executor, sequence, held: Vec::new(), widths: vec![1] })
    }

    /// The same with so many children behind each node, by depth; the last number goes on. `[3, 2, 1]` is a
    /// tree of three branches, each of which parts in two, and then goes on as it is.
    ///
    /// # Errors
    /// If no number is given, or one is 0.
    pub fn with_widths(self, widths: &[usize]) -> Result<Self> {
        if widths.is_empty() || widths.contains(&0) {
            let found = format!("{widths:?}");
            return Err(Error::invalid("children of a draft's nodes", found, "at least 1 each"));
        }
        Ok(DraftModel { widths: widths.to_vec(), ..self })
    }

    /// Runs what the cache does not hold of a text, and gives the logits after it.
    fn follow(&mut self, context: &[u32]) -> Result<Vec<f32>> {
        let same = self.held.iter().zip(context).take_while(|(held, token)| held == token).count();
        // The last token's logits are what is asked for, so it runs in any case.
        let keep = same.min(context.len() - 1);
        self.executor.attention.truncate(self.sequence, keep)?;
        self.held.truncate(keep);
        let span = Span::new(self.sequence, keep, &context[keep..], Want::Last);
        let logits = self.executor.execute(&Pass::one(span))?;
        self.held.extend_from_slice(&context[keep..]);
        Ok(logits.into_iter().collect())
    }

    /// Runs one level of the tree, and gives the logits after each of its nodes.
    fn run_level(
        &mut self,
        tree: &DraftTree,
        level: &[usize],
        slots: &[usize],
    ) -> Result<Vec<Vec<f32>>> {
        let (text, first) = (self.held.len(), slots[level[0]]);
        let tokens: Vec<u32> = level.iter().map(|&node| tree.nodes()[node].token).collect();
        let mut span = Span::new(self.sequence, first, &tokens, Want::All);
        for (row, &node) in level.iter().enumerate() {
            let path = tree.path(node);
            span.positions[row] = text + path.len() - 1;
            let also: Vec<usize> = path.iter().map(|&node| slots[node]).collect();
            let in_line = also.iter().enumerate().all(|(depth, &slot)| slot == text + depth);
            span.sees[row] = match in_line {
                true => Visible::until(text + path.len()),
                false => Visible { range: 0..text, also },
            };
        }
        let logits = self.executor.execute(&Pass::one(span))?;
        Ok(logits.outer_iter().map(|row| row.to_vec()).collect())
    }
}

/// Adds children behind a node: drawn without replacement while there is anything to draw, then the
/// likeliest of what is left.
fn add_children(
    tree: &mut DraftTree,
    parent: Option<usize>,
    logits: &[f32],
    context: &[u32],
    width: usize,
    sampler: &mut Sampler,
) -> Result<Vec<usize>> {
    let path = parent.map_or(Vec::new(), |parent| tree.path(parent));
    let before: Vec<u32> = path.into_iter().map(|node| tree.nodes()[node].token).collect();
    let mut q = sampler.distribution(logits, &[context, &before].concat())?;
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

impl Proposer for DraftModel {
    fn name(&self) -> &'static str {
        "draft model"
    }

    // ANCHOR: propose
    fn propose(
        &mut self,
        context: &[u32],
        depth: usize,
        sampler: &mut Sampler,
    ) -> Result<DraftTree> {
        let mut tree = DraftTree::empty();
        let room = self.executor.model.context().saturating_sub(context.len());
        if context.is_empty() || room == 0 || depth == 0 {
            return Ok(tree);
        }
        let mut logits = vec![(None, self.follow(context)?)];
        let mut slots: Vec<usize> = Vec::new();
        for level in 0..depth.min(room) {
            let width = self.widths[level.min(self.widths.len() - 1)];
            let mut added = Vec::new();
            for (parent, logits) in &logits {
                added.extend(add_children(&mut tree, *parent, logits, context, width, sampler)?);
            }
            if level + 1 == depth.min(room) {
                break;
            }
            slots.extend((self.held.len() + slots.len()..).take(added.len()));
            let rows = self.run_level(&tree, &added, &slots)?;
            logits = added.into_iter().map(Some).zip(rows).collect();
        }
        self.executor.attention.truncate(self.sequence, self.held.len())?;
        Ok(tree)
    }
    // ANCHOR_END: propose
}
