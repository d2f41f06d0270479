//! Which of the proposed tokens stay. Written once, for every proposer.
//!
//! The target's logits say, for the text and for every node, what may come next: a distribution `p`, with
//! temperature, filters and penalties in it. A child that was drawn from `q` is kept with probability
//! `min(1, p(x) / q(x))`; if it is refused, the next sibling is tried against what is then left of `p`, the
//! *residual* `max(0, p - q)`, scaled to sum to one. When no child is left, the next token is drawn from
//! what remains. So every token has the target's distribution, whatever was proposed (Leviathan et al. 2023,
//! Chen et al. 2023; for trees, Miao et al. 2024, SpecInfer, algorithm 2).
//!
//! A token that was named and not drawn is one that was drawn from a distribution with nothing else in it.
//! With temperature 0 the target's distribution has nothing else in it either, and the rule becomes: keep it
//! if it is the likeliest.

use crate::tree::DraftTree;
use naive_decode::{Result, Sampler};
use ndarray::ArrayView2;

/// What is left of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The nodes that stay, first to last: a path from the text.
    pub path: Vec<usize>,
    /// The token after them: drawn from the residual where a child was refused, and a *bonus* where the
    /// path ends with the tree.
    pub next: u32,
}

/// Something that decides what stays of a tree; [`accept`] is the right one.
pub type Rule = fn(&mut Sampler, &mut Vec<u32>, &DraftTree, ArrayView2<f32>) -> Result<Accepted>;

// ANCHOR: accept
/// Walks down a tree, and gives the part that stays.
///
/// `logits` is `[1 + nodes, vocab]`, as [`DraftTree::span`] asks for them. `context` is the text; it is as
/// long as before when this returns.
///
/// # Errors
/// Those of [`Sampler::distribution`].
pub fn accept(
    sampler: &mut Sampler,
    context: &mut Vec<u32>,
    tree: &DraftTree,
    logits: ArrayView2<f32>,
) -> Result<Accepted> {
    let text = context.len();
    let mut path = Vec::new();
    let next = loop {
        let at: Option<usize> = path.last().copied();
        let row = logits.row(at.map_or(0, |node| node + 1)).to_vec();
        let p = sampler.distribution(&row, context);
        let mut p = p.inspect_err(|_| context.truncate(text))?;
        let kept = tree.children(at).find(|&child| {
            let node = &tree.nodes()[child];
            let (token, q) = (node.token as usize, node.drawn_from.as_deref());
            let chance = f64::from(p[token]) / q.map_or(1.0, |q| f64::from(q[token]));
            let kept = sampler.uniform() < chance;
            if !kept {
                subtract(&mut p, node.token, q);
            }
            kept
        });
        match kept {
            Some(child) => {
                context.push(tree.nodes()[child].token);
                path.push(child);
            }
            None => break sampler.draw(&p),
        }
    };
    context.truncate(text);
    Ok(Accepted { path, next })
}
// ANCHOR_END: accept

// ANCHOR: residual
/// `p` becomes `max(0, p - q)`, scaled to sum to one.
fn subtract(p: &mut [f32], token: u32, q: Option<&[f32]>) {
    match q {
        None => p[token as usize] = 0.0,
        Some(q) => p.iter_mut().zip(q).for_each(|(p, q)| *p = (*p - q).max(0.0)),
    }
    let total: f64 = p.iter().map(|&p| f64::from(p)).sum();
    if total > 0.0 {
        p.iter_mut().for_each(|p| *p = (f64::from(*p) / total) as f32);
    } else {
        // What was refused was all there was, to the last bit: rounding alone can lead here, and then
        // any token of the draft's is as good as the one that was refused.
        p[token as usize] = 1.0;
    }
}
// ANCHOR_END: residual
