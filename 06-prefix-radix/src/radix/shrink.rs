//! Letting go of what has gone unused longest.

use super::RadixTree;
use super::nodes::{NodeId, Parent};
use crate::{BlockHash, Evicted};
use paged_cache::Blocks;

impl<H: BlockHash> RadixTree<H> {
    // ANCHOR: shrink
    /// Frees the ends of leaves, the longest unused first, until `wanted` blocks are free or all that is left
    /// is in use.
    ///
    /// O(log n) for each block; where a whole leaf goes, the siblings behind it move up, four bytes each. A
    /// leaf whose end is in use is passed over; there is at most one for each table that somebody holds.
    pub(super) fn shrink(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize {
        let mut freed = 0;
        let mut in_use = None;
        while freed < wanted {
            let Some((used, leaf)) = self.leaves.after(in_use) else { break };
            let edge = &self.nodes[leaf].edge;
            let slot = *edge.slots.last().expect("a leaf has blocks");
            if blocks.references(slot.block) > 1 {
                in_use = Some((used, leaf));
                continue;
            }
            let tokens = &edge.tokens[edge.tokens.len() - self.block_tokens..];
            evicted(Evicted { key: slot.key, tokens, block: slot.block });
            blocks.release(slot.block);
            self.leaves.remove(used, leaf);
            self.drop_end(leaf);
            freed += 1;
        }
        freed
    }
    // ANCHOR_END: shrink

    /// Drops the last block of a leaf that is in no queue. What is a leaf then is in the queue again.
    fn drop_end(&mut self, leaf: NodeId) {
        if self.nodes[leaf].edge.slots.len() > 1 {
            let edge = &mut self.nodes[leaf].edge;
            edge.pop(self.block_tokens);
            self.leaves.insert(edge.end_used(), leaf);
            return;
        }
        let Parent::Node(above) = self.nodes[leaf].parent else {
            unreachable!("a root is no leaf")
        };
        let place = self.place(above, leaf);
        self.nodes.remove(leaf);
        let node = &mut self.nodes[above];
        node.children.remove(place);
        if !node.children.is_empty() {
            return;
        }
        match node.parent {
            Parent::Node(_) => self.leaves.insert(node.edge.end_used(), above),
            // Nobody's texts are left under this salt.
            Parent::Salt(salt) => {
                self.roots.remove(&salt);
                self.nodes.remove(above);
            }
        }
    }
}
