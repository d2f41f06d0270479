//! One request over a pool in which others were before.

use super::BLOCK;
use crate::{Chain, PrefixCache, RadixTree, Salt, Session, SharedPool, Tiered};
use kv_cache::KvCache;
use naive_decode::break_it::{Bench, same_logits};
use naive_decode::{Decoder, Model, Result};
use paged_cache::{PagedCache, Room};
use std::sync::Arc;

/// A cache chosen by the side that runs.
pub(super) type AnyCache = Box<dyn PrefixCache>;

pub(super) type Pool = SharedPool<AnyCache>;

/// A tree that knows nothing yet.
pub(super) fn tree() -> Result<AnyCache> {
    Ok(Box::new(RadixTree::new(BLOCK, Chain::new(b"faults"))?))
}

/// A pool for this many tokens over a cache.
pub(super) fn pool(model: &Arc<Model>, tokens: usize, cache: AnyCache) -> Result<Pool> {
    let paged = PagedCache::new(model, Room::for_tokens(model, tokens)?)?;
    SharedPool::new(model.clone(), paged, Tiered::new(cache, Chain::new(b"faults"), Vec::new()))
}

/// Another user's prompt.
pub(super) fn other_prompt(bench: &Bench) -> Result<Vec<u32>> {
    let world = Bench::world(1, 5, 2);
    bench.tokenizer.encode(&(world.prompt().to_owned() + &world.question(0)))
}

/// A request is read and ended.
pub(super) fn serve(pool: &mut Pool, prompt: &[u32]) -> Result<()> {
    let (session, _) = pool.begin(Salt::NONE, prompt)?;
    pool.end(session)
}

/// Something that happens to a pool once.
pub(super) type Event = Box<dyn FnOnce(&mut Pool) -> Result<()>>;

/// What others have asked of a pool before a prompt comes in.
pub(super) type Others = Box<dyn Fn(&mut Pool, &[u32]) -> Result<()>>;

/// A decoder of one request: its first call is its prompt.
pub(super) struct Sharing {
    pub(super) pool: Pool,
    pub(super) session: Option<Session>,
    /// What happens between the prompt and the first token that is fed.
    pub(super) between: Option<Event>,
    /// What happens before the prompt is read.
    pub(super) before: Others,
}

impl Sharing {
    /// A decoder over a pool; `before` is shown the prompt before it is read.
    pub(super) fn new(
        pool: Pool,
        before: impl Fn(&mut Pool, &[u32]) -> Result<()> + 'static,
    ) -> Self {
        Sharing { pool, session: None, between: None, before: Box::new(before) }
    }
}

impl Decoder for Sharing {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some(session) = &mut self.session else {
            (self.before)(&mut self.pool, tokens)?;
            let (session, logits) = self.pool.begin(Salt::NONE, tokens)?;
            self.session = Some(session);
            return Ok(logits);
        };
        if let Some(event) = self.between.take() {
            event(&mut self.pool)?;
        }
        self.pool.feed(session, tokens)
    }

    fn capacity(&self) -> usize {
        self.pool.executor.model.context()
    }

    fn rows(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.text.len() - session.found)
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.pool.pool().bytes_per_token()
    }
}

/// The guard that sees all of these: the logits after a prompt are those of a model that knows nothing.
pub(super) fn answers_as_if_alone(
    bench: &Bench,
    prompt: &[u32],
    mut decoder: impl Decoder,
) -> Result<()> {
    let found = decoder.feed(prompt)?;
    let naive = bench.naive_logits(prompt)?;
    same_logits("logits after the prompt", &found, &naive, "as the naive loop has it")
}
