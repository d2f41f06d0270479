//! What leaves the pool, and comes back: the host's memory, and a file that outlives the process.
//!
//! What is evicted goes to both ([`Tiered`](prefix_radix::Tiered)), and at a peaceful end all goes to the file. A server
//! that is killed evicts nothing any more, so the file gets a copy of what the pool still has, too: of each text that is
//! done, a block after each pass, and several while there is nothing to run. So where texts come no faster than they are
//! saved, a kill loses the last few.
//!
//! What the file has of a request that comes is read on a thread, too (`aside.rs`).
//!
//! A thread writes the file, so that no pass waits for a disk to write. What leaves the pool while that thread has too much
//! to do already is not kept; what is saved waits its turn. A kill loses what is not written, too.

use super::inbox::Inbox;
use super::{Engine, EngineOptions, KvFile, Target};
use crate::say::tell;
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{Error, Executor, Pass, Result, Span, Want};
use paged_cache::offload::{Backlog, FileOptions, FileTier, HostTier, Ring, Tier};
use prefix_radix::{Chain, Salt, SavePoint, Session, TierStatistics};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Texts that wait to be saved, at most. The oldest is let go of: it is the first to be evicted, too, at the latest at the
/// end, which puts it where saving would, unless the file's thread is behind.
const MOST_UNSAVED: usize = 256;

/// Blocks that are saved after a pass, and before the engine next looks who has come while nothing runs.
const AFTER_PASS: usize = 1;
const AT_REST: usize = 8;

/// Bytes that the file's thread may have to write: the engine waits for no write. What leaves the pool while there is more
/// to write is not kept.
const UNWRITTEN: usize = 64 << 20;

/// When the engine looks again what the file's thread has written, while nothing runs.
const LATER: Duration = Duration::from_millis(10);

/// The host's memory, for prefixes and for requests that were preempted.
pub(super) type Host = Arc<Mutex<HostTier>>;

/// Rings for an engine whose inbox is yet to be made.
#[derive(Clone, Default)]
pub(super) struct Bell(Arc<OnceLock<Weak<Inbox>>>);

impl Bell {
    /// What rings it.
    pub(super) fn ring(&self) -> Ring {
        let Bell(inbox) = self.clone();
        Arc::new(move || {
            if let Some(inbox) = inbox.get().and_then(Weak::upgrade) {
                inbox.ring();
            }
        })
    }

    /// From now on it wakes whoever sleeps there.
    pub(super) fn tie(&self, inbox: &Arc<Inbox>) {
        self.0.get_or_init(|| Arc::downgrade(inbox));
    }
}

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
    /// Opens what the options ask for, for blocks as the target's pool has them; `ring` is called when something has been read. What is wrong with a file is said in a
    /// line on standard error, and it is begun anew.
    ///
    /// # Errors
    /// If the file cannot be had: no such directory can be made, another process uses it, or its bytes have no
    /// room for a block.
    pub(super) fn new(target: &mut Target, options: &EngineOptions, ring: Ring) -> Result<Self> {
        let block_bytes = target.cache().layout().block_bytes();
        let mut tiers: Vec<Box<dyn Tier>> = Vec::new();
        let host = (options.host_bytes >= block_bytes)
            .then(|| Arc::new(Mutex::new(HostTier::new(options.host_bytes))));
        tiers.extend(host.clone().map(|host| Box::new(host) as Box<dyn Tier>));
        let of_file = options.kv_file.as_ref().map(|file| &file.model);
        let model = of_file.or(options.exchange.as_ref().map(|exchange| &exchange.model));
        let fingerprint = model.map(|model| fingerprint(target, model)).transpose()?;
        if let (Some(file), Some(fingerprint)) = (&options.kv_file, fingerprint) {
            let tier = open(file, fingerprint, block_bytes)?;
            tiers.push(Box::new(tier.writing_behind(UNWRITTEN)?.reading_aside(ring)?));
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
    Ok(tier)
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
    fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Whether the pool has been put away.
    pub(super) fn is_put_away(&self) -> bool {
        self.is_put_away
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
        } else if is_idle {
            for _ in 0..most {
                // One at a time, so that none has to wait for the disk.
                if !self.puts_away() || self.pool.prefixes().backlog() == Backlog::Full {
                    break;
                }
                self.unsaved.is_put_away = self.pool.put_away(1) == 0;
            }
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

    /// Whether every text that is done is where it outlives the process.
    pub(super) fn is_saved(&self) -> bool {
        self.unsaved.is_empty() && self.pool.prefixes().backlog() == Backlog::Nothing
    }

    /// Whether the pool is to be put away now.
    fn puts_away(&self) -> bool {
        !self.unsaved.is_put_away && self.inbox.is_time_to_put_away()
    }

    /// Says once what a tier fails with, and once that one is slow. It is gone on without what it lacks.
    pub(super) fn report_failure(&mut self) {
        self.pool.prefixes_mut().settle();
        let is_late = |tier: &TierStatistics| tier.late > 0;
        if !self.has_reported_late && self.pool.prefixes().tier_statistics().iter().any(is_late) {
            tell!(
                "keys and values leave the pool faster than they can be written: some are not kept"
            );
            self.has_reported_late = true;
        }
        if let Some(failure) = self.pool.prefixes().last_failure()
            && !self.has_reported
        {
            tell!("keys and values are not kept, or not found: {failure}");
            self.has_reported = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{EngineRequest, Event, Step, Ticket};
    use embedded_models::DRAFT;
    use naive_decode::{LoadOptions, Model};
    use paged_cache::offload::Key;
    use prefix_radix::{RadixTree, Tiered};
    use std::collections::HashSet;
    use std::sync::MutexGuard;

    /// A tier that writes when it is told to.
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Inside>>);

    struct Inside {
        backlog: Backlog,
        put: HashSet<Key>,
        failures: Vec<Error>,
        /// Nothing may have been told of its engine's end when failures are.
        inbox: Option<Arc<Inbox>>,
    }

    impl Default for Inside {
        fn default() -> Self {
            let (backlog, put) = (Backlog::Nothing, HashSet::new());
            Inside { backlog, put, failures: Vec::new(), inbox: None }
        }
    }

    impl Told {
        fn inside(&self) -> MutexGuard<'_, Inside> {
            self.0.lock().unwrap()
        }
    }

    impl Tier for Told {
        fn put(&mut self, key: Key, _: &[u8]) -> Result<()> {
            let mut inside = self.inside();
            assert!(inside.backlog < Backlog::Full, "the engine waits for the disk");
            inside.put.insert(key);
            Ok(())
        }

        fn get(&mut self, _: Key, _: &mut Vec<u8>) -> Result<bool> {
            Ok(false)
        }

        fn contains(&self, key: Key) -> bool {
            self.inside().put.contains(&key)
        }

        fn remove(&mut self, key: Key) -> Result<bool> {
            Ok(self.inside().put.remove(&key))
        }

        fn settle(&mut self) -> Vec<Error> {
            let mut inside = self.inside();
            let failures = std::mem::take(&mut inside.failures);
            let is_over = inside.inbox.as_ref().is_some_and(|inbox| inbox.is_drained());
            assert!(failures.is_empty() || !is_over, "the end was told of before");
            failures
        }

        fn backlog(&self) -> Backlog {
            self.inside().backlog
        }

        fn outlives_process(&self) -> bool {
            true
        }
    }

    /// An engine over such a tier, and a request for a text of nine whole blocks.
    fn told() -> (Engine, Told, Ticket) {
        let folder = tempfile::tempdir().unwrap();
        let model =
            Model::embedded(DRAFT.name, DRAFT.config, DRAFT.weights, LoadOptions::default());
        let model = Arc::new(model.unwrap());
        let kv_file = KvFile { directory: folder.path().into(), bytes: 1 << 24, model: [3; 32] };
        let usual = EngineOptions::for_model(&model).unwrap();
        let options = EngineOptions { kv_file: Some(kv_file), block: 4, ..usual };
        let mut engine = Engine::new(model, options).unwrap();
        let (tier, chain) = (Told::default(), Chain::new(b"told"));
        let cache = Box::new(RadixTree::new(4, chain).unwrap());
        *engine.pool.prefixes_mut() = Tiered::new(cache, chain, vec![Box::new(tier.clone())]);
        let ticket = engine.submit(EngineRequest::new((1..30).collect(), 8)).unwrap();
        (engine, tier, ticket)
    }

    /// Steps until the request is done.
    fn finish(engine: &mut Engine, ticket: &mut Ticket) {
        loop {
            engine.step().unwrap();
            while let Ok(event) = ticket.try_recv() {
                if matches!(event, Event::Finished { .. }) {
                    return;
                }
            }
        }
    }

    /// A few steps, of which none runs anything; whether the last says to come again.
    fn idles(engine: &mut Engine) -> bool {
        let mut comes_again = false;
        for _ in 0..20 {
            let Step::Idle(until) = engine.step().unwrap() else { panic!("nothing is to run") };
            comes_again = until.is_some();
        }
        comes_again
    }

    #[test]
    fn nobody_waits_for_the_disk_but_whoever_waits_for_the_end() {
        let (mut engine, tier, mut ticket) = told();
        tier.inside().backlog = Backlog::Full;
        finish(&mut engine, &mut ticket);
        assert!(idles(&mut engine) && tier.inside().put.is_empty(), "it is to be saved later");
        engine.inbox().drain();
        assert!(idles(&mut engine) && tier.inside().put.is_empty());
        assert!(!engine.inbox().is_drained());
        tier.inside().backlog = Backlog::Something;
        assert!(idles(&mut engine), "it is not written yet");
        assert_eq!((tier.inside().put.len(), engine.inbox().is_drained()), (9, false));
        tier.inside().backlog = Backlog::Nothing;
        assert!(!idles(&mut engine) && engine.inbox().is_drained());
    }

    #[test]
    fn what_could_not_be_written_is_said_before_the_end_is() {
        let (mut engine, tier, mut ticket) = told();
        finish(&mut engine, &mut ticket);
        engine.inbox().drain();
        tier.inside().backlog = Backlog::Something;
        idles(&mut engine);
        assert!(!engine.has_reported);
        let mut inside = tier.inside();
        inside.inbox = Some(engine.inbox().clone());
        (inside.backlog, inside.failures) =
            (Backlog::Nothing, vec![Error::file("a disk", "is full")]);
        drop(inside);
        engine.step().unwrap();
        assert!(engine.has_reported && engine.inbox().is_drained());
    }
}
