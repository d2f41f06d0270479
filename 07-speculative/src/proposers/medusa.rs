//! What the target's last hidden state says of tokens further on.
//!
//! The hidden state that says what the next token is to be knows something of those after it, too. A small
//! head for each place reads it off (Medusa, Cai et al. 2024): `head(h + silu(W h))`, with the target's own head. No
//! head knows what another has said, so the second place's guesses are the same whatever came first. That is why
//! Medusa needs trees: the likeliest few of each place, in all combinations.

use super::levels::{check_widths, nodes};
use crate::proposer::{Proposer, Verdict};
use crate::tap::Tap;
use crate::tree::{DraftTree, Node};
use naive_decode::numerics::silu;
use naive_decode::{Checkpoint, Error, Linear, Model, Pack, Result, Sampler, Want};
use ndarray::{Array2, Axis};
use std::sync::Arc;

// ANCHOR: medusa
/// Heads that read the target's hidden state.
pub struct Medusa {
    tap: Arc<Tap>,
    /// One for each place behind the next token, `hidden → hidden`.
    heads: Vec<Box<dyn Linear>>,
    /// Children of each node, by depth; the last number goes on.
    widths: Vec<usize>,
    /// The text, and the hidden state of its last token but one, which said what the last was to be,
    /// `[1, hidden]`.
    known: Option<(Vec<u32>, Array2<f32>)>,
}
// ANCHOR_END: medusa

/// Children of each node, by depth, if nothing else is asked for.
const WIDTHS: [usize; 3] = [3, 2, 1];

impl Medusa {
    /// The heads of a target that has a tap: `medusa.0.weight` and so on, `[hidden, hidden]`, stored as `pack` decides.
    ///
    /// # Errors
    /// If the checkpoint has none, or one has another shape.
    pub fn new(target: &Model, tap: Arc<Tap>, checkpoint: &Checkpoint, pack: Pack) -> Result<Self> {
        let hidden = target.config.hidden_size;
        let names = (0..).map(|place| format!("medusa.{place}.weight"));
        let names = names.take_while(|name| checkpoint.view(name).is_some());
        let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
        let head = |name: String| pack.matrix(&name, hidden, hidden, &tensors);
        let heads: Vec<Box<dyn Linear>> = names.map(head).collect::<Result<_>>()?;
        if heads.is_empty() {
            let what = format!("Medusa heads in {}", checkpoint.file());
            return Err(Error::invalid(what, 0, "at least 1, named medusa.0.weight"));
        }
        Ok(Medusa { tap, heads, widths: WIDTHS.to_vec(), known: None })
    }

    /// The same with this many children behind each node, by depth; the last number goes on.
    ///
    /// # Errors
    /// If no number is given, or one is 0.
    pub fn with_widths(self, widths: &[usize]) -> Result<Self> {
        Ok(Medusa { widths: check_widths(widths)?, ..self })
    }

    /// The logits of place `place`, `[vocab]`.
    fn logits(&self, place: usize, hidden: &Array2<f32>) -> Vec<f32> {
        let mut x = self.heads[place].apply(hidden.view());
        x.mapv_inplace(silu);
        self.tap.head().apply((x + hidden).view()).into_iter().collect()
    }
}

/// The likeliest tokens, likeliest first.
fn likeliest(mut logits: Vec<f32>, count: usize) -> Result<Vec<u32>> {
    let count = count.min(logits.len());
    let next = |_| {
        let token = naive_decode::argmax(&logits)?;
        logits[token as usize] = f32::NEG_INFINITY;
        Ok(token)
    };
    (0..count).map(next).collect()
}

impl Proposer for Medusa {
    fn name(&self) -> &'static str {
        "Medusa heads"
    }

    // ANCHOR: propose
    fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
        let mut tree = DraftTree::empty();
        let Some((_, hidden)) = self.known.as_ref().filter(|(text, _)| text == context) else {
            return Ok(tree); // nothing is known of this text
        };
        let mut level = vec![None];
        for place in 0..depth.min(self.heads.len()) {
            let width = self.widths[place.min(self.widths.len() - 1)];
            let tokens = likeliest(self.logits(place, hidden), width)?;
            let children =
                level.iter().flat_map(|&parent| tokens.iter().map(move |&t| (parent, t)));
            let children: Vec<(Option<usize>, u32)> = children.collect();
            let add = |(parent, token)| Some(tree.add(Node { token, parent, drawn_from: None }));
            level = children.into_iter().map(add).collect();
        }
        Ok(tree)
    }
    // ANCHOR_END: propose

    fn nodes(&self, depth: usize) -> usize {
        nodes(&self.widths, depth.min(self.heads.len()))
    }

    fn wants(&self) -> Want {
        Want::Last
    }

    fn read(&mut self, prompt: &[u32], _start: usize) {
        let seen = self.tap.seen();
        let last = seen.nrows().checked_sub(1);
        self.known = last.map(|last| (prompt.to_vec(), seen.select(Axis(0), &[last])));
    }

    fn learn(&mut self, verdict: &Verdict) {
        let row = verdict.rows().last().copied().unwrap_or(0);
        let seen = self.tap.seen();
        self.known = (row < seen.nrows()).then(|| (verdict.text(), seen.select(Axis(0), &[row])));
    }
}
