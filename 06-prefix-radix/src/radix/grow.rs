//! Taking in a text.

use super::RadixTree;
use super::edge::{Edge, Slot};
use super::nodes::{Node, NodeId, Parent};
use crate::{BlockHash, Salt};
use paged_cache::BlockId;
use paged_cache::offload::Key;

impl<H: BlockHash> RadixTree<H> {
    // ANCHOR: grow
    /// Makes the tree know `tokens`, which fill the blocks of `table`, and returns how many of these it
    /// now points at: the last ones. It knew the others, or others like them.
    pub(super) fn grow(&mut self, salt: Salt, tokens: &[u32], table: &[BlockId]) -> usize {
        if table.is_empty() {
            return 0;
        }
        let root = self.root(salt);
        let mut walk = self.walk(root, tokens);
        // A block that agrees in part is another block.
        let beyond = walk.tokens % self.block_tokens;
        walk.tokens -= beyond;
        walk.inside -= beyond;
        if beyond > 0 && walk.inside == 0 {
            walk.path.pop();
            walk.inside = walk.path.last().map_or(0, |&id| self.nodes[id].edge.tokens.len());
        }
        self.touch(&walk);
        let known = walk.tokens / self.block_tokens;
        if known < table.len() {
            let mut node = walk.path.last().copied().unwrap_or(root);
            if walk.inside < self.nodes[node].edge.tokens.len() {
                node = self.split(node, walk.inside / self.block_tokens);
            }
            let end = self.edge(node, &tokens[walk.tokens..], &table[known..]);
            self.append(node, end);
        }
        table.len() - known
    }
    // ANCHOR_END: grow

    fn root(&mut self, salt: Salt) -> NodeId {
        let empty =
            || Node { parent: Parent::Salt(salt), edge: Edge::default(), children: Vec::new() };
        *self.roots.entry(salt).or_insert_with(|| self.nodes.insert(empty()))
    }

    /// The name of the text up to the end of a node.
    pub(super) fn key(&self, node: NodeId) -> Key {
        let Node { parent, edge, .. } = &self.nodes[node];
        match (edge.slots.last(), parent) {
            (Some(slot), _) => slot.key,
            (None, Parent::Salt(salt)) => self.hash.root(*salt),
            (None, Parent::Node(_)) => unreachable!("only a root's edge is empty"),
        }
    }

    /// Blocks to come after a node, used now for the first time.
    fn edge(&self, node: NodeId, tokens: &[u32], table: &[BlockId]) -> Edge {
        let mut key = self.key(node);
        let slot = |(tokens, &block)| {
            key = self.hash.next(key, tokens);
            Slot { block, key, used: self.now }
        };
        let slots = tokens.chunks_exact(self.block_tokens).zip(table).map(slot).collect();
        Edge { tokens: tokens.to_vec(), slots }
    }

    /// Cuts a node in two after `at` blocks and returns the upper part, a new node.
    fn split(&mut self, node: NodeId, at: usize) -> NodeId {
        let parent = self.nodes[node].parent;
        let Parent::Node(above) = parent else { unreachable!("a root has nothing to cut") };
        let place = self.place(above, node);
        let edge = self.nodes[node].edge.split_front(at);
        let upper = self.nodes.insert(Node { parent, edge, children: vec![node] });
        self.nodes[node].parent = Parent::Node(upper);
        self.nodes[above].children[place] = upper;
        upper
    }

    /// The place of a child among its parent's children.
    pub(super) fn place(&self, parent: NodeId, child: NodeId) -> usize {
        self.nodes.place(parent, &self.nodes[child].edge.tokens[..self.block_tokens])
    }

    /// Puts blocks after a node: a leaf grows longer, anything else gets one more child.
    fn append(&mut self, node: NodeId, end: Edge) {
        let Node { parent, edge, children } = &mut self.nodes[node];
        if children.is_empty() && matches!(parent, Parent::Node(_)) {
            let before = edge.end_used();
            edge.extend(end);
            self.leaves.touch(before, self.now, node);
            return;
        }
        let place = self.nodes.place(node, &end.tokens[..self.block_tokens]);
        let parent = Parent::Node(node);
        let child = self.nodes.insert(Node { parent, edge: end, children: Vec::new() });
        self.nodes[node].children.insert(place, child);
        self.leaves.insert(self.now, child);
    }
}
