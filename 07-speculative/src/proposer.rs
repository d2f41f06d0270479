//! Where candidate tokens come from.

use crate::tree::DraftTree;
use naive_decode::{Result, Sampler, Want};
use ndarray::ArrayView2;

/// What became of a proposer's tree.
pub struct Verdict<'a> {
    /// The text before, its last token included.
    pub context: &'a [u32],
    /// What was proposed.
    pub tree: &'a DraftTree,
    /// The nodes that stay, first to last.
    pub path: &'a [usize],
    /// The token after them.
    pub next: u32,
    /// The target's logits, `[1 + nodes, vocab]`: after the text's last token, and after each node.
    pub logits: ArrayView2<'a, f32>,
}

impl Verdict<'_> {
    /// Rows of the pass that are part of the text now: its last token's, and those of the path.
    pub fn rows(&self) -> Vec<usize> {
        std::iter::once(0).chain(self.path.iter().map(|node| node + 1)).collect()
    }

    /// The text that has come of it.
    pub fn text(&self) -> Vec<u32> {
        let kept = self.path.iter().map(|&node| self.tree.nodes()[node].token);
        self.context.iter().copied().chain(kept).chain([self.next]).collect()
    }
}

// ANCHOR: proposer
/// Proposes tokens that may follow a text.
///
/// Whatever it proposes, the text that comes out is the target's own: a bad proposer costs time, never
/// quality.
pub trait Proposer: Send {
    /// What it is called, in a few words.
    fn name(&self) -> &'static str;

    /// Tokens that may follow `context`, at most `depth` one after the other. `sampler` says how tokens are
    /// chosen, and gives the random numbers where some are drawn.
    ///
    /// The same text, or one that goes on from an earlier one, is the usual case; any other must work too.
    ///
    /// # Errors
    /// If a model that it runs cannot run.
    fn propose(
        &mut self,
        context: &[u32],
        depth: usize,
        sampler: &mut Sampler,
    ) -> Result<DraftTree>;

    /// Nodes of a tree that goes so deep, at most.
    fn nodes(&self, depth: usize) -> usize {
        depth
    }

    /// Which rows of the prompt's pass it wants logits of, and so their hidden states in a [`Tap`](crate::Tap).
    fn wants(&self) -> Want {
        Want::Nothing
    }

    /// Says that the target has run the prompt's tokens from `start` on, but for the last.
    fn read(&mut self, _prompt: &[u32], _start: usize) {}

    /// Says what became of the last proposal. Most do not care: the next context tells all.
    fn learn(&mut self, _verdict: &Verdict) {}
}
// ANCHOR_END: proposer

/// A proposer that needs nothing but the text: [`Proposer::propose`] is all that has to be called.
///
/// [`Speculation`](crate::Speculation) calls everything. Whoever only asks for guesses takes these alone: a
/// [`GuessingDecoder`](crate::GuessingDecoder), [`Ahead`](crate::proposers::Ahead), an engine that serves many. One that
/// reads the target's hidden states, or learns from what the target said, would propose nothing to them, for ever.
pub trait FromText: Proposer {}

/// Proposes nothing: plain decoding.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Proposer for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn propose(&mut self, _: &[u32], _: usize, _: &mut Sampler) -> Result<DraftTree> {
        Ok(DraftTree::empty())
    }
}

impl FromText for Nothing {}

impl<P: FromText + ?Sized> FromText for Box<P> {}

impl<P: Proposer + ?Sized> Proposer for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn propose(
        &mut self,
        context: &[u32],
        depth: usize,
        sampler: &mut Sampler,
    ) -> Result<DraftTree> {
        (**self).propose(context, depth, sampler)
    }

    fn nodes(&self, depth: usize) -> usize {
        (**self).nodes(depth)
    }

    fn wants(&self) -> Want {
        (**self).wants()
    }

    fn read(&mut self, prompt: &[u32], start: usize) {
        (**self).read(prompt, start);
    }

    fn learn(&mut self, verdict: &Verdict) {
        (**self).learn(verdict);
    }
}
