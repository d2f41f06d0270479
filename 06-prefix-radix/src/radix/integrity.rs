//! Everything that must hold of a tree.
//!
//! 1. Every node is reached from one root, once, and hangs on the node that it is reached from.
//! 2. An edge has at least one block, and as many tokens as fill its blocks; only a root's is empty.
//! 3. Children begin with different blocks and stand in the order of their tokens. A root has some.
//! 4. Along a path the times of last use do not rise, and none lies ahead.
//! 5. Every leaf is in the queue by its end's last use, and nothing else is.
//! 6. A block's name is the hash of its parent's name and its tokens.
//! 7. No block is held twice, and none is free.

use super::RadixTree;
use super::nodes::{Node, NodeId, Parent};
use crate::BlockHash;
use crate::cache::check_held;
use crate::{PrefixCache, Salt};
use naive_decode::{Error, Result};
use paged_cache::Blocks;

impl<H: BlockHash> RadixTree<H> {
    pub(super) fn check(&self, blocks: &Blocks) -> Result<()> {
        let (mut reached, mut leaves) = (0, 0);
        for (&salt, &root) in &self.roots {
            self.check_root(salt, root)?;
            let mut open = vec![root];
            while let Some(id) = open.pop() {
                reached += 1;
                leaves += usize::from(self.nodes[id].children.is_empty());
                self.check_node(id)?;
                self.check_children(id)?;
                // More than there are: some node is reached twice, perhaps for ever.
                if reached > self.nodes.count() {
                    break;
                }
                open.extend(&self.nodes[id].children);
            }
        }
        expect("nodes that the roots lead to", reached, self.nodes.count())?;
        expect("leaves in the queue", self.leaves.len(), leaves)?;
        check_held(&self.held(), blocks)
    }

    fn check_root(&self, salt: Salt, root: NodeId) -> Result<()> {
        let Node { parent, edge, children } = &self.nodes[root];
        expect("what a root hangs on", parent, &Parent::Salt(salt))?;
        expect("tokens on a root's edge", edge.tokens.len(), 0)?;
        expect("whether a root has no children", children.is_empty(), false)
    }

    fn check_node(&self, id: NodeId) -> Result<()> {
        let Node { parent, edge, children } = &self.nodes[id];
        let Parent::Node(above) = *parent else { return Ok(()) };
        expect("whether an edge is empty", edge.slots.is_empty(), false)?;
        expect("tokens on an edge", edge.tokens.len(), edge.slots.len() * self.block_tokens)?;
        let mut key = self.key(above);
        let mut used = match self.nodes[above].parent {
            Parent::Node(_) => self.nodes[above].edge.end_used(),
            Parent::Salt(_) => self.now,
        };
        for (slot, tokens) in edge.slots.iter().zip(edge.tokens.chunks(self.block_tokens)) {
            key = self.hash.next(key, tokens);
            expect("the name of a block", slot.key, key)?;
            if slot.used > used {
                let expected = format!("no later than {used}, as the block before it");
                return Err(Error::invalid("a block's last use", slot.used, expected));
            }
            used = slot.used;
        }
        if children.is_empty() {
            expect("whether a leaf is in the queue", self.leaves.contains(used, id), true)?;
        }
        Ok(())
    }

    fn check_children(&self, id: NodeId) -> Result<()> {
        let children = &self.nodes[id].children;
        let first = |child: NodeId| self.nodes[child].edge.tokens.get(..self.block_tokens);
        for (i, &child) in children.iter().enumerate() {
            expect("what a child hangs on", self.nodes[child].parent, Parent::Node(id))?;
            let after = i == 0 || first(children[i - 1]) < first(child);
            expect("whether children are in order", after, true)?;
        }
        Ok(())
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let what = format!("the prefix tree: {what}");
    Err(Error::invalid(what, format!("{found:?}"), format!("{expected:?}")))
}
