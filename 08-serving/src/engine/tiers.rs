//! What leaves the pool, and comes back: the host's memory, and a file that outlives the process.
//!
//! What is evicted goes to both ([`Tiered`](prefix_radix::Tiered)), and at a peaceful end all goes to the file. A server
//! that is killed evicts nothing any more, so the file gets a copy of what the pool still has, too: of each text that is
//! done, a block after each pass, and several while there is nothing to run. So where texts come no faster than they are
//! saved, a kill loses the last few. A thread writes the file, so that no pass waits for a
//! disk to write.

use super::{Engine, EngineOptions, KvFile, Target};
use crate::say::tell;
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{Error, Executor, Pass, Result, Span, Want};
use paged_cache::offload::{Backlog, FileOptions, FileTier, HostTier, Tier};
use prefix_radix::{Chain, Salt, SavePoint, Session};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Texts that wait to be saved, at most. The oldest is let go of: it is the first to be evicted, too, at the latest at the
/// end, which saves it as well.
const MOST_UNSAVED: usize = 256;

/// Blocks that are saved after a pass, and before the engine next looks who has come while nothing runs.
const AFTER_PASS: usize = 1;
const AT_REST: usize = 8;

/// Bytes that the file's thread may have to write: the engine waits for no disk. What leaves the pool while there is more
/// to write is not kept.
const UNWRITTEN: usize = 64 << 20;

/// When the engine looks again what the file's thread has written, while nothing runs.
const LATER: Duration = Duration::from_millis(10);

/// The host's memory, for prefixes and for requests that were preempted.
pub(super) type Host = Arc<Mutex<HostTier>>;

/// What there is below the pool.
pub(super) struct Below {
    pub(super) host: Option<Host>,
    pub(super) tiers: Vec<Box<dyn Tier>>,
    /// Names the blocks.
    pub(super) chain: Chain,
    /// What the names begin with, where they mean something outside this engine.
    pub(super) fingerprint: Option<[u8; 32]>,
}

impl Below {
    /// Opens what the options ask for, for blocks as the target's pool has them. What is wrong with a file is said in a
    /// line on standard error, and it is begun anew.
    ///
    /// # Errors
    /// If the file cannot be had: no such directory can be made, another process uses it, or its bytes have no
    /// room for a block.
    pub(super) fn new(target: &mut Target, options: &EngineOptions) -> Result<Self> {
        let block_bytes = target.cache().layout().block_bytes();
        let mut tiers: Vec<Box<dyn Tier>> = Vec::new();
        let host = (options.host_bytes >= block_bytes)
            .then(|| Arc::new(Mutex::new(HostTier::new(options.host_bytes))));
        tiers.extend(host.clone().map(|host| Box::new(host) as Box<dyn Tier>));
        let of_file = options.kv_file.as_ref().map(|file| &file.model);
        let model = of_file.or(options.exchange.as_ref().map(|exchange| &exchange.model));
        let fingerprint = model.map(|model| fingerprint(target, model)).transpose()?;
        if let (Some(file), Some(fingerprint)) = (&options.kv_file, fingerprint) {
            tiers.push(Box::new(open(file, fingerprint, block_bytes)?));
        }
        let chain = match &fingerprint {
            Some(fingerprint) => Chain::new(fingerprint),
            None => Chain::new(b"the pool of one engine"),
        };
        Ok(Below { host, tiers, chain, fingerprint })
    }
}

// ANCHOR: fingerprint
/// Stands for everything that keys and values depend on besides the text: what this program makes of a short
/// text with this model on this device, byte for byte as a block has it. The digest of the model's files stands for those of its
/// weights that the short text does not touch, as rows of other tokens and experts that were not chosen.
fn fingerprint(target: &mut Target, model: &[u8; 32]) -> Result<[u8; 32]> {
    let vocabulary = target.config().vocab_size;
    let block_tokens = target.cache().layout().tokens();
    let rows = block_tokens.min(target.context()).min(target.cache().capacity());
    let tokens: Vec<u32> = (0..rows).map(|i| (i * 7919 % vocabulary) as u32).collect();
    let sequence = target.cache_mut().open();
    target.execute(&Pass::one(Span::new(sequence, 0, &tokens, Want::Nothing)))?;
    let cache = target.cache_mut();
    let block = cache.tables(sequence)?.held().next();
    let block = block.ok_or_else(|| Error::invalid("blocks of a pass", 0, "1"))?;
    let mut bytes = Vec::with_capacity(cache.layout().block_bytes());
    cache.parts().1.copy_out(block, &mut bytes)?;
    let kept = cache.layout().kept();
    cache.close(sequence)?;
    let mut hasher = blake3::Hasher::new_derive_key("serving 2026 what keys and values depend on");
    hasher.update(model);
    hasher.update(kept.to_string().as_bytes());
    hasher.update(&(block_tokens as u64).to_le_bytes());
    hasher.update(&bytes);
    Ok(hasher.finalize().into())
}
// ANCHOR_END: fingerprint

/// The file of a fingerprint. Each model has its own, so that several can share a directory.
fn open(file: &KvFile, fingerprint: [u8; 32], block_bytes: usize) -> Result<FileTier> {
    let KvFile { directory, bytes, .. } = file;
    std::fs::create_dir_all(directory).map_err(|problem| {
        Error::file(directory.display().to_string(), format!("cannot be made: {problem}"))
    })?;
    let name: String = fingerprint[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let path = directory.join(name + ".kv");
    let options = FileOptions { fingerprint, block_bytes, budget: *bytes };
    let (tier, problem) = FileTier::open_or_empty(&path, &options)?;
    if let Some(problem) = problem {
        tell!("{problem}; begun anew");
    }
    if tier.damaged() > 0 {
        tell!("{}: {} damaged blocks are dropped", path.display(), tier.damaged());
    }
    tier.writing_behind(UNWRITTEN)
}

/// Texts that are done and may not be in the file yet, oldest first.
#[derive(Default)]
pub(super) struct Unsaved {
    texts: VecDeque<(Salt, Vec<u32>)>,
    /// How far the first is saved, if it was begun.
    saved: Option<SavePoint>,
    /// Whether the pool has been put away, for the end.
    is_put_away: bool,
}

impl Unsaved {
    /// Whether no text waits.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

impl Engine {
    /// A text is done: whoever ends the session comes here before.
    pub(super) fn note_unsaved(&mut self, session: &Session) {
        if !self.pool.prefixes().outlives_process() {
            return;
        }
        self.unsaved.texts.push_back((session.salt(), session.text().to_vec()));
        if self.unsaved.texts.len() > MOST_UNSAVED {
            // One that was begun is gone on with: its end alone is of no use to anybody.
            let oldest = usize::from(self.unsaved.saved.is_some());
            self.unsaved.texts.remove(oldest);
            self.unsaved.is_put_away = false;
        }
    }

    // ANCHOR: save
    /// Saves a few blocks of the text that has waited longest; at the end, when there is none, a few of what else the pool
    /// has.
    pub(super) fn save(&mut self, is_idle: bool) {
        let most = if is_idle { AT_REST } else { AFTER_PASS };
        let from = self.unsaved.saved.take();
        if let Some((salt, text)) = self.unsaved.texts.front() {
            self.unsaved.saved = self.pool.save(*salt, text, from, most);
            if self.unsaved.saved.is_none() {
                self.unsaved.texts.pop_front();
            }
        } else if is_idle && self.puts_away() && self.pool.prefixes().backlog() < Backlog::Full {
            self.unsaved.is_put_away = self.pool.put_away(most) == 0;
        }
    }
    // ANCHOR_END: save

    /// When to go on with saving, if anything is not saved yet.
    pub(super) fn next_save(&self) -> Option<Instant> {
        match self.pool.prefixes().backlog() {
            Backlog::Full => Some(Instant::now() + LATER),
            _ if !self.unsaved.is_empty() || self.puts_away() => Some(Instant::now()),
            Backlog::Something => Some(Instant::now() + LATER),
            Backlog::Nothing => None,
        }
    }

    /// Whether all is where it outlives the process: nothing in the pool is left, and all is written.
    pub(super) fn has_put_away(&self) -> bool {
        self.unsaved.is_put_away && self.pool.prefixes().backlog() == Backlog::Nothing
    }

    /// Whether the pool is to be put away now.
    fn puts_away(&self) -> bool {
        !self.unsaved.is_put_away && self.inbox.is_time_to_put_away()
    }

    /// Says once what a tier fails with. It is gone on without what it lacks.
    pub(super) fn report_failure(&mut self) {
        if let Some(failure) = self.pool.prefixes().last_failure()
            && !self.has_reported
        {
            tell!("keys and values are not kept, or not found: {failure}");
            self.has_reported = true;
        }
    }
}
