//! How an engine is set up.

use super::policy::{Continuous, Policy};
use flash_attention::tile_attention::KvType;
use naive_decode::{Model, Result};
use paged_cache::Room;
use speculative::Proposer;
use speculative::proposers::PromptLookup;
use std::sync::Arc;
use std::time::Duration;

/// Texts of the whole context that a pool has room for if nothing is said, and the most bytes of it.
const TEXTS: usize = 4;
const MOST_BYTES: usize = 2 << 30;

/// Makes a proposer for one request.
pub type MakeProposer = Arc<dyn Fn() -> Box<dyn Proposer> + Send + Sync>;

/// How an engine is set up. [`EngineOptions::for_model`] is a good start.
#[derive(Clone)]
pub struct EngineOptions {
    /// Bytes of the pool of keys and values.
    pub pool_bytes: usize,
    /// Tokens of a block: a power of two from 1 to 256; servers want 16 and more.
    pub block: usize,
    /// What keys and values are kept as.
    pub kept: KvType,
    /// Rows of a pass, at most: what prompts, texts and guesses share. More rows make prompts faster, and
    /// texts wait longer for each of their tokens.
    pub rows: usize,
    /// Requests that run at once, at most; no more than `rows`.
    pub running: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// Events that a client may leave unread before its request is held back.
    pub events: usize,
    /// How long a request is held back before it fails: a client that never reads must not keep a place
    /// for ever.
    pub patience: Duration,
    /// Tokens to guess ahead for each request, at most; 0 for none.
    pub draft: usize,
    /// Who guesses.
    pub proposer: MakeProposer,
    /// Whether prefixes are kept for later requests.
    pub prefixes: bool,
    /// Bytes of the host's memory for the blocks of requests that were preempted; 0 to compute them again.
    pub host_bytes: usize,
    /// Who decides what runs next.
    pub policy: Arc<dyn Policy>,
}

impl EngineOptions {
    /// Continuous batching over a pool for four texts of the model's whole context, or 2 GiB if that is less.
    ///
    /// # Errors
    /// If the model's first layer makes no keys and values.
    pub fn for_model(model: &Model) -> Result<Self> {
        let wanted = Room::for_tokens(model, TEXTS * model.context())?.bytes;
        Ok(EngineOptions {
            pool_bytes: wanted.min(MOST_BYTES),
            block: 16,
            kept: model.kv_element.into(),
            rows: 256,
            running: 32,
            queue: 256,
            events: 256,
            patience: Duration::from_secs(60),
            draft: 8,
            proposer: Arc::new(|| Box::new(PromptLookup::new())),
            prefixes: true,
            host_bytes: 0,
            policy: Arc::new(Continuous),
        })
    }
}
