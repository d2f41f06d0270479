//! A radix tree over tokens (SGLang's RadixAttention, Zheng et al. 2023).
//!
//! Texts that begin alike share a path from the root for as long as they agree. Where they part, the path
//! branches. An edge is a run of whole blocks, however long, so that a text which nobody else began takes
//! one node. Edges are split only between blocks, because blocks are what can be shared; but a lookup may end
//! inside a block, and then gives that block for the tokens in it that agree.
//!
//! | File | Holds |
//! |---|---|
//! | `edge.rs` | a run of blocks: their tokens, names and last uses |
//! | `nodes.rs` | nodes in an arena, who hangs on whom |
//! | `walk.rs` | following a text down the tree: the lookup |
//! | `grow.rs` | taking in a text: split an edge, lengthen one, branch |
//! | `shrink.rs` | letting go: the end of the leaf that has gone unused longest |
//! | `integrity.rs` | everything that must hold of a tree |
//! | `outline.rs` | the tree as a list, for drawing |
//!
//! **Leaves first.** A block is of use only after those before it, so only ends of leaves may go. Each
//! block remembers when it was last used, and a path is used from its beginning, so along it the times only
//! fall: the block that has gone unused longest is always at the end of a leaf, and the leaves wait in
//! a queue by that time.
//!
//! Unlike SGLang's, a lookup splits nothing: there, an edge is cut where the text leaves it, so that each
//! half can have a time of its own. Here each block has one. Nodes own their tokens instead of sharing slabs
//! of them: a split copies four bytes a token, and what has stayed keeps nothing alive that is gone.

mod edge;
mod grow;
mod integrity;
mod nodes;
mod outline;
mod shrink;
mod walk;

pub use outline::Branch;

use crate::queue::Queue;
use crate::{BlockHash, Chain, Evicted, Prefix, PrefixCache, Salt, Statistics};
use naive_decode::Result;
use nodes::{NodeId, Nodes};
use paged_cache::{BlockId, Blocks, check_block_tokens};
use std::collections::HashMap;

// ANCHOR: tree
/// Texts as paths from a root, one root for each salt.
///
/// Invariants: see `integrity.rs`.
pub struct RadixTree<H = Chain> {
    block_tokens: usize,
    hash: H,
    nodes: Nodes,
    roots: HashMap<Salt, NodeId>,
    /// The leaves, by the last use of their last block.
    leaves: Queue<NodeId>,
    /// Lookups and insertions so far that came to a tree: the only time there is.
    now: u64,
    statistics: Statistics,
}
// ANCHOR_END: tree

impl<H: BlockHash> RadixTree<H> {
    /// An empty tree over blocks of this many tokens. `hash` names the blocks, for tiers; the tree itself
    /// compares tokens.
    ///
    /// # Errors
    /// If the number of tokens is not a power of two from 1 to 256.
    pub fn new(block_tokens: usize, hash: H) -> Result<Self> {
        check_block_tokens(block_tokens)?;
        Ok(RadixTree {
            block_tokens,
            hash,
            nodes: Nodes::new(),
            roots: HashMap::new(),
            leaves: Queue::new(),
            now: 0,
            statistics: Statistics::default(),
        })
    }

    /// Nodes, without the roots.
    pub fn nodes(&self) -> usize {
        self.nodes.count() - self.roots.len()
    }
}

impl<H: BlockHash> PrefixCache for RadixTree<H> {
    fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    // ANCHOR: longest
    fn longest(&mut self, salt: Salt, tokens: &[u32], most: usize, blocks: &mut Blocks) -> Prefix {
        self.statistics.queries += 1;
        self.statistics.asked += tokens.len() as u64;
        let Some(&root) = self.roots.get(&salt) else { return Prefix::default() };
        let walk = self.walk(root, &tokens[..most.min(tokens.len())]);
        self.statistics.compared += walk.compared;
        self.statistics.found += walk.tokens as u64;
        let found = self.touch(&walk);
        for &block in &found {
            blocks.share(block);
        }
        Prefix { tokens: walk.tokens, blocks: found }
    }
    // ANCHOR_END: longest

    fn keep(
        &mut self,
        salt: Salt,
        tokens: &[u32],
        table: &[BlockId],
        blocks: &mut Blocks,
    ) -> usize {
        let full = (tokens.len() / self.block_tokens).min(table.len());
        let kept = self.grow(salt, &tokens[..full * self.block_tokens], &table[..full]);
        for &block in &table[full - kept..full] {
            blocks.share(block);
        }
        self.statistics.kept += kept as u64;
        kept
    }

    fn evict(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize {
        let freed = self.shrink(wanted, blocks, evicted);
        self.statistics.evicted += freed as u64;
        freed
    }

    fn known(&self, salt: Salt, tokens: &[u32]) -> Vec<BlockId> {
        let Some(&root) = self.roots.get(&salt) else { return Vec::new() };
        let walk = self.walk(root, tokens);
        let blocks = walk.path.iter().flat_map(|&node| self.nodes[node].edge.blocks());
        blocks.take(walk.tokens / self.block_tokens).collect()
    }

    fn outline(&self) -> Box<dyn Iterator<Item = Branch<'_>> + '_> {
        Box::new(RadixTree::outline(self))
    }

    fn held(&self) -> Vec<BlockId> {
        self.nodes.iter().flat_map(|(_, node)| node.edge.blocks()).collect()
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn check_integrity(&self, blocks: &Blocks) -> Result<()> {
        self.check(blocks)
    }
}
