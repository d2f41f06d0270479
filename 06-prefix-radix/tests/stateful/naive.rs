//! What a prefix cache should know, as a list that is searched from end to end.

use paged_cache::{BlockId, Blocks};
use prefix_radix::{BlockHash, Chain, Salt};

/// How a cache differs from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    Radix,
    HashedLeafFirst,
    HashedLru,
}

/// One block that the cache knows.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) salt: Salt,
    /// The whole text up to the block's end.
    pub(crate) text: Vec<u32>,
    pub(crate) block: BlockId,
    /// Operation that last used it.
    pub(crate) used: usize,
    /// What came before it was let go of, so nothing leads to it any more.
    pub(crate) orphan: bool,
}

pub(crate) struct Naive {
    pub(crate) kind: Kind,
    pub(crate) size: usize,
    pub(crate) known: Vec<Known>,
    pub(crate) now: usize,
    pub(crate) chain: Chain,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Naive {
    /// The entry for exactly this text.
    fn entry(&mut self, salt: Salt, text: &[u32]) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.salt == salt && known.text == text)
    }

    fn in_reach(&mut self, salt: Salt, text: &[u32]) -> bool {
        self.entry(salt, text).is_some_and(|known| !known.orphan)
    }

    /// Tokens that a lookup should find.
    pub(crate) fn longest(&mut self, salt: Salt, tokens: &[u32], most: usize) -> usize {
        let most = most.min(tokens.len());
        match self.kind {
            Kind::Nothing => 0,
            Kind::Radix => {
                let of_salt = self.known.iter().filter(|known| known.salt == salt);
                let agree = of_salt.map(|known| common(&known.text, &tokens[..most]));
                agree.max().unwrap_or(0)
            }
            Kind::HashedLeafFirst | Kind::HashedLru => {
                let mut found = 0;
                while found < most
                    && found + self.size <= tokens.len()
                    && self.in_reach(salt, &tokens[..found + self.size])
                {
                    found += self.size;
                }
                found.min(most)
            }
        }
    }

    /// A lookup found `tokens` in these blocks: they are used now, and must be the right ones.
    pub(crate) fn found(&mut self, salt: Salt, tokens: &[u32], blocks: &[BlockId]) {
        self.now += 1;
        for (i, &block) in blocks.iter().enumerate() {
            let end = tokens.len().min((i + 1) * self.size);
            let (size, now) = (self.size, self.now);
            let known = self.known.iter_mut().find(|known| known.block == block);
            let known = known.expect("a block that the cache was given");
            assert_eq!(known.salt, salt, "another salt's block");
            assert_eq!(known.text.len(), (i + 1) * size, "a block from another position");
            assert_eq!(known.text[..end], tokens[..end], "another text's block");
            known.used = now;
        }
    }

    /// A text is kept; returns how many blocks the cache should have taken.
    pub(crate) fn keep(&mut self, salt: Salt, tokens: &[u32], table: &[BlockId]) -> usize {
        self.now += 1;
        let now = self.now;
        let mut kept = 0;
        if self.kind == Kind::Nothing {
            return 0;
        }
        for (i, &block) in table.iter().enumerate().take(tokens.len() / self.size) {
            let text = &tokens[..(i + 1) * self.size];
            match self.entry(salt, text) {
                Some(known) if !known.orphan => known.used = now,
                _ => {
                    self.forget(salt, text);
                    let text = text.to_vec();
                    self.known.push(Known { salt, text, block, used: now, orphan: false });
                    kept += 1;
                }
            }
        }
        kept
    }

    fn forget(&mut self, salt: Salt, text: &[u32]) {
        self.known.retain(|known| known.salt != salt || known.text != text);
        for known in &mut self.known {
            let next = known.text.len() == text.len() + self.size;
            if next && known.salt == salt && known.text.starts_with(text) {
                known.orphan = true;
            }
        }
    }

    /// The block that must go next, if any may: one that nobody but the cache holds, or held until just
    /// now.
    pub(crate) fn victim(&self, blocks: &Blocks) -> Option<Known> {
        let leaf = |one: &&Known| {
            let after = |other: &Known| {
                other.salt == one.salt
                    && other.text.len() > one.text.len()
                    && other.text.starts_with(&one.text)
            };
            self.kind == Kind::HashedLru || !self.known.iter().any(after)
        };
        let idle = self.known.iter().filter(|known| blocks.references(known.block) <= 1);
        idle.filter(leaf).min_by_key(|known| (known.used, known.text.len())).cloned()
    }

    /// The cache let go of a block.
    pub(crate) fn evicted(&mut self, victim: &Known) {
        self.forget(victim.salt, &victim.text);
    }

    /// The name of the block that a text ends with.
    pub(crate) fn key(&self, known: &Known) -> paged_cache::offload::Key {
        let root = self.chain.root(known.salt);
        known.text.chunks(self.size).fold(root, |key, tokens| self.chain.next(key, tokens))
    }
}
