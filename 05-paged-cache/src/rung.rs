//! The paged cache as a rung: one sequence in a pool of its own.

use crate::paged_cache::{PagedCache, Room};
use flash_attention::threads::Pool;
use kv_cache::CachedDecoder;
use naive_decode::{Decoder, Model, Result, Rung, Settings};
use std::sync::Arc;

/// Keys and values in blocks.
pub const PAGED: Rung = Rung {
    package: "paged-cache",
    change: "keys and values in blocks, taken from a pool as the text grows",
    start,
};

fn start(model: Arc<Model>, settings: Settings) -> Result<Box<dyn Decoder>> {
    let capacity = settings.capacity.min(model.context());
    let room = Room { capacity, ..Room::for_tokens(&model, capacity)? };
    let mut cache = PagedCache::new(&model, room)?.on_threads(Pool::of(settings.threads));
    cache.open();
    Ok(Box::new(CachedDecoder::new(model, cache, settings.prefill_chunk)?))
}
