//! Several requests in one pass, and requests that have to wait.
//!
//! Whoever runs a batch makes the spans, and knows what each request is at. The pool makes room, runs them,
//! and is told afterwards what became of each.

use super::{Session, SharedPool};
use crate::{PrefixCache, Salt};
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{Error, Hidden, Likeliest, Logits, Pass, Result};
use paged_cache::offload::Tier;
use paged_cache::{BlockId, PagedCache, Parked};

/// A request whose blocks are in a tier.
#[derive(Debug)]
pub struct ParkedSession {
    salt: Salt,
    text: Vec<u32>,
    found: usize,
    parked: Parked,
}

impl ParkedSession {
    /// Tokens that it had in the pool.
    pub fn tokens(&self) -> usize {
        self.parked.length()
    }

    /// Has its tier forget its blocks, as [`Parked::forget`]; `others` are parked there too.
    ///
    /// # Errors
    /// If the tier cannot forget.
    pub fn forget<'a>(
        self,
        others: impl IntoIterator<Item = &'a ParkedSession>,
        tier: &mut dyn Tier,
    ) -> Result<()> {
        self.parked.forget(others.into_iter().map(|other| &other.parked), tier)
    }
}

impl Session {
    /// Its number in the pool, for spans.
    pub fn sequence(&self) -> usize {
        self.sequence
    }
}

impl<P: PrefixCache, E: CachedExecutor<Cache = PagedCache>> SharedPool<P, E> {
    /// The blocks of what is known of a text, as [`PrefixCache::known`]; tiers are not asked.
    pub fn known(&self, salt: Salt, text: &[u32]) -> Vec<BlockId> {
        self.prefixes.cache().known(salt, text)
    }

    /// Blocks of a text's beginning that need not be computed, as [`Tiered::within_reach`](crate::Tiered::within_reach).
    pub fn within_reach(&self, salt: Salt, text: &[u32]) -> usize {
        self.prefixes.within_reach(salt, text)
    }

    /// Whether there is room for a pass, once the cache has let go of what nobody uses.
    ///
    /// # Errors
    /// If the pass does not go on where its sequences end.
    pub fn has_room(&mut self, pass: &Pass) -> Result<bool> {
        let needed = self.pool().blocks_needed(pass)?;
        Ok(self.make_free(needed))
    }

    /// Runs a pass over any of its requests. Each is then to be told by [`SharedPool::advance`].
    ///
    /// # Errors
    /// [`Error::Capacity`] if even without all that nobody uses the pool is too small; whatever the
    /// model says. All requests are then as they were.
    pub fn run(&mut self, pass: &Pass) -> Result<Logits> {
        self.make_room(pass)?;
        self.executor.execute(pass)
    }

    /// As [`SharedPool::run`], where of some wanted rows the likeliest token is enough.
    ///
    /// # Errors
    /// As [`SharedPool::run`].
    pub fn run_likeliest(&mut self, pass: &Pass, is_enough: &[bool]) -> Result<Likeliest> {
        self.make_room(pass)?;
        self.executor.likeliest(pass, is_enough)
    }

    /// As [`SharedPool::run`], up to the head: hidden states `[wanted, hidden]`, for whoever wants those of some
    /// rows, and gives the others to [`SharedPool::head`].
    ///
    /// # Errors
    /// As [`SharedPool::run`].
    pub fn run_hidden(&mut self, pass: &Pass) -> Result<Hidden> {
        self.make_room(pass)?;
        self.executor.hidden(pass)
    }

    /// The logits of hidden states, `[rows, hidden]` to `[rows, vocab]`.
    ///
    /// # Errors
    /// As [`naive_decode::Executor::head`].
    pub fn head(&mut self, hidden: &Hidden) -> Result<Logits> {
        self.executor.head(hidden.view())
    }

    // ANCHOR: advance
    /// What became of a request's rows in the last pass: those in `slots` hold `tokens`, which are the
    /// text's next ones. Other rows, of guesses that did not come true, are rolled back.
    ///
    /// # Errors
    /// If the slots are none that the pass wrote, in ascending order, or not as many as the tokens.
    pub fn advance(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        slots: &[usize],
    ) -> Result<()> {
        if slots.len() != tokens.len() {
            let expected = format!("{}, as many as there are tokens", tokens.len());
            return Err(Error::invalid("slots of a text's next tokens", slots.len(), expected));
        }
        let start = session.text.len();
        self.executor.cache_mut().keep(session.sequence, start, slots)?;
        session.text.extend_from_slice(tokens);
        Ok(())
    }
    // ANCHOR_END: advance

    /// Ends a request, and lets nobody know of what it has not remembered.
    ///
    /// # Errors
    /// If it is not of this pool.
    pub fn close(&mut self, session: Session) -> Result<()> {
        self.executor.cache_mut().close(session.sequence)
    }

    /// Moves a request's blocks to a tier. Rows of a pass that nobody has told of stay behind.
    ///
    /// # Errors
    /// If it is not of this pool, which holds less than its text; its sequence is then as it was. If the tier cannot be
    /// written; the request is then closed, and has to be read again.
    pub fn park(&mut self, session: Session, tier: &mut dyn Tier) -> Result<ParkedSession> {
        let Session { salt, sequence, text, found } = session;
        let pool = self.executor.cache_mut();
        // What comes back is as long as the text: nobody knows the tokens of more.
        pool.truncate(sequence, text.len())?;
        match pool.park(sequence, tier) {
            Ok(parked) => Ok(ParkedSession { salt, text, found, parked }),
            Err(error) => pool.close(sequence).and(Err(error)),
        }
    }

    /// Brings a request back, as much of it as the tier still has.
    ///
    /// # Errors
    /// As [`paged_cache::PagedCache::unpark`].
    pub fn unpark(&mut self, parked: &ParkedSession, tier: &mut dyn Tier) -> Result<Session> {
        self.make_free(parked.parked.blocks());
        let sequence = self.executor.cache_mut().unpark(&parked.parked, tier)?;
        let text = parked.text[..self.pool().len(sequence)].to_vec();
        Ok(Session { salt: parked.salt, sequence, text, found: parked.found })
    }
}
