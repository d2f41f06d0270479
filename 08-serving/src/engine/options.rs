//! How an engine is set up.

use super::elsewhere::Exchange;
use super::policy::{Continuous, Policy};
use flash_attention::tile_attention::KvType;
use naive_decode::{Element, Model, Result};
use paged_cache::{Behind, Layout};
use speculative::FromText;
use speculative::proposers::PromptLookup;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Texts of the whole context that a pool has room for if nothing is said, and the most bytes of it.
const TEXTS: usize = 4;
const MOST_BYTES: usize = 2 << 30;

/// Tokens of a block if nothing is said.
const BLOCK: usize = 16;

/// Makes a proposer for one request.
pub type MakeProposer = Arc<dyn Fn() -> Box<dyn FromText> + Send + Sync>;

/// How an engine is set up. [`EngineOptions::for_model`] is a good start.
#[derive(Clone)]
pub struct EngineOptions {
    /// Bytes of the pool of keys and values.
    pub pool_bytes: usize,
    /// Most tokens of a text, where that is to be fewer than the model and the pool have room for.
    pub context: Option<usize>,
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
    /// How long a request is held back without any of its events being read before it fails: a client that never reads
    /// must not keep a place for ever.
    pub patience: Duration,
    /// Tokens to guess ahead for each request, at most; 0 for none.
    pub draft: usize,
    /// Who guesses.
    pub proposer: MakeProposer,
    /// Whether prefixes are kept for later requests.
    pub prefixes: bool,
    /// Bytes of the host's memory for what leaves the pool: prefixes that others need the place of, and the blocks
    /// of requests that were preempted; 0 to compute all of it again.
    pub host_bytes: usize,
    /// A file for prefixes that outlives the process, if there is to be one.
    pub kv_file: Option<KvFile>,
    /// Keys and values that are exchanged with other engines, if any are.
    pub exchange: Option<Exchange>,
    /// Who decides what runs next.
    pub policy: Arc<dyn Policy>,
}

/// A file of keys and values, in a directory that may have those of other models too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvFile {
    /// The directory; it is made if it is not there.
    pub directory: PathBuf,
    /// Most bytes of the file.
    pub bytes: u64,
    /// A digest of the model's files. What the model computes for a short text is part of the file's name
    /// besides, so a file is never read by a model, a program or options that would have written another.
    pub model: [u8; 32],
}

impl EngineOptions {
    /// Rows of a pass on the processor, if nothing is said.
    pub const ROWS: usize = 256;

    /// Continuous batching over a pool for four texts of the model's whole context, or 2 GiB if that is less;
    /// keys and values are kept as the model makes them.
    ///
    /// # Errors
    /// If the model's first layer makes no keys and values.
    pub fn for_model(model: &Model) -> Result<Self> {
        EngineOptions::with_kept(model, model.kv_element.into())
    }

    /// The same, with keys and values kept as another type.
    ///
    /// # Errors
    /// As [`EngineOptions::for_model`].
    pub fn with_kept(model: &Model, kept: KvType) -> Result<Self> {
        let bytes = EngineOptions::token_bytes(model, kept)?;
        Ok(EngineOptions { kept, ..EngineOptions::for_texts(model.context(), bytes) })
    }

    /// Bytes of a token's keys and values.
    ///
    /// # Errors
    /// As [`EngineOptions::for_model`].
    pub fn token_bytes(model: &Model, kept: KvType) -> Result<usize> {
        Ok(Layout::new(model, BLOCK, kept, Behind::Kept)?.block_bytes() / BLOCK)
    }

    /// Bytes of a pool for so many tokens, in whole blocks.
    pub fn pool_for(tokens: usize, bytes_per_token: usize) -> usize {
        tokens.next_multiple_of(BLOCK).saturating_mul(bytes_per_token)
    }

    /// The same for texts of so many tokens and so many bytes of keys and values to each, of whatever model on whatever
    /// device.
    pub fn for_texts(context: usize, bytes_per_token: usize) -> Self {
        let wanted = EngineOptions::pool_for(TEXTS * context, bytes_per_token);
        EngineOptions {
            pool_bytes: wanted.min(MOST_BYTES),
            context: None,
            block: BLOCK,
            kept: KvType::Exact(Element::F32),
            rows: EngineOptions::ROWS,
            running: 32,
            queue: 256,
            events: 256,
            patience: Duration::from_secs(60),
            draft: 8,
            proposer: Arc::new(|| Box::new(PromptLookup::new())),
            prefixes: true,
            host_bytes: 0,
            kv_file: None,
            exchange: None,
            policy: Arc::new(Continuous),
        }
    }
}
