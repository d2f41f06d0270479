//! A pool, a cache over it, tiers below, and requests that check what they find.

use crate::fake::{Fake, Memory};
use crate::{BYTES, SIZE, chain};
use paged_cache::Blocks;
use paged_cache::offload::Tier;
use prefix_radix::{Aside, BlockHash, Chain, Prefix, PrefixCache, Salt, SavePoint, Tiered};

/// A pool with its memory, a cache over it, and tiers below.
pub(crate) struct Server {
    pub(crate) cache: Tiered<Box<dyn PrefixCache>>,
    pub(crate) blocks: Blocks,
    pub(crate) memory: Memory,
}

/// What a block that ends a text holds.
fn content(salt: Salt, text: &[u32]) -> [u8; BYTES] {
    let chain = Chain::new(b"what is written");
    chain.next(chain.root(salt), text).0
}

impl Server {
    pub(crate) fn new(cache: Box<dyn PrefixCache>, pool: usize, tiers: &[Fake]) -> Self {
        let tiers = tiers.iter().map(|tier| Box::new(tier.clone()) as Box<dyn Tier>).collect();
        let memory = Memory { blocks: vec![[0; BYTES]; pool], is_broken: false };
        Server { cache: Tiered::new(cache, chain(), tiers), blocks: Blocks::new(pool), memory }
    }

    /// Looks a prompt up and checks that what is found is what was written for it.
    pub(crate) fn find(&mut self, salt: Salt, prompt: &[u32]) -> Prefix {
        let prefix = self.cache.find(salt, prompt, &mut self.blocks, &mut self.memory);
        assert!(prefix.tokens < prompt.len().max(1));
        assert_eq!(prefix.blocks.len(), prefix.tokens.div_ceil(SIZE));
        for (i, block) in prefix.blocks.iter().enumerate().take(prefix.tokens / SIZE) {
            let expected = content(salt, &prompt[..(i + 1) * SIZE]);
            assert_eq!(self.memory.blocks[block.index()], expected, "block {i} of {prompt:?}");
        }
        prefix
    }

    /// A request that reads a prompt and is over. Returns how many tokens were known.
    pub(crate) fn read(&mut self, salt: Salt, prompt: &[u32]) -> usize {
        let prefix = self.find(salt, prompt);
        let found = prefix.tokens;
        let mut table = prefix.blocks;
        // A block shared in part is written to, so it is replaced.
        let shared = table.split_off(found / SIZE);
        while table.len() < prompt.len() / SIZE {
            if self.blocks.free() == 0 {
                self.cache.evict(1, &mut self.blocks, &self.memory);
            }
            let Some(block) = self.blocks.take() else { break };
            table.push(block);
            self.memory.blocks[block.index()] = content(salt, &prompt[..table.len() * SIZE]);
        }
        Prefix { tokens: 0, blocks: shared }.release(&mut self.blocks);
        self.cache.keep(salt, prompt, &table, &mut self.blocks);
        Prefix { tokens: 0, blocks: table }.release(&mut self.blocks);
        self.check();
        found
    }

    /// Asks for what only a file has of a prompt, so many blocks at most.
    pub(crate) fn read_aside(&mut self, prompt: &[u32], most: usize) -> Option<(Aside, usize)> {
        let names = self.cache.names(Salt::NONE, prompt);
        let read = self.cache.read_aside(Salt::NONE, prompt, &names, most, &mut self.blocks);
        self.check();
        read
    }

    pub(crate) fn evict_all(&mut self) {
        self.cache.evict(usize::MAX, &mut self.blocks, &self.memory);
        assert_eq!(self.blocks.used(), 0);
    }

    pub(crate) fn save(
        &mut self,
        salt: Salt,
        text: &[u32],
        from: Option<SavePoint>,
        most: usize,
    ) -> Option<SavePoint> {
        let next = self.cache.save(salt, text, from, most, &self.memory);
        self.check();
        next
    }

    pub(crate) fn put_away(&mut self, wanted: usize) -> usize {
        let gone = self.cache.put_away(wanted, &mut self.blocks, &self.memory);
        self.check();
        gone
    }

    /// Blocks that came back, by tier.
    pub(crate) fn got(&self) -> Vec<u64> {
        self.cache.tier_statistics().iter().map(|tier| tier.got).collect()
    }

    pub(crate) fn check(&self) {
        self.cache.cache().check_integrity(&self.blocks).unwrap();
        self.blocks.check_integrity(self.cache.cache().held()).unwrap();
    }
}
