//! Requests over one pool and what is known of earlier ones.
//!
//! A request begins with the longest prefix that the cache knows: its table points at those blocks, and only
//! the rest of the prompt runs through the model. As soon as it has run, the prompt's own blocks are known to
//! others. When the pool runs out, the cache lets go of what nobody uses.
//!
//! `shared_pool/batch.rs` is the same for several requests in one pass.

mod batch;

pub use batch::ParkedSession;

use crate::{Aside, PrefixCache, Salt, SavePoint, Tiered};
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{CpuExecutor, Error, Model, Pass, Result, Span, Want};
use paged_cache::offload::Key;
use paged_cache::{BlockId, PagedCache};
use std::collections::HashMap;
use std::sync::Arc;

/// A model's pool, and the prefixes known in it. The model runs on the processor unless said otherwise.
pub struct SharedPool<P, E = CpuExecutor<PagedCache>> {
    pub(crate) executor: E,
    pub(crate) prefixes: Tiered<P>,
}

/// A request under way.
#[derive(Debug)]
pub struct Session {
    pub(crate) salt: Salt,
    pub(crate) sequence: usize,
    /// Its tokens so far, all of which the cache holds.
    pub(crate) text: Vec<u32>,
    /// How many of the prompt's tokens were known.
    pub(crate) found: usize,
}

impl Session {
    /// How many of the prompt's tokens were known, and did not run through the model.
    pub fn found(&self) -> usize {
        self.found
    }

    /// With whom it shares.
    pub fn salt(&self) -> Salt {
        self.salt
    }

    /// Its tokens so far.
    pub fn text(&self) -> &[u32] {
        &self.text
    }
}

impl<P: PrefixCache> SharedPool<P> {
    /// An empty pool.
    ///
    /// # Errors
    /// If the pool's blocks are not as large as the prefix cache's, or its layers do not share one table:
    /// layers with a window must keep what lies behind it.
    pub fn new(model: Arc<Model>, cache: PagedCache, prefixes: Tiered<P>) -> Result<Self> {
        SharedPool::over(CpuExecutor { model, attention: cache }, prefixes)
    }
}

impl<P: PrefixCache, E: CachedExecutor<Cache = PagedCache>> SharedPool<P, E> {
    /// The same for a model on any device, whose pool is empty.
    ///
    /// # Errors
    /// As [`SharedPool::new`].
    pub fn over(executor: E, prefixes: Tiered<P>) -> Result<Self> {
        let cache = executor.cache();
        let (found, expected) = (cache.layout().tokens(), prefixes.cache().block_tokens());
        if found != expected {
            let expected = format!("{expected}, the prefix cache's");
            return Err(Error::invalid("tokens in a block of the pool", found, expected));
        }
        cache.check_shareable()?;
        Ok(SharedPool { executor, prefixes })
    }

    /// The pool.
    pub fn pool(&self) -> &PagedCache {
        self.executor.cache()
    }

    /// The model, to run passes of one's own; sequences that they open must be closed again.
    pub fn executor_mut(&mut self) -> &mut E {
        &mut self.executor
    }

    /// What is known of earlier requests.
    pub fn prefixes(&self) -> &Tiered<P> {
        &self.prefixes
    }

    /// The same, to note what changes of it.
    pub fn prefixes_mut(&mut self) -> &mut Tiered<P> {
        &mut self.prefixes
    }

    // ANCHOR: begin
    /// Begins a request: what is known of its prompt is found, the rest runs through the model. Gives the
    /// logits after the prompt's last token.
    ///
    /// # Errors
    /// As [`SharedPool::open`]; [`Error::Capacity`] if even without all that nobody uses the pool is too small.
    pub fn begin(&mut self, salt: Salt, prompt: &[u32]) -> Result<(Session, Vec<f32>)> {
        let mut session = self.open(salt, prompt)?;
        let logits = self.run_prompt(&mut session, prompt);
        match logits.and_then(|logits| self.remember(&session).map(|()| logits)) {
            Ok(logits) => Ok((session, logits)),
            // Nobody has the session, so nobody else could close it.
            Err(error) => self.close(session).and(Err(error)),
        }
    }

    /// Begins a request with what is known of its prompt, and runs nothing.
    ///
    /// # Errors
    /// An empty prompt; [`Error::Capacity`] if it is longer than a sequence of the pool may be.
    pub fn open(&mut self, salt: Salt, prompt: &[u32]) -> Result<Session> {
        if prompt.is_empty() {
            return Err(Error::invalid("prompt", "empty", "at least one token"));
        }
        let (capacity, asked) = (self.pool().capacity(), prompt.len());
        if asked > capacity {
            // Before anything is brought back from a tier for it.
            return Err(Error::Capacity { what: "a sequence of the pool".into(), capacity, asked });
        }
        let (blocks, memory) = self.executor.cache_mut().parts();
        let prefix = self.prefixes.find(salt, prompt, blocks, memory);
        let found = prefix.tokens;
        let sequence = match self.executor.cache_mut().adopt(&prefix.blocks, found) {
            Ok(sequence) => sequence,
            Err(error) => {
                prefix.release(self.executor.cache_mut().parts().0);
                return Err(error);
            }
        };
        Ok(Session { salt, sequence, text: prompt[..found].to_vec(), found })
    }
    // ANCHOR_END: begin

    /// The same with blocks by name that somebody has computed elsewhere: see [`Tiered::bring`].
    ///
    /// # Errors
    /// As [`SharedPool::open`].
    pub fn open_with(
        &mut self,
        salt: Salt,
        prompt: &[u32],
        brought: HashMap<Key, Vec<u8>>,
    ) -> Result<Session> {
        self.prefixes.bring(brought);
        let session = self.open(salt, prompt);
        // What was not wanted is nobody's.
        self.prefixes.bring(HashMap::new());
        session
    }

    /// Begins to read what only a tier that is read aside has of a prompt, as [`Tiered::read_aside`].
    pub fn read_aside(
        &mut self,
        salt: Salt,
        prompt: &[u32],
        names: &[Key],
        most: usize,
    ) -> Option<(Aside, usize)> {
        let (blocks, _) = self.executor.cache_mut().parts();
        self.prefixes.read_aside(salt, prompt, names, most, blocks)
    }

    fn run_prompt(&mut self, session: &mut Session, prompt: &[u32]) -> Result<Vec<f32>> {
        let first = self.feed(session, &prompt[session.found..]);
        let whole = session.found / self.pool().layout().tokens() * self.pool().layout().tokens();
        match first {
            // A hit inside a block takes one block more, for the copy. Where that is not to be had, the
            // part of the block is read again.
            Err(Error::Capacity { .. }) if whole < session.found => {
                self.executor.cache_mut().truncate(session.sequence, whole)?;
                session.text.truncate(whole);
                session.found = whole;
                self.feed(session, &prompt[whole..])
            }
            first => first,
        }
    }

    /// Runs more tokens of a request, and gives the logits after the last.
    ///
    /// # Errors
    /// No tokens; [`Error::Capacity`] as for [`SharedPool::begin`]. The request is then as it was.
    pub fn feed(&mut self, session: &mut Session, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::invalid("tokens to feed", "none", "at least one"));
        }
        let span = Span::new(session.sequence, session.text.len(), tokens, Want::Last);
        let pass = Pass::one(span);
        let logits = self.run(&pass)?;
        session.text.extend_from_slice(tokens);
        Ok(logits.into_iter().collect())
    }

    /// Rolls a request back to its first `length` tokens.
    ///
    /// # Errors
    /// If it does not have that many.
    pub fn truncate(&mut self, session: &mut Session, length: usize) -> Result<()> {
        self.executor.cache_mut().truncate(session.sequence, length)?;
        session.text.truncate(length);
        Ok(())
    }

    // ANCHOR: make_room
    /// Lets go of what nobody uses, until the pass fits or nothing more can go.
    fn make_room(&mut self, pass: &Pass) -> Result<()> {
        let needed = self.pool().blocks_needed(pass)?;
        self.make_free(needed);
        Ok(())
    }

    /// Lets go of what nobody uses, until so many blocks are free or nothing more can go. Says whether they are.
    fn make_free(&mut self, wanted: usize) -> bool {
        let pool = self.executor.cache_mut();
        let free = pool.blocks().free();
        if wanted > free {
            let (blocks, memory) = pool.parts();
            self.prefixes.evict(wanted - free, blocks, memory);
        }
        self.pool().blocks().free() >= wanted
    }
    // ANCHOR_END: make_room

    /// Lets others know of a request's blocks that are full.
    ///
    /// Where others knew of the same before, the request has theirs from now on, and its own are free: whoever holds a block
    /// that the cache knows holds all those before it. Otherwise those before it could neither be used nor go, as nothing
    /// goes before what comes after it.
    ///
    /// # Errors
    /// If it is not of this pool, which holds less than its text.
    pub fn remember(&mut self, session: &Session) -> Result<()> {
        let cache = self.executor.cache();
        let table: Vec<BlockId> = cache.tables(session.sequence)?.held().collect();
        // More than the text is a pass whose rows nobody has told of: none of them is remembered.
        let (held, text) = (cache.len(session.sequence), session.text.len());
        if held < text {
            let what = format!("tokens of sequence {} in the pool", session.sequence);
            return Err(Error::invalid(what, held, format!("at least the {text} of its text")));
        }
        let (blocks, _) = self.executor.cache_mut().parts();
        self.prefixes.keep(session.salt, &session.text, &table, blocks);
        let known = self.prefixes.cache().known(session.salt, &session.text);
        self.executor.cache_mut().exchange(session.sequence, &known)
    }

    /// Puts what nobody uses into the tiers that outlive the process, as [`Tiered::put_away`].
    pub fn put_away(&mut self, wanted: usize) -> usize {
        let (blocks, memory) = self.executor.cache_mut().parts();
        self.prefixes.put_away(wanted, blocks, memory)
    }

    /// Copies what is known of a text to the tiers that outlive the process, as [`Tiered::save`].
    pub fn save(
        &mut self,
        salt: Salt,
        text: &[u32],
        from: Option<SavePoint>,
        most: usize,
    ) -> Option<SavePoint> {
        let (_, memory) = self.executor.cache_mut().parts();
        self.prefixes.save(salt, text, from, most, memory)
    }

    /// Ends a request. What it has said is known from now on, as well as what it was asked.
    ///
    /// # Errors
    /// As [`SharedPool::remember`]; its sequence is then as it was.
    pub fn end(&mut self, session: Session) -> Result<()> {
        self.remember(&session)?;
        self.executor.cache_mut().close(session.sequence)
    }

    /// Whether pool, tables and prefix cache agree on who holds what.
    ///
    /// # Errors
    /// Names the first block that they disagree on.
    pub fn check_integrity(&self) -> Result<()> {
        let pool = self.pool();
        pool.check_integrity(self.prefixes.cache().held())?;
        self.prefixes.cache().check_integrity(pool.blocks())
    }
}
