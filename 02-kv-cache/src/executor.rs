//! An executor whose cache can be worked on between passes, whatever device it runs on.

use crate::cached::KvCache;
use naive_decode::{Config, CpuExecutor, Executor};

// ANCHOR: seam
/// A model on some device, with keys and values beside it.
///
/// Passes go through [`Executor`]; between them, sequences are rolled back, forked or shared through the cache. Where the
/// numbers are is the device's business: a cache on a GPU has its tables here and its keys and values there.
pub trait CachedExecutor: Executor {
    /// Who keeps the keys and values.
    type Cache: KvCache;
    /// The cache, to look at.
    fn cache(&self) -> &Self::Cache;
    /// The cache, to work on.
    fn cache_mut(&mut self) -> &mut Self::Cache;
    /// The model's shape.
    fn config(&self) -> &Config;
    /// Tokens of the longest text that the model takes.
    fn context(&self) -> usize;
}
// ANCHOR_END: seam

impl<A: KvCache> CachedExecutor for CpuExecutor<A> {
    type Cache = A;

    fn cache(&self) -> &A {
        &self.attention
    }

    fn cache_mut(&mut self) -> &mut A {
        &mut self.attention
    }

    fn config(&self) -> &Config {
        &self.model.config
    }

    fn context(&self) -> usize {
        self.model.context()
    }
}

/// A device chosen while the program runs.
impl<E: CachedExecutor + ?Sized> CachedExecutor for Box<E> {
    type Cache = E::Cache;

    fn cache(&self) -> &E::Cache {
        (**self).cache()
    }

    fn cache_mut(&mut self) -> &mut E::Cache {
        (**self).cache_mut()
    }

    fn config(&self) -> &Config {
        (**self).config()
    }

    fn context(&self) -> usize {
        (**self).context()
    }
}
