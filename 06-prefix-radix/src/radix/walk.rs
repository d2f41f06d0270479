//! Following a text down the tree.

use super::RadixTree;
use super::nodes::NodeId;
use paged_cache::BlockId;
use std::cmp::Ordering;

/// How far a text and the tree agree.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The nodes that it goes through: each to its end, but perhaps the last.
    pub(super) path: Vec<NodeId>,
    /// Tokens that agree on the last node's edge.
    pub(super) inside: usize,
    /// Tokens that agree in all.
    pub(super) tokens: usize,
    /// Tokens compared on the way.
    pub(super) compared: u64,
}

impl<H> RadixTree<H> {
    // ANCHOR: walk
    /// The longest beginning of `tokens` that the tree below `root` knows.
    ///
    /// Each token is compared once, and at each branch a few more to find the way: a binary search
    /// among the children. That is all for which the size of the tree counts.
    pub(super) fn walk(&self, root: NodeId, tokens: &[u32]) -> Walk {
        let mut walk = Walk::default();
        let mut node = root;
        while let Some(child) = self.nearest(node, &tokens[walk.tokens..], &mut walk.compared) {
            let edge = &self.nodes[child].edge.tokens;
            let agree = common(edge, &tokens[walk.tokens..], &mut walk.compared);
            walk.path.push(child);
            walk.inside = agree;
            walk.tokens += agree;
            if agree < edge.len() {
                break;
            }
            node = child;
        }
        walk
    }

    /// The child that agrees longest with `rest`, if any agrees at all.
    ///
    /// In sorted order, whoever has the longest beginning in common with `rest` stands right before or
    /// right after the place where `rest` itself would stand.
    fn nearest(&self, node: NodeId, rest: &[u32], compared: &mut u64) -> Option<NodeId> {
        let block = &rest[..rest.len().min(self.block_tokens)];
        let first = |child: NodeId| &self.nodes[child].edge.tokens[..self.block_tokens];
        let children = &self.nodes[node].children;
        let place = children
            .partition_point(|&child| order(first(child), block, compared) == Ordering::Less);
        let neighbours = &children[place.saturating_sub(1)..children.len().min(place + 1)];
        let agreeing =
            neighbours.iter().map(|&child| (common(first(child), block, compared), child));
        agreeing.max_by_key(|&(agree, _)| agree).filter(|&(agree, _)| agree > 0).map(|(_, c)| c)
    }
    // ANCHOR_END: walk

    /// The blocks that a walk went through, the last perhaps not to its end, have been used now.
    pub(super) fn touch(&mut self, walk: &Walk) -> Vec<BlockId> {
        self.now += 1;
        let mut found = Vec::new();
        for (i, &id) in walk.path.iter().enumerate() {
            let node = &mut self.nodes[id];
            let before = node.edge.end_used();
            let through = if i + 1 < walk.path.len() {
                node.edge.slots.len()
            } else {
                walk.inside.div_ceil(self.block_tokens)
            };
            for slot in &mut node.edge.slots[..through] {
                slot.used = self.now;
                found.push(slot.block);
            }
            if node.children.is_empty() && through == node.edge.slots.len() {
                self.leaves.touch(before, self.now, id);
            }
        }
        found
    }
}

/// How many tokens two runs begin with alike.
fn common(a: &[u32], b: &[u32], compared: &mut u64) -> usize {
    let agree = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    *compared += (agree + 1).min(a.len()).min(b.len()) as u64;
    agree
}

/// Which of two runs comes first, as slices compare.
fn order(a: &[u32], b: &[u32], compared: &mut u64) -> Ordering {
    let agree = common(a, b, compared);
    a.get(agree).cmp(&b.get(agree))
}
