//! Names of blocks: a hash of a block's tokens and of the name of the block before it.
//!
//! Keys and values depend on everything that came before them, so a block's own tokens cannot be its
//! name. With the parent's name hashed along, the name stands for the whole text up to the block's end
//! and takes one short hash to make. At the root of the chain are the salt and whatever else the content
//! depends on.

use crate::Salt;
use paged_cache::offload::Key;

// ANCHOR: hash
/// Makes the names.
pub trait BlockHash: Send {
    /// The name of nothing yet: what the first block of a text has as its parent.
    fn root(&self, salt: Salt) -> Key;
    /// The name of a block that holds `tokens`, after the block `parent`.
    fn next(&self, parent: Key, tokens: &[u32]) -> Key;
}
// ANCHOR_END: hash

// ANCHOR: chain
/// Names by BLAKE3.
///
/// vLLM once took Python's `hash`, which can be predicted: a prompt could be made up that was answered
/// from another user's cache (CVE-2025-25183).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Stands for all that keys and values depend on besides the text.
    seed: [u8; 32],
}

impl Chain {
    /// `content` says what keys and values depend on besides the text: the model and its weights, the
    /// type of their numbers, their layout in a block. Names of one content never meet those of another,
    /// even in a file that several have written to.
    pub fn new(content: &[u8]) -> Self {
        Chain { seed: blake3::derive_key("prefix-radix 2026 content of blocks", content) }
    }

    /// The names of a text's whole blocks of `block` tokens, in order.
    pub fn names(&self, salt: Salt, text: &[u32], block: usize) -> impl Iterator<Item = Key> {
        text.chunks_exact(block).scan(self.root(salt), |name, tokens| {
            *name = self.next(*name, tokens);
            Some(*name)
        })
    }
}

impl BlockHash for Chain {
    fn root(&self, salt: Salt) -> Key {
        Key(*blake3::keyed_hash(&self.seed, &salt.0).as_bytes())
    }

    fn next(&self, parent: Key, tokens: &[u32]) -> Key {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        Key(*blake3::keyed_hash(&parent.0, &bytes).as_bytes())
    }
}
// ANCHOR_END: chain

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_hangs_on_everything_before_it() {
        let chain = Chain::new(b"a model");
        let name = |salt, texts: &[&[u32]]| {
            texts.iter().fold(chain.root(salt), |parent, tokens| chain.next(parent, tokens))
        };
        let a = name(Salt::NONE, &[&[1, 2], &[3, 4]]);
        assert_eq!(a, name(Salt::NONE, &[&[1, 2], &[3, 4]]));
        assert_ne!(a, name(Salt::NONE, &[&[1, 5], &[3, 4]]));
        assert_ne!(a, name(Salt::NONE, &[&[3, 4], &[1, 2]]));
        assert_ne!(a, name(Salt::NONE, &[&[1, 2, 3, 4]]));
        assert_ne!(a, name(Salt::of(b"ada"), &[&[1, 2], &[3, 4]]));
        assert_ne!(chain.root(Salt::NONE), Chain::new(b"another").root(Salt::NONE));
    }
}
