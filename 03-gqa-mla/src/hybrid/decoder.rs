//! Decoding with rings.

use crate::ring::{HybridCache, Room};
use kv_cache::CachedDecoder;
use naive_decode::{Decoder, Error, Model, Result, Rung, Settings};
use std::sync::Arc;

/// Rings as a rung.
pub const RING: Rung = Rung {
    package: "gqa-mla",
    change: "layers with a window keep their last tokens in a ring; layers that share keep nothing",
    start,
};

/// A decoder whose cache holds of each layer what that layer can still look at.
///
/// # Errors
/// If the prefill chunk is zero tokens, or the first layer makes no keys and values.
pub fn start(model: Arc<Model>, settings: Settings) -> Result<Box<dyn Decoder>> {
    let capacity = settings.capacity.min(model.context());
    let cache = HybridCache::new(&model, Room { capacity, sequences: 1, spare: 0 })?;
    let decoder = CachedDecoder::new(model, cache, settings.prefill_chunk)?;
    let chunk = settings.prefill_chunk.unwrap_or(usize::MAX);
    Ok(Box::new(RingDecoder { decoder, chunk, tokens: Vec::new() }))
}

/// A cached decoder that can take back more than its rings remember.
///
/// A prompt that fails in a late chunk has to leave the sequence as it was. By then the rings have
/// let go of what the sequence saw before the prompt; it is computed again, from the tokens, when more are fed.
struct RingDecoder {
    decoder: CachedDecoder<HybridCache>,
    chunk: usize,
    /// What the sequence holds, and the cache all of it or its beginning.
    tokens: Vec<u32>,
}

impl RingDecoder {
    /// Computes what the cache lacks.
    fn catch_up(&mut self) -> Result<()> {
        match &self.tokens[self.decoder.len()..] {
            [] => Ok(()),
            lacking => run(&mut self.decoder, lacking, self.chunk).map(drop),
        }
    }
}

/// Runs tokens chunk by chunk: a chunk that fails leaves the cache as it found it.
fn run(decoder: &mut CachedDecoder<HybridCache>, tokens: &[u32], chunk: usize) -> Result<Vec<f32>> {
    let mut last = Err(Error::invalid("tokens to feed", "none", "at least one"));
    for chunk in tokens.chunks(chunk) {
        last = Ok(decoder.feed(chunk)?);
    }
    last
}

impl Decoder for RingDecoder {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.catch_up()?;
        self.decoder.check_room(tokens.len())?;
        let result = run(&mut self.decoder, tokens, self.chunk);
        match &result {
            Ok(_) => self.tokens.extend(tokens),
            Err(_) if self.decoder.truncate(self.tokens.len()).is_ok() => {}
            Err(_) => self.decoder.truncate(0)?,
        }
        result
    }

    fn capacity(&self) -> usize {
        self.decoder.capacity()
    }

    fn rows(&self) -> usize {
        self.decoder.rows()
    }

    /// Those of the layers that see everything: once the windows are full, they alone grow.
    fn kv_bytes_per_token(&self) -> usize {
        self.decoder.kv_bytes_per_token()
    }
}
