//! What may come next, as a tree: a chain is a tree too.

use naive_decode::{Error, Result, Span, Visible, Want};
use std::sync::Arc;

/// A token that may come, after its parent or after the text itself.
#[derive(Debug, Clone)]
pub struct Node {
    /// The token.
    pub token: u32,
    /// The node before it; the text itself if none. Always an earlier one.
    pub parent: Option<usize>,
    /// What it was drawn from, `[vocab]`, its earlier siblings being what they are; none if nothing was
    /// drawn: the proposer would have named this token in any case.
    pub drawn_from: Option<Arc<[f32]>>,
}

// ANCHOR: tree
/// Some tokens that may follow a text, each after one of the others or after the text itself.
///
/// Invariant: a node's parent comes before it. Siblings are tried in the order in which they stand here.
#[derive(Debug, Clone, Default)]
pub struct DraftTree {
    nodes: Vec<Node>,
}
// ANCHOR_END: tree

impl DraftTree {
    /// Nothing to propose.
    pub fn empty() -> Self {
        DraftTree::default()
    }

    /// One token after the other, named and not drawn.
    pub fn chain(tokens: &[u32]) -> Self {
        let mut tree = DraftTree::empty();
        tree.add_chain(None, tokens);
        tree
    }

    /// The nodes, parents first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is proposed.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a node, and gives its number.
    ///
    /// # Panics
    /// If the parent is none of the nodes there are.
    pub fn add(&mut self, node: Node) -> usize {
        assert!(node.parent.is_none_or(|parent| parent < self.len()), "parents come first");
        self.nodes.push(node);
        self.len() - 1
    }

    /// Adds tokens one after the other behind a node, or behind the text; those that are there already
    /// are not added twice. Gives the node of the last one.
    pub fn add_chain(&mut self, parent: Option<usize>, tokens: &[u32]) -> Option<usize> {
        tokens.iter().fold(parent, |parent, &token| {
            let there = self.children(parent).find(|&child| self.nodes[child].token == token);
            let add = |tree: &mut Self| tree.add(Node { token, parent, drawn_from: None });
            Some(there.unwrap_or_else(|| add(self)))
        })
    }

    /// Keeps the first `nodes` nodes. Parents come first, so that is a tree as well.
    pub fn truncate(&mut self, nodes: usize) {
        self.nodes.truncate(nodes);
    }

    /// Keeps the nodes that are at most so deep: `depth` tokens one after the other.
    pub fn cut_below(&mut self, depth: usize) {
        let depths = self.depths();
        self.cut(|index, _| depths[index] > depth);
    }

    /// Cuts tokens that a model of this many does not know, and what stands behind them: it would refuse the whole pass.
    /// They would never have been kept. Whatever a node was drawn from has no more tokens than the model, so these were
    /// named.
    pub fn cut_unknown(&mut self, vocabulary: usize) {
        self.cut(|_, node| node.token as usize >= vocabulary);
    }

    /// Leaves out some nodes, and all behind them.
    fn cut(&mut self, is_out: impl Fn(usize, &Node) -> bool) {
        let mut kept = DraftTree::empty();
        // By node, where it is kept.
        let mut places: Vec<Option<usize>> = Vec::with_capacity(self.len());
        for (index, node) in self.nodes.iter().enumerate() {
            let parent = node.parent.map(|parent| places[parent]);
            let stays = parent != Some(None) && !is_out(index, node);
            let node = || Node { parent: parent.flatten(), ..node.clone() };
            places.push(stays.then(|| kept.add(node())));
        }
        *self = kept;
    }

    /// Puts the nodes in order of their depth; those of one depth stay as they stand. The first few are then the likeliest
    /// few, as far as depth tells.
    pub fn sort_by_depth(&mut self) {
        let depths = self.depths();
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|&node| depths[node]);
        let mut places = vec![0; self.len()];
        let mut sorted = DraftTree::empty();
        for node in order {
            let parent = self.nodes[node].parent.map(|parent| places[parent]);
            places[node] = sorted.add(Node { parent, ..self.nodes[node].clone() });
        }
        *self = sorted;
    }

    /// By node, how many tokens its path has.
    pub fn depths(&self) -> Vec<usize> {
        let mut depths = Vec::with_capacity(self.len());
        for node in &self.nodes {
            depths.push(node.parent.map_or(0, |parent: usize| depths[parent]) + 1);
        }
        depths
    }

    /// Tokens of the longest path.
    pub fn depth(&self) -> usize {
        self.depths().into_iter().max().unwrap_or(0)
    }

    /// The nodes behind a node, or behind the text, in order.
    pub fn children(&self, parent: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(move |(_, node)| node.parent == parent).map(|(index, _)| index)
    }

    /// Tokens one after the other that a model has judged which kept these nodes: they, and what it refused behind the last
    /// of them, if anything stood there.
    pub fn judged(&self, kept: &[usize]) -> usize {
        kept.len() + usize::from(self.children(kept.last().copied()).next().is_some())
    }

    /// A node and those before it, first to last.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let parent = |&node: &usize| self.nodes[node].parent;
        let mut path: Vec<usize> = std::iter::successors(Some(node), parent).collect();
        path.reverse();
        path
    }

    // ANCHOR: span
    /// The text's last token and the whole tree as one span, whose logits are all wanted: row 0 is the
    /// text's last token, row `1 + i` is node `i`.
    ///
    /// `context` is the text; the cache holds all of it but the last token. Each node sees the text and its
    /// own path, nothing of other branches, and stands where it would stand alone.
    ///
    /// # Errors
    /// If the text is empty.
    pub fn span(&self, sequence: usize, context: &[u32]) -> Result<Span> {
        let Some((last, before)) = context.split_last() else {
            return Err(Error::invalid("text to go on from", "empty", "at least one token"));
        };
        let first = context.len(); // slot of node 0
        let mut span = Span::new(sequence, before.len(), &[*last], Want::All);
        for (index, node) in self.nodes.iter().enumerate() {
            let path = self.path(index);
            span.tokens.push(node.token);
            span.positions.push(before.len() + path.len());
            span.sees.push(sees(first, path));
        }
        Ok(span)
    }
    // ANCHOR_END: span
}

/// What a node sees whose path this is: `text` slots, and those of its path; node `i` is in slot `text + i`.
pub(crate) fn sees(text: usize, path: Vec<usize>) -> Visible {
    // As long as a branch has nothing between its nodes, it is simply more text.
    match path.iter().enumerate().all(|(depth, &node)| node == depth) {
        true => Visible::until(text + path.len()),
        false => {
            Visible { range: 0..text, also: path.into_iter().map(|node| text + node).collect() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens and parents.
    fn nodes(tree: &DraftTree) -> Vec<(u32, Option<usize>)> {
        tree.nodes().iter().map(|node| (node.token, node.parent)).collect()
    }

    #[test]
    fn chains_that_begin_alike_share_their_beginning() {
        let mut tree = DraftTree::chain(&[5, 6, 7]);
        tree.add_chain(None, &[5, 6, 8]);
        tree.add_chain(None, &[9]);
        let tokens: Vec<u32> = tree.nodes().iter().map(|node| node.token).collect();
        assert_eq!(tokens, [5, 6, 7, 8, 9]);
        assert_eq!(tree.path(3), [0, 1, 3]);
        assert_eq!(tree.children(Some(1)).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(tree.children(None).collect::<Vec<_>>(), [0, 4]);
    }

    #[test]
    fn behind_the_end_of_a_branch_nothing_was_judged() {
        let mut tree = DraftTree::chain(&[5, 6]);
        tree.add_chain(None, &[7, 8, 9, 10]);
        // Nothing kept; half of the short branch; all of it; three of the long one; all of that.
        let kept: [&[usize]; 5] = [&[], &[0], &[0, 1], &[2, 3, 4], &[2, 3, 4, 5]];
        assert_eq!(kept.map(|kept| tree.judged(kept)), [1, 2, 2, 4, 4]);
        assert_eq!(DraftTree::empty().judged(&[]), 0);
    }

    #[test]
    fn what_is_too_deep_is_cut_wherever_it_stands() {
        let mut tree = DraftTree::chain(&[5, 6, 7]);
        tree.add_chain(None, &[5, 8, 9]);
        tree.add_chain(None, &[4]);
        tree.cut_below(2);
        assert_eq!(nodes(&tree), [(5, None), (6, Some(0)), (8, Some(0)), (4, None)]);
        tree.cut_below(0);
        assert!(tree.is_empty());
    }

    #[test]
    fn what_a_model_does_not_know_goes_with_all_behind_it() {
        let mut tree = DraftTree::chain(&[5, 61, 7]);
        tree.add_chain(None, &[5, 8, u32::MAX]);
        tree.add_chain(None, &[99, 4]);
        tree.add_chain(None, &[60]);
        tree.cut_unknown(61);
        assert_eq!(nodes(&tree), [(5, None), (8, Some(0)), (60, None)]);
    }

    #[test]
    fn level_by_level_each_node_stands_behind_the_same_one() {
        let mut tree = DraftTree::chain(&[1, 2, 3]);
        tree.add_chain(None, &[4, 5]);
        tree.add_chain(None, &[1, 6]);
        assert_eq!((tree.depths(), tree.depth()), (vec![1, 2, 3, 1, 2, 2], 3));
        tree.sort_by_depth();
        let expected =
            [(1, None), (4, None), (2, Some(0)), (5, Some(1)), (6, Some(0)), (3, Some(2))];
        assert_eq!(nodes(&tree), expected);
        assert_eq!(DraftTree::empty().depth(), 0);
    }

    #[test]
    fn a_node_sees_the_text_and_its_own_path() {
        let mut tree = DraftTree::chain(&[5, 6]);
        tree.add_chain(None, &[7, 8]);
        let span = tree.span(3, &[1, 2, 3]).unwrap();
        assert_eq!((span.sequence, span.start, &span.tokens[..]), (3, 2, &[3, 5, 6, 7, 8][..]));
        assert_eq!(span.positions, [2, 3, 4, 3, 4]);
        assert_eq!(span.sees[..3], [3, 4, 5].map(Visible::until));
        assert_eq!(span.sees[4], Visible { range: 0..3, also: vec![5, 6] });
        assert!(tree.span(0, &[]).is_err());
    }
}
