//! Nodes in an arena: numbers instead of pointers, and numbers of nodes that are gone are used again.

use super::edge::Edge;
use crate::Salt;
use std::ops::{Index, IndexMut};

/// A node, by its place in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(u32);

/// What a node hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    /// Nothing: it is the root of what is kept under a salt. Its edge is empty.
    Salt(Salt),
    /// Another node.
    Node(NodeId),
}

/// An edge, and what branches off at its end.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) parent: Parent,
    pub(super) edge: Edge,
    /// In the order of their first blocks' tokens, which differ.
    pub(super) children: Vec<NodeId>,
}

/// All nodes of a tree.
#[derive(Debug, Clone)]
pub(super) struct Nodes {
    places: Vec<Option<Node>>,
    free: Vec<NodeId>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Nodes { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            self.places[id.0 as usize] = Some(node);
            return id;
        }
        let id = NodeId(u32::try_from(self.places.len()).expect("no more nodes than blocks"));
        self.places.push(Some(node));
        id
    }

    pub(super) fn remove(&mut self, id: NodeId) -> Node {
        self.free.push(id);
        self.places[id.0 as usize].take().expect("a node is removed once")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let id = |place: usize| NodeId(place as u32);
        self.places.iter().enumerate().filter_map(move |(i, node)| Some((id(i), node.as_ref()?)))
    }

    /// The place among `parent`'s children where one that begins with `block` is, or would be.
    pub(super) fn place(&self, parent: NodeId, block: &[u32]) -> usize {
        let before = |child: &NodeId| self[*child].edge.tokens[..block.len()] < *block;
        self[parent].children.partition_point(before)
    }
}

impl Index<NodeId> for Nodes {
    type Output = Node;

    fn index(&self, id: NodeId) -> &Node {
        self.places[id.0 as usize].as_ref().expect("a node that is there")
    }
}

impl IndexMut<NodeId> for Nodes {
    fn index_mut(&mut self, id: NodeId) -> &mut Node {
        self.places[id.0 as usize].as_mut().expect("a node that is there")
    }
}
