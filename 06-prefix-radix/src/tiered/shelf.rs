//! Tiers in a row, none of which is relied on; and what was brought from elsewhere.

use naive_decode::{Error, Result};
use paged_cache::offload::{Backlog, Key, Reading, Tier};
use std::collections::HashMap;
use std::time::Instant;

/// What has gone to a tier and come back from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierStatistics {
    /// Blocks put there.
    pub put: u64,
    /// Blocks brought back.
    pub got: u64,
    /// Times that it could not be written or read, or gave something that is no block.
    pub failed: u64,
    /// Blocks that left the pool while it had too many others to write: it did not get them.
    pub late: u64,
}

/// Bytes of blocks by name.
pub(super) type Brought = HashMap<Key, Vec<u8>>;

/// Tiers from the fastest to the slowest.
pub(super) struct Shelf {
    tiers: Vec<(Box<dyn Tier>, TierStatistics)>,
    /// Blocks for the next lookup: somebody has computed them elsewhere, or a tier has read them aside.
    brought: Brought,
    last_failure: Option<Error>,
}

/// Blocks that a tier reads while others run: [`Tiered::read_aside`](super::Tiered::read_aside). Dropped, it calls off the rest.
#[derive(Debug)]
pub struct Aside {
    tier: usize,
    reading: Reading,
}

impl Aside {
    /// Since when it is read; none where others are read before.
    pub fn began(&self) -> Option<Instant> {
        self.reading.began()
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        self.reading.is_over()
    }
}

/// Which tiers get a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Those that take it at once.
    Prompt,
    /// Those that outlive the process.
    Lasting,
}

impl Shelf {
    pub(super) fn new(tiers: Vec<Box<dyn Tier>>) -> Self {
        let tiers = tiers.into_iter().map(|tier| (tier, TierStatistics::default())).collect();
        Shelf { tiers, brought: HashMap::new(), last_failure: None }
    }

    /// Whether there are no tiers.
    pub(super) fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// Whether a block of this name was brought or is in a tier, as far as is known without reading it.
    pub(super) fn contains(&self, key: Key) -> bool {
        self.brought.contains_key(&key) || self.tiers.iter().any(|(tier, _)| tier.contains(key))
    }

    /// Whether [`Shelf::get`] would find it: it waits for no disk where somebody reads for it.
    pub(super) fn has_at_hand(&self, key: Key) -> bool {
        let mut prompt = self.tiers.iter().filter(|(tier, _)| !tier.reads_aside());
        self.brought.contains_key(&key) || prompt.any(|(tier, _)| tier.contains(key))
    }

    /// Whether one of them reads for whoever does not wait for it.
    pub(super) fn reads_aside(&self) -> bool {
        self.tiers.iter().any(|(tier, _)| tier.reads_aside())
    }

    /// Since when one of them has waited for its disk to send one block.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.tiers.iter().filter_map(|(tier, _)| tier.waits_since()).min()
    }

    /// Begins to read those of the blocks that only a tier that reads aside has, the first `most`, and says which is the first of
    /// them; none if there are none.
    pub(super) fn read_aside(&mut self, names: &[Key], most: usize) -> Option<(Aside, usize)> {
        let missing = |name: &Key| !self.has_at_hand(*name);
        let place = names.iter().position(missing)?;
        let first = names[place];
        let missing: Vec<Key> = names[place..].iter().copied().filter(missing).take(most).collect();
        let holds = |(tier, _): &(Box<dyn Tier>, _)| tier.reads_aside() && tier.contains(first);
        let number = self.tiers.iter().position(holds)?;
        let reading = self.tiers[number].0.read_aside(&missing)?;
        Some((Aside { tier: number, reading }, place))
    }

    /// What has been read, for the next lookup besides what was brought.
    pub(super) fn take_read(&mut self, Aside { tier: number, reading }: Aside) -> Brought {
        let (tier, statistics) = &mut self.tiers[number];
        let (blocks, problem) = tier.take_read(reading);
        statistics.got += blocks.len() as u64;
        if problem.is_some() {
            statistics.failed += 1;
            self.last_failure = problem;
        }
        blocks
    }

    /// Whether nothing can be had here.
    pub(super) fn has_nothing(&self) -> bool {
        self.tiers.is_empty() && self.brought.is_empty()
    }

    /// Blocks that the next lookup may have, in place of those that were brought before.
    pub(super) fn bring(&mut self, brought: Brought) {
        self.brought = brought;
    }

    pub(super) fn statistics(&self) -> Vec<TierStatistics> {
        self.tiers.iter().map(|&(_, statistics)| statistics).collect()
    }

    pub(super) fn last_failure(&self) -> Option<&Error> {
        self.last_failure.as_ref()
    }

    /// Whether one of them is still there after the process has ended.
    pub(super) fn outlives_process(&self) -> bool {
        self.tiers.iter().any(|(tier, _)| tier.outlives_process())
    }

    /// Blocks that those of them have room for, where that is known.
    pub(super) fn most_that_outlive(&self) -> usize {
        let lasting = self.tiers.iter().filter(|(tier, _)| tier.outlives_process());
        lasting.map(|(tier, _)| tier.most_blocks().unwrap_or(usize::MAX)).max().unwrap_or(0)
    }

    /// What could not be read or written besides the tiers: the pool's own memory.
    pub(super) fn note(&mut self, failure: Error) {
        self.last_failure = Some(failure);
    }

    /// Puts a block's bytes, copied once at most, where they are not yet. Each tier lets go of its own
    /// oldest and tells nobody, so the slow ones get their copy at once. One that is behind gets none: whoever makes
    /// room for the next pass does not wait for a disk.
    pub(super) fn put(&mut self, key: Key, copy_out: impl Fn(&mut Vec<u8>) -> Result<()>) {
        self.put_to(Wanted::Prompt, key, copy_out);
    }

    /// The same for those tiers only that outlive the process, and these are waited for. Says whether there was anything
    /// to put.
    pub(super) fn save(&mut self, key: Key, copy_out: impl Fn(&mut Vec<u8>) -> Result<()>) -> bool {
        self.put_to(Wanted::Lasting, key, copy_out)
    }

    /// The most that one of those that outlive the process has yet to write.
    pub(super) fn backlog(&self) -> Backlog {
        let lasting = self.tiers.iter().filter(|(tier, _)| tier.outlives_process());
        lasting.map(|(tier, _)| tier.backlog()).max().unwrap_or(Backlog::Nothing)
    }

    fn put_to(
        &mut self,
        wanted: Wanted,
        key: Key,
        copy_out: impl Fn(&mut Vec<u8>) -> Result<()>,
    ) -> bool {
        self.settle();
        let mut bytes = Vec::new();
        for (tier, statistics) in &mut self.tiers {
            if wanted == Wanted::Lasting && !tier.outlives_process() {
                continue;
            }
            if tier.contains(key) {
                tier.touch(key);
                continue;
            }
            if wanted == Wanted::Prompt && tier.backlog() == Backlog::Full {
                statistics.late += 1;
                continue;
            }
            if bytes.is_empty()
                && let Err(error) = copy_out(&mut bytes)
            {
                self.last_failure = Some(error);
                return false;
            }
            match tier.put(key, &bytes) {
                Ok(()) => statistics.put += 1,
                Err(error) => {
                    statistics.failed += 1;
                    self.last_failure = Some(error);
                }
            }
        }
        !bytes.is_empty()
    }

    /// Has tiers forget what they could not write, and notes why.
    pub(super) fn settle(&mut self) {
        for (tier, statistics) in &mut self.tiers {
            for failure in tier.settle() {
                statistics.failed += 1;
                self.last_failure = Some(failure);
            }
        }
    }

    /// Notes that blocks were used, in this order.
    pub(super) fn touch(&mut self, names: impl Iterator<Item = Key>) {
        for name in names {
            self.tiers.iter_mut().for_each(|(tier, _)| tier.touch(name));
        }
    }

    /// A block's bytes, as they were brought or from the first tier that has them at hand: so many, or they are not a block's.
    pub(super) fn get(&mut self, key: Key, length: usize) -> Option<Vec<u8>> {
        if let Some(bytes) = self.brought.remove(&key).filter(|bytes| bytes.len() == length) {
            return Some(bytes);
        }
        self.settle();
        let mut bytes = Vec::with_capacity(length);
        for (number, (tier, statistics)) in self.tiers.iter_mut().enumerate() {
            if tier.reads_aside() {
                continue;
            }
            bytes.clear();
            let is_known = tier.contains(key);
            let problem = match tier.get(key, &mut bytes) {
                Ok(true) if bytes.len() == length => {
                    statistics.got += 1;
                    return Some(bytes);
                }
                Ok(true) => {
                    let expected = format!("the {length} of a block");
                    Error::invalid("number of bytes that a tier gave", bytes.len(), expected)
                }
                Ok(false) if is_known => {
                    let what = format!("a block of tier {}", number + 1);
                    Error::invalid(what, "damaged", "what was put there; it is computed again")
                }
                Ok(false) => continue,
                Err(problem) => problem,
            };
            statistics.failed += 1;
            // Known by name and yet of no use. Forgotten, it will be put there again; if that fails, what failed first says more.
            if tier.contains(key) {
                let _ = tier.remove(key);
            }
            self.last_failure = Some(problem);
        }
        None
    }
}
