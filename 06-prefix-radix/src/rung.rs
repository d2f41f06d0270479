//! Shared prefixes as a rung: one request in a pool of its own, with a tree that knows nothing yet.

use crate::{Chain, RadixTree, Salt, Session, SharedPool, Tiered};
use flash_attention::threads::Pool;
use kv_cache::KvCache;
use naive_decode::{Decoder, Error, Model, Result, Rung, Settings};
use paged_cache::{PagedCache, Room};
use std::sync::Arc;

/// A decoder of one request over a shared pool.
struct SharingDecoder {
    pool: SharedPool<RadixTree>,
    /// None before the first tokens.
    session: Option<Session>,
    capacity: usize,
    prefill_chunk: usize,
    rows: usize,
}

impl SharingDecoder {
    fn feed_chunk(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        match &mut self.session {
            Some(session) => {
                let logits = self.pool.feed(session, tokens)?;
                self.rows += tokens.len();
                Ok(logits)
            }
            None => {
                let (session, logits) = self.pool.begin(Salt::NONE, tokens)?;
                self.rows += tokens.len() - session.found();
                self.session = Some(session);
                Ok(logits)
            }
        }
    }

    fn len(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.text().len())
    }
}

impl Decoder for SharingDecoder {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let start = self.len();
        let asked = start + tokens.len();
        if asked > self.capacity {
            let what = "the sequence".into();
            return Err(Error::Capacity { what, capacity: self.capacity, asked });
        }
        let mut last = Err(Error::invalid("tokens to feed", "none", "at least one"));
        for chunk in tokens.chunks(self.prefill_chunk) {
            last = self.feed_chunk(chunk);
            if last.is_err() {
                break;
            }
        }
        // All or nothing: chunks that did go through are rolled back.
        if let (Err(_), Some(session)) = (&last, &mut self.session) {
            self.pool.truncate(session, start)?;
        }
        last
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.pool.pool().bytes_per_token()
    }
}

/// Prompts looked up in a radix tree of earlier ones.
pub const SHARED: Rung = Rung {
    package: "prefix-radix",
    change: "prompts looked up in a tree of earlier ones (the first one finds nothing)",
    start,
};

fn start(model: Arc<Model>, settings: Settings) -> Result<Box<dyn Decoder>> {
    if settings.prefill_chunk == Some(0) {
        return Err(Error::invalid("prefill chunk", 0, "at least 1 token"));
    }
    let capacity = settings.capacity.min(model.context());
    let room = Room { capacity, ..Room::for_tokens(&model, capacity)? };
    let cache = PagedCache::new(&model, room)?.on_threads(Pool::of(settings.threads));
    let chain = Chain::new(b"one request");
    let tree = RadixTree::new(room.block, chain)?;
    Ok(Box::new(SharingDecoder {
        pool: SharedPool::new(model, cache, Tiered::new(tree, chain, Vec::new()))?,
        session: None,
        capacity,
        prefill_chunk: settings.prefill_chunk.unwrap_or(usize::MAX),
        rows: 0,
    }))
}
