//! Where a tree branches, and what it finds there.

use crate::{SIZE, chain, read, text};
use paged_cache::Blocks;
use prefix_radix::{Branch, PrefixCache, RadixTree, Salt};

#[test]
fn the_tree_finds_the_neighbour_that_agrees_longest() {
    let mut tree = RadixTree::new(SIZE, chain()).unwrap();
    let mut blocks = Blocks::new(32);
    for tokens in [[5, 5, 1, 1], [5, 5, 5, 1], [5, 7, 0, 0], [2, 5, 5, 5], [9, 9, 9, 9]] {
        read(&mut tree, Salt::NONE, &tokens, &mut blocks);
    }
    for (prompt, found) in [
        (vec![5, 5, 5, 5, 5], 3),
        (vec![5, 5, 1, 2], 3),
        (vec![5, 7, 7, 7], 2),
        (vec![5, 6, 7, 7], 1),
        (vec![5, 0, 0, 0], 1),
        (vec![1, 5, 5, 5], 0),
        (vec![9, 9, 9, 9], 3),
        (vec![9, 9], 1),
        (vec![9], 0),
        (vec![], 0),
    ] {
        let prefix = tree.find(Salt::NONE, &prompt, &mut blocks);
        assert_eq!(prefix.tokens, found, "{prompt:?}");
        prefix.release(&mut blocks);
    }
    assert_eq!(tree.nodes(), 5);
    let first: Vec<Vec<u32>> = tree.outline().map(|branch| branch.tokens.to_vec()).collect();
    assert_eq!(first[0], [2, 5, 5, 5]);
    assert!(first.is_sorted());
}

#[test]
fn edges_are_split_between_blocks() {
    let mut tree = RadixTree::new(SIZE, chain()).unwrap();
    let mut blocks = Blocks::new(32);
    read(&mut tree, Salt::NONE, &text(0, 16), &mut blocks);
    assert_eq!(tree.nodes(), 1);
    // Agrees for six tokens, which is one block.
    let other = [&text(0, 6)[..], &text(90, 6)].concat();
    read(&mut tree, Salt::NONE, &other, &mut blocks);
    let outline: Vec<Branch> = tree.outline().collect();
    let shape: Vec<(usize, usize)> = outline.iter().map(|b| (b.depth, b.blocks.len())).collect();
    assert_eq!(shape, [(0, 1), (1, 3), (1, 2)]);
    // A text that grows lengthens its leaf.
    read(&mut tree, Salt::NONE, &text(0, 24), &mut blocks);
    assert_eq!((tree.nodes(), tree.outline().nth(1).unwrap().blocks.len()), (3, 5));
    tree.check_integrity(&blocks).unwrap();
}

#[test]
fn a_salt_that_nothing_is_left_of_takes_no_room() {
    let mut tree = RadixTree::new(SIZE, chain()).unwrap();
    let mut blocks = Blocks::new(4);
    for tenant in 0..1_000u32 {
        let salt = Salt::of(&tenant.to_le_bytes());
        while blocks.free() == 0 {
            tree.evict(1, &mut blocks, &mut |_| ());
        }
        read(&mut tree, salt, &text(0, 4), &mut blocks);
    }
    assert_eq!(tree.nodes(), 4);
    // Checks that the roots are as many as lead somewhere.
    tree.check_integrity(&blocks).unwrap();
}
