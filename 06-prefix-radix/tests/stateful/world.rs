//! A pool, requests with block tables, a cache, and the naive model beside it.

use crate::naive::Naive;
use crate::operation::Operation;
use paged_cache::{BlockId, Blocks};
use prefix_radix::{Handle, Lease, Pinned, Prefix, PrefixCache, Salt};

struct Sequence {
    salt: Salt,
    tokens: Vec<u32>,
    table: Vec<BlockId>,
}

pub(crate) struct World<P> {
    cache: Pinned<P>,
    naive: Naive,
    blocks: Blocks,
    /// By block: the salt and the text that it was last written for, up to the last token written.
    written: Vec<(Salt, Vec<u32>)>,
    live: Vec<Sequence>,
    pins: Vec<(Handle, Salt, Vec<u32>, Lease)>,
    clock: u64,
    /// Tokens found over all: a run that never finds anything proves nothing.
    pub(crate) found: usize,
    pub(crate) evicted: usize,
    pub(crate) opened: usize,
}

impl<P: PrefixCache> World<P> {
    pub(crate) fn new(cache: P, naive: Naive, pool: usize) -> Self {
        World {
            cache: Pinned::new(cache),
            naive,
            blocks: Blocks::new(pool),
            written: vec![(Salt::NONE, Vec::new()); pool],
            live: Vec::new(),
            pins: Vec::new(),
            clock: 0,
            found: 0,
            evicted: 0,
            opened: 0,
        }
    }

    fn salt(number: u8) -> Salt {
        Salt([number; 32])
    }

    fn size(&self) -> usize {
        self.naive.size
    }

    /// Lets the cache go of some blocks: those, in that order, that the naive model says.
    fn evict(&mut self, wanted: usize) -> usize {
        let mut seen = Vec::new();
        let freed = self.cache.evict(wanted, &mut self.blocks, &mut |evicted| {
            seen.push((evicted.key, evicted.tokens.to_vec(), evicted.block));
        });
        assert_eq!(freed, seen.len());
        for (key, tokens, block) in seen {
            let victim = self.naive.victim(&self.blocks).expect("nothing may go");
            assert_eq!((victim.block, self.naive.key(&victim)), (block, key));
            assert!(victim.text.ends_with(&tokens) && tokens.len() == self.size());
            self.naive.evicted(&victim);
        }
        assert!(freed == wanted || self.naive.victim(&self.blocks).is_none(), "more could go");
        self.evicted += freed;
        freed
    }

    fn take(&mut self) -> Option<BlockId> {
        if self.blocks.free() == 0 {
            self.evict(1);
        }
        self.blocks.take()
    }

    fn find(&mut self, salt: Salt, prompt: &[u32]) -> Prefix {
        let expected = self.naive.longest(salt, prompt, prompt.len() - 1);
        let prefix = self.cache.find(salt, prompt, &mut self.blocks);
        assert_eq!(prefix.tokens, expected, "of {prompt:?}");
        assert_eq!(prefix.blocks.len(), expected.div_ceil(self.size()));
        self.naive.found(salt, &prompt[..prefix.tokens], &prefix.blocks);
        self.found += prefix.tokens;
        prefix
    }

    /// Writes a sequence's tokens from its end to the end of `tokens`, copying what it shares. What finds no
    /// block is not written.
    fn write(&mut self, mut sequence: Sequence, tokens: &[u32]) -> Sequence {
        for &token in tokens {
            let slot = sequence.tokens.len();
            let block = if slot.is_multiple_of(self.size()) { None } else { sequence.table.pop() };
            let own = match block {
                Some(block) if self.blocks.references(block) == 1 => block,
                shared => {
                    let Some(new) = self.take() else {
                        sequence.table.extend(shared);
                        break;
                    };
                    if let Some(shared) = shared {
                        self.blocks.release(shared);
                    }
                    new
                }
            };
            sequence.table.push(own);
            sequence.tokens.push(token);
            self.written[own.index()] = (sequence.salt, sequence.tokens.clone());
        }
        sequence
    }

    pub(crate) fn apply(&mut self, operation: &Operation) {
        self.clock += 1;
        let live = self.live.len();
        match operation {
            Operation::Start(salt, prompt) => {
                // More than a few would fill the pool, and nothing would be kept.
                if live > 3 {
                    self.keep(0);
                    self.finish(0);
                }
                let salt = Self::salt(*salt);
                let Prefix { tokens, blocks: table } = self.find(salt, prompt);
                let sequence = Sequence { salt, tokens: prompt[..tokens].to_vec(), table };
                let sequence = self.write(sequence, &prompt[tokens..]);
                self.live.push(sequence);
            }
            Operation::Keep(i) if live > 0 => self.keep(i % live),
            Operation::Grow(i, tokens) if live > 0 => {
                let sequence = self.live.swap_remove(i % live);
                let sequence = self.write(sequence, tokens);
                self.live.push(sequence);
            }
            Operation::Fork(i) if (1..4).contains(&live) => {
                let Sequence { salt, tokens, table } = &self.live[i % live];
                table.iter().for_each(|&block| self.blocks.share(block));
                let fork = Sequence { salt: *salt, tokens: tokens.clone(), table: table.clone() };
                self.live.push(fork);
            }
            Operation::Truncate(i, length) if live > 0 => {
                let size = self.size();
                let Sequence { tokens, table, .. } = &mut self.live[i % live];
                tokens.truncate(*length);
                for block in table.split_off(tokens.len().div_ceil(size)) {
                    self.blocks.release(block);
                }
            }
            Operation::Finish(i, keep) if live > 0 => {
                if *keep {
                    self.keep(i % live);
                }
                self.finish(i % live);
            }
            Operation::Evict(wanted) => {
                self.evict(*wanted);
            }
            Operation::Pin(i, length, lease) if live > 0 => {
                let Sequence { salt, tokens, .. } = &self.live[i % live];
                let (salt, tokens) = (*salt, tokens[..tokens.len().min(*length)].to_vec());
                self.pin(salt, &tokens, *lease);
            }
            Operation::Open(own, i) if !self.pins.is_empty() => {
                let (clock, i) = (self.clock, i % self.pins.len());
                let (handle, salt, tokens, lease) = &mut self.pins[i];
                let asked = if *own { *salt } else { Salt([7; 32]) };
                let opened = self.cache.open(asked, *handle, clock);
                let over = lease.uses == Some(0) || lease.until.is_some_and(|until| until < clock);
                let mine = *own && !over;
                assert_eq!(opened.as_deref(), mine.then_some(&tokens[..]));
                if mine {
                    self.opened += 1;
                    lease.uses = lease.uses.map(|uses| uses - 1);
                    // Whatever was evicted, the prompt's whole blocks are there.
                    let (salt, text) = (*salt, [tokens, &[9][..]].concat());
                    let prefix = self.find(salt, &text);
                    assert!(prefix.tokens >= (text.len() - 1) / self.size() * self.size());
                    prefix.release(&mut self.blocks);
                }
            }
            Operation::Release(i) if !self.pins.is_empty() => {
                let (handle, ..) = self.pins.swap_remove(i % self.pins.len());
                assert!(self.cache.release(handle, &mut self.blocks));
                assert!(!self.cache.release(handle, &mut self.blocks));
            }
            Operation::Expire => {
                let (clock, before) = (self.clock, self.pins.len());
                self.pins.retain(|(.., lease)| {
                    lease.uses != Some(0) && lease.until.is_none_or(|until| until >= clock)
                });
                let over = self.cache.expire(clock, &mut self.blocks);
                assert_eq!(over, before - self.pins.len());
            }
            _ => {}
        }
        self.check();
    }

    fn keep(&mut self, i: usize) {
        let Sequence { salt, tokens, table } = &self.live[i];
        let expected = self.naive.keep(*salt, tokens, table);
        let kept = self.cache.keep(*salt, tokens, table, &mut self.blocks);
        assert_eq!(kept, expected, "of {tokens:?}");
    }

    fn finish(&mut self, i: usize) {
        for block in self.live.remove(i).table {
            self.blocks.release(block);
        }
    }

    fn pin(&mut self, salt: Salt, tokens: &[u32], lease: Lease) {
        let whole = tokens.len() / self.size() * self.size();
        let known = self.naive.longest(salt, tokens, whole);
        // The same lookup that pinning is, to see which blocks it uses.
        let prefix = self.cache.longest(salt, tokens, whole, &mut self.blocks);
        self.naive.found(salt, &tokens[..prefix.tokens], &prefix.blocks);
        prefix.release(&mut self.blocks);
        let pinned = self.cache.pin(salt, tokens, lease, &mut self.blocks);
        assert_eq!(pinned.is_ok(), known == whole && whole > 0);
        if let Ok(handle) = pinned {
            self.pins.push((handle, salt, tokens.to_vec(), lease));
        }
    }

    fn check(&self) {
        self.cache.check_integrity(&self.blocks).unwrap();
        let tables = self.live.iter().flat_map(|sequence| sequence.table.iter().copied());
        self.blocks.check_integrity(self.cache.held().into_iter().chain(tables)).unwrap();
        let mut held = self.cache.cache().held();
        let mut known: Vec<BlockId> = self.naive.known.iter().map(|known| known.block).collect();
        held.sort_unstable();
        known.sort_unstable();
        assert_eq!(held, known);
        // Nobody wrote to a block that others rely on.
        for known in &self.naive.known {
            assert_eq!(self.written[known.block.index()], (known.salt, known.text.clone()));
        }
        for sequence in &self.live {
            for (i, block) in sequence.table.iter().enumerate() {
                let end = sequence.tokens.len().min((i + 1) * self.size());
                let (salt, text) = &self.written[block.index()];
                assert_eq!((*salt, &text[..end]), (sequence.salt, &sequence.tokens[..end]));
            }
        }
    }
}
