//! Decoding with a cache: prefill, then one row a token, through the same forward function.

use crate::cached::{Cached, KvCache};
use crate::contiguous::ContiguousStore;
use crate::executor::CachedExecutor;
use crate::list::ListStore;
use crate::store::KvShape;
use naive_decode::{CpuExecutor, Decoder, Error, Model, Pass, Result, Rung, Settings, Span, Want};
use std::marker::PhantomData;
use std::sync::Arc;

/// Sequence that a decoder uses of its cache.
const SEQUENCE: usize = 0;

/// A decoder that runs each token through the model once.
///
/// Feeding the prompt is *prefill*: many rows in one pass, which share every weight that is read.
/// Feeding one token is *decode*: one row, and every weight read for it alone.
/// They are one function; only the number of rows differs.
///
/// Tokens that cannot be fed are refused before the first of them is. Should a pass fail all the same,
/// the chunks before it are taken back, from any cache that can: a ring that has come round with too
/// few spare places, or a cache that has dropped entries, keeps them, and [`CachedDecoder::len`] says how
/// many those were.
pub struct CachedDecoder<A, E = CpuExecutor<A>> {
    /// Model and cache.
    pub executor: E,
    prefill_chunk: usize,
    rows: usize,
    cache: PhantomData<A>,
}

impl<A: KvCache> CachedDecoder<A> {
    /// A decoder over a fresh cache.
    ///
    /// # Errors
    /// If the chunk is zero tokens.
    pub fn new(model: Arc<Model>, cache: A, prefill_chunk: Option<usize>) -> Result<Self> {
        CachedDecoder::over(CpuExecutor { model, attention: cache }, prefill_chunk)
    }
}

impl<A: KvCache, E: CachedExecutor<Cache = A>> CachedDecoder<A, E> {
    /// The same on any device, over the first sequence of its cache, which is empty.
    ///
    /// # Errors
    /// If the chunk is zero tokens.
    pub fn over(executor: E, prefill_chunk: Option<usize>) -> Result<Self> {
        if prefill_chunk == Some(0) {
            return Err(Error::invalid("prefill chunk", 0, "at least 1 token"));
        }
        let prefill_chunk = prefill_chunk.unwrap_or(usize::MAX);
        Ok(CachedDecoder { executor, prefill_chunk, rows: 0, cache: PhantomData })
    }

    /// Tokens that the sequence holds.
    pub fn len(&self) -> usize {
        self.executor.cache().len(SEQUENCE)
    }

    /// Whether nothing has been fed yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rolls the sequence back to its first `length` tokens.
    ///
    /// # Errors
    /// If it does not have that many.
    pub fn truncate(&mut self, length: usize) -> Result<()> {
        self.executor.cache_mut().truncate(SEQUENCE, length)
    }

    /// Whether so many more tokens fit.
    ///
    /// # Errors
    /// [`Error::Capacity`], naming what is full first as the sequence grows: its cache, or the context that the model
    /// takes. A cache as long as that is not to blame: a longer one would take no more.
    pub fn check_room(&self, tokens: usize) -> Result<()> {
        let (context, cache) = (self.executor.context(), self.executor.cache().capacity());
        let (capacity, asked) = (context.min(cache), self.len() + tokens);
        if asked <= capacity {
            return Ok(());
        }
        let what = match context <= cache {
            true => "the model's context".into(),
            false => format!("the cache of sequence {SEQUENCE}"),
        };
        Err(Error::Capacity { what, capacity, asked })
    }
}

impl<A: KvCache, E: CachedExecutor<Cache = A>> Decoder for CachedDecoder<A, E> {
    // ANCHOR: feed
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::invalid("tokens to feed", "none", "at least one"));
        }
        self.check_room(tokens.len())?;
        let start = self.len();
        let asked = start + tokens.len();
        let vocabulary = self.executor.config().vocab_size;
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            let expected = format!("an id below the vocabulary's {vocabulary}");
            return Err(Error::invalid("token", token, expected));
        }
        let mut last = Vec::new();
        for chunk in tokens.chunks(self.prefill_chunk) {
            let held = self.len();
            let want = if held + chunk.len() == asked { Want::Last } else { Want::Nothing };
            let pass = Pass::one(Span::new(SEQUENCE, held, chunk, want));
            match self.executor.execute(&pass) {
                Ok(logits) => last = logits.iter().copied().collect(),
                Err(error) => {
                    // All or nothing: chunks that did go through are rolled back, if the cache can
                    // do that. If not, why the pass failed is still what there is to say.
                    drop(self.truncate(start));
                    return Err(error);
                }
            }
            self.rows += chunk.len();
        }
        Ok(last)
    }
    // ANCHOR_END: feed

    fn capacity(&self) -> usize {
        self.executor.cache().capacity().min(self.executor.context())
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.executor.cache().bytes_per_token()
    }
}

/// The list cache as a rung.
pub const LISTS: Rung = Rung {
    package: "kv-cache",
    change: "keys and values kept in growing lists",
    start: |model, settings| start(model, settings, |s, c, n| Ok(ListStore::new(s, c, n))),
};

/// The contiguous cache as a rung.
pub const CONTIGUOUS: Rung = Rung {
    package: "kv-cache",
    change: "keys and values kept in one slab, set aside beforehand",
    start: |model, settings| start(model, settings, ContiguousStore::new),
};

fn start<S: crate::store::Store + 'static>(
    model: Arc<Model>,
    settings: Settings,
    store: fn(KvShape, usize, usize) -> Result<S>,
) -> Result<Box<dyn Decoder>> {
    let shape = KvShape::of(&model);
    let capacity = settings.capacity.min(model.context());
    let cache = Cached::new(store(shape, capacity, 1)?, model.isa);
    Ok(Box::new(CachedDecoder::new(model, cache, settings.prefill_chunk)?))
}
