//! What one more block says, that is told each token as it is guessed.
//!
//! Multi-token prediction (Gloeckle et al. 2024, in DeepSeek-V3's form): a block reads the target's hidden state
//! *and* the token that came of it, and gives the hidden state of the next place. The target's head makes logits of
//! that, a token is chosen, and both go into the block again. So unlike Medusa's heads the second guess knows the
//! first, for the price of one block a token, where the target has six.
//!
//! To the rest of the code it is a model of one block: what is special about it is its embedding
//! ([`Joined`]), and that its head has a tap too.

mod joined;

use self::joined::{Joined, JoinedPacking};
use super::levels::{Levels, check_widths, level_span, nodes};
use crate::cache::with_room_for_trees;
use crate::proposer::{Proposer, Verdict};
use crate::tap::Tap;
use crate::tree::DraftTree;
use kv_cache::KvCache;
use naive_decode::{
    Checkpoint, Config, CpuExecutor, Executor, LoadOptions, Model, Pack, Pass, Result, Sampler,
    Span, Want,
};
use ndarray::{Array2, Axis, concatenate, s};
use paged_cache::PagedCache;
use std::sync::Arc;

/// Rows that a draft begins with at most, if there has been none for long.
const LATEST_ROWS: usize = 32;

// ANCHOR: mtp
/// A block of multi-token prediction, with a paged cache of its own.
///
/// Row `j` of its cache was made of the target's hidden state of token `j` and of token `j + 1`. It has no rows
/// for what the target did not run here: where a text began with a prefix hit, the block sees less far back. So it
/// does where more than `LATEST_ROWS` rows have come without a draft: it begins anew with the latest of those.
///
/// Invariant: `first + held + pending.nrows() + 1 == text.len()`, if the text is not empty.
pub struct Mtp {
    executor: CpuExecutor<PagedCache>,
    sequence: usize,
    /// The block's embedding.
    joined: Arc<Joined>,
    /// Before the target's head.
    target: Arc<Tap>,
    /// Before the block's head.
    own: Arc<Tap>,
    /// Children of each node, by depth; the last number goes on.
    widths: Vec<usize>,
    /// The text that is known; empty if none is.
    text: Vec<u32>,
    /// Token of the first row.
    first: usize,
    /// Rows in the cache.
    held: usize,
    /// Hidden states of the target's that have not been through the block, `[rows, hidden]`.
    pending: Array2<f32>,
}
// ANCHOR_END: mtp

impl Mtp {
    /// The block of a target that has a tap: `model.layers.0.…` with `eh_proj`, `enorm` and `hnorm`, and
    /// `model.norm.weight`; matrices are stored as `pack` decides.
    ///
    /// # Errors
    /// If a tensor is missing or does not have the target's sizes.
    pub fn new(
        target: Arc<Model>,
        tap: Arc<Tap>,
        checkpoint: &Checkpoint,
        pack: Pack,
    ) -> Result<Self> {
        let config = Config { layers: 1, ..target.config.clone() };
        let (kv_element, isa) = (target.kv_element, target.isa);
        let options = LoadOptions { context: Some(target.context()), kv_element, isa };
        let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
        let joined = Arc::new(Joined::new(target.clone(), &tensors, pack)?);
        let packing = JoinedPacking::new(joined.clone(), tap.head().clone(), pack);
        let block = Model::assemble(config, options, &tensors, &packing)?;
        let (block, own) = Tap::on(Model { rope: target.rope.clone(), ..block });
        let mut cache = with_room_for_trees(&block, block.context())?;
        let sequence = cache.open();
        let pending = Array2::zeros((0, target.config.hidden_size));
        Ok(Mtp {
            executor: CpuExecutor { model: Arc::new(block), attention: cache },
            sequence,
            joined,
            target: tap,
            own,
            widths: vec![1],
            text: Vec::new(),
            first: 0,
            held: 0,
            pending,
        })
    }

    /// The same with this many children behind each node, by depth; the last number goes on.
    ///
    /// # Errors
    /// If no number is given, or one is 0.
    pub fn with_widths(self, widths: &[usize]) -> Result<Self> {
        Ok(Mtp { widths: check_widths(widths)?, ..self })
    }

    /// Begins anew: nothing is known before token `first`.
    fn begin(&mut self, text: Vec<u32>, first: usize) {
        let emptied = self.executor.attention.reset(self.sequence);
        emptied.expect("an open sequence can be emptied");
        (self.text, self.first, self.held) = (text, first, 0);
        self.pending = Array2::zeros((0, self.pending.ncols()));
    }

    // ANCHOR: follow
    /// Runs the first `rows` of those that have come since, and gives the logits that are wanted.
    fn follow(&mut self, rows: usize, want: Want) -> Result<Vec<f32>> {
        let tokens = &self.text[self.first + self.held + 1..][..rows];
        let mut span = Span::new(self.sequence, self.held, tokens, want);
        span.positions.iter_mut().for_each(|position| *position += self.first);
        self.joined.give(self.pending.slice(s![..rows, ..]).to_owned());
        let logits = self.executor.execute(&Pass::one(span))?;
        self.held += rows;
        self.pending = self.pending.slice(s![rows.., ..]).to_owned();
        Ok(logits.into_iter().collect())
    }
    // ANCHOR_END: follow

    /// Leaves out all but the last rows that have come since: after a long time without a draft, running them all would
    /// cost more than they tell. Rows follow each other without a gap, so what the cache holds goes too.
    fn skip(&mut self) {
        let Some(skipped) = self.pending.nrows().checked_sub(LATEST_ROWS).filter(|&n| n > 0) else {
            return;
        };
        let (text, first) = (std::mem::take(&mut self.text), self.first + self.held + skipped);
        let pending = self.pending.slice(s![skipped.., ..]).to_owned();
        self.begin(text, first);
        self.pending = pending;
    }
}

impl Proposer for Mtp {
    fn name(&self) -> &'static str {
        "MTP block"
    }

    // ANCHOR: propose
    fn propose(
        &mut self,
        context: &[u32],
        depth: usize,
        sampler: &mut Sampler,
    ) -> Result<DraftTree> {
        let room = self.executor.model.context().saturating_sub(context.len());
        let depth = depth.min(room);
        if self.text != context || self.pending.is_empty() || depth == 0 {
            return Ok(DraftTree::empty()); // nothing is known of this text, or nothing is asked
        }
        self.skip();
        let first = self.follow(self.pending.nrows(), Want::Last)?;
        let hidden = self.own.seen();
        // Hidden states behind the text, and behind each node that has been run.
        let mut hidden = vec![hidden];
        let slots = self.executor.attention.capacity() - self.held;
        let levels = Levels { context, depth, room: slots, widths: &self.widths };
        let Mtp { executor, joined, own, sequence, held, first: offset, .. } = self;
        let tree = levels.grow(first, sampler, |tree, level| {
            let before = |&node: &usize| tree.nodes()[node].parent.map_or(0, |parent| parent + 1);
            let rows: Vec<_> = level.iter().map(|node| hidden[before(node)].view()).collect();
            joined.give(concatenate(Axis(0), &rows).expect("rows of one width"));
            let span = level_span(*sequence, *held, *offset, tree, level);
            let logits = executor.execute(&Pass::one(span))?;
            hidden.extend(own.seen().axis_chunks_iter(Axis(0), 1).map(|row| row.to_owned()));
            Ok(logits)
        });
        // Whatever came of it: the cache holds what the text has, and no guess.
        self.executor.attention.truncate(self.sequence, self.held)?;
        tree
    }
    // ANCHOR_END: propose

    fn nodes(&self, depth: usize) -> usize {
        nodes(&self.widths, depth)
    }

    fn wants(&self) -> Want {
        Want::All
    }

    fn read(&mut self, prompt: &[u32], start: usize) {
        let seen = self.target.seen();
        match start + seen.nrows() + 1 == prompt.len() {
            true => {
                self.begin(prompt.to_vec(), start);
                self.pending = seen;
                // The last row waits for the first draft, which begins with what it says.
                if self.follow(self.pending.nrows().saturating_sub(1), Want::Nothing).is_err() {
                    self.begin(Vec::new(), 0);
                }
            }
            false => self.begin(Vec::new(), 0), // what the tap has is of another text
        }
    }

    fn learn(&mut self, verdict: &Verdict) {
        if self.text != verdict.context {
            self.begin(verdict.context.to_vec(), verdict.context.len() - 1);
        }
        let (seen, rows) = (self.target.seen(), verdict.rows());
        if rows.iter().any(|&row| row >= seen.nrows()) {
            return self.begin(Vec::new(), 0); // what the tap has is of another text
        }
        let come = seen.select(Axis(0), &rows);
        self.pending.append(Axis(0), come.view()).expect("hidden states of one width");
        self.text = verdict.text();
    }
}
