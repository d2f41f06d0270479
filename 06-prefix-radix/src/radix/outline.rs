//! The tree as a list, for drawing.

use super::RadixTree;
use super::nodes::{NodeId, Parent};
use crate::Salt;
use paged_cache::BlockId;

/// One node, as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch<'a> {
    /// Under which salt.
    pub salt: Salt,
    /// Nodes above it.
    pub depth: usize,
    /// Tokens on its edge.
    pub tokens: &'a [u32],
    /// Blocks that they lie in.
    pub blocks: Vec<BlockId>,
    /// When its last block was last used, counted in lookups and insertions that came to a tree.
    pub used: u64,
}

impl<H> RadixTree<H> {
    /// Every node, each before those below it, siblings in the order of their tokens. A node is looked at when it is
    /// asked for: the first few of many take as long as they are few.
    pub fn outline(&self) -> impl Iterator<Item = Branch<'_>> {
        let mut roots: Vec<(Salt, NodeId)> =
            self.roots.iter().map(|(&s, &root)| (s, root)).collect();
        roots.sort_unstable();
        // Nodes that are still to come, the next one last.
        let mut open: Vec<(Salt, NodeId, usize)> =
            roots.into_iter().rev().map(|(salt, root)| (salt, root, 0)).collect();
        std::iter::from_fn(move || {
            loop {
                let (salt, id, depth) = open.pop()?;
                let node = &self.nodes[id];
                let is_root = matches!(node.parent, Parent::Salt(_));
                let below = if is_root { depth } else { depth + 1 };
                open.extend(node.children.iter().rev().map(|&child| (salt, child, below)));
                if !is_root {
                    let (tokens, blocks) = (&node.edge.tokens[..], node.edge.blocks().collect());
                    return Some(Branch {
                        salt,
                        depth,
                        tokens,
                        blocks,
                        used: node.edge.end_used(),
                    });
                }
            }
        })
    }
}
