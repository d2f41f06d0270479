//! What a smaller model would say.

use super::levels::{Levels, check_widths, level_span, nodes};
use crate::cache::with_room_for_trees;
use crate::proposer::{FromText, Proposer};
use crate::tree::DraftTree;
use kv_cache::KvCache;
use naive_decode::{CpuExecutor, Error, Executor, Model, Pass, Result, Sampler, Span, Want};
use paged_cache::PagedCache;
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
    /// If the two do not have the same vocabulary, the draft's first layer makes no keys and values, or there is no
    /// memory for those of a whole text.
    pub fn new(draft: Arc<Model>, target: &Model) -> Result<Self> {
        let (found, expected) = (draft.config.vocab_size, target.config.vocab_size);
        if found != expected {
            let expected = format!("{expected}, the target's");
            return Err(Error::invalid("the draft's vocabulary", found, expected));
        }
        let mut cache = with_room_for_trees(&draft, target.context())?;
        let sequence = cache.open();
        let executor = CpuExecutor { model: draft, attention: cache };
        Ok(DraftModel { executor, sequence, held: Vec::new(), widths: vec![1] })
    }

    /// The same with this many children behind each node, by depth; the last number goes on. `[3, 2, 1]` is a
    /// tree of three branches, each of which parts in two, and then goes on as it is.
    ///
    /// # Errors
    /// If no number is given, or one is 0.
    pub fn with_widths(self, widths: &[usize]) -> Result<Self> {
        Ok(DraftModel { widths: check_widths(widths)?, ..self })
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
}

impl FromText for DraftModel {}

impl Proposer for DraftModel {
    fn name(&self) -> &'static str {
        "draft model"
    }

    fn nodes(&self, depth: usize) -> usize {
        nodes(&self.widths, depth)
    }

    /// Runs the prompt, as the target has. What goes wrong is said when the first draft is made.
    fn read(&mut self, prompt: &[u32], _start: usize) {
        if (1..=self.executor.model.context()).contains(&prompt.len()) {
            let _ = self.follow(prompt);
        }
    }

    // ANCHOR: propose
    fn propose(
        &mut self,
        context: &[u32],
        depth: usize,
        sampler: &mut Sampler,
    ) -> Result<DraftTree> {
        let room = self.executor.model.context().saturating_sub(context.len());
        if context.is_empty() || room == 0 || depth == 0 {
            return Ok(DraftTree::empty());
        }
        let first = self.follow(context)?;
        let (sequence, text) = (self.sequence, self.held.len());
        let executor = &mut self.executor;
        let slots = executor.attention.capacity() - text;
        let levels = Levels { context, depth: depth.min(room), room: slots, widths: &self.widths };
        let tree = levels.grow(first, sampler, |tree, level| {
            executor.execute(&Pass::one(level_span(sequence, text, 0, tree, level)))
        })?;
        self.executor.attention.truncate(self.sequence, text)?;
        Ok(tree)
    }
    // ANCHOR_END: propose
}
