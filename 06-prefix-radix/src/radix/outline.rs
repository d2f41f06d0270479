//! The tree as a list, for drawing.

use super::RadixTree;
use super::nodes::{NodeId, Parent};
use crate::Salt;
use paged_cache::BlockId;

/// One node, as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Under which salt.
    pub salt: Salt,
    /// Nodes above it.
    pub depth: usize,
    /// Tokens on its edge.
    pub tokens: Vec<u32>,
    /// Blocks that they lie in.
    pub blocks: Vec<BlockId>,
    /// When its last block was last used, counted in lookups and insertions.
    pub used: u64,
}

impl<H> RadixTree<H> {
    /// Every node, each before those below it, siblings in the order of their tokens.
    pub fn outline(&self) -> Vec<Branch> {
        let mut roots: Vec<(Salt, NodeId)> =
            self.roots.iter().map(|(&s, &root)| (s, root)).collect();
        roots.sort_unstable();
        let mut branches = Vec::new();
        for (salt, root) in roots {
            let mut open = vec![(root, 0)];
            while let Some((id, depth)) = open.pop() {
                let node = &self.nodes[id];
                let below = if let Parent::Node(_) = node.parent {
                    let (tokens, blocks) = (node.edge.tokens.clone(), node.edge.blocks().collect());
                    let used = node.edge.end_used();
                    branches.push(Branch { salt, depth, tokens, blocks, used });
                    depth + 1
                } else {
                    depth
                };
                open.extend(node.children.iter().rev().map(|&child| (child, below)));
            }
        }
        branches
    }
}
