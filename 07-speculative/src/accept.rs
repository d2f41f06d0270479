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
///
/// # Panics
/// If there are too few rows, or the logits' vocabulary lacks a node's token or is not what it was drawn from.
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
    let left = |id: usize, p: f32| match q {
        None if id == token as usize => 0.0,
        None => p,
        Some(q) => (p - q[id]).max(0.0),
    };
    let total: f64 = p.iter().enumerate().map(|(id, &p)| f64::from(left(id, p))).sum();
    // Where nothing is left, `p` stays as it was: rounding alone can lead here, and what comes next must still be
    // a token that the target may say.
    if total > 0.0 {
        p.iter_mut().enumerate().for_each(|(id, p)| *p = (f64::from(left(id, *p)) / total) as f32);
    }
}
// ANCHOR_END: residual

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Node;
    use naive_decode::Sampling;
    use ndarray::Array2;
    use std::sync::Arc;

    /// The target says one token, to the last bit. So does the draft, but for a trace of another, and drew that.
    #[test]
    fn where_rounding_leaves_nothing_the_target_still_says_what_comes() {
        let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
        let mut sampler = Sampler::new(sampling).unwrap();
        let q: Arc<[f32]> = Arc::from([1.0, 1e-9]);
        let mut tree = DraftTree::empty();
        tree.add(Node { token: 1, parent: None, drawn_from: Some(q) });
        let said = [0.0, f32::NEG_INFINITY];
        let logits = Array2::from_shape_vec((2, 2), [said, said].concat()).unwrap();
        assert_eq!(sampler.distribution(&said, &[0]).unwrap(), [1.0, 0.0]);
        let accepted = accept(&mut sampler, &mut vec![0], &tree, logits.view()).unwrap();
        assert_eq!(accepted, Accepted { path: Vec::new(), next: 0 });
    }
}
