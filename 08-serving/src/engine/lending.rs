//! Blocks for other engines: prefill-decode disaggregation, from the side that reads prompts.
//!
//! A prompt that is read for somebody else is a request like any other, which ends when it is read. Whoever waits for its
//! blocks asks for the next few, again and again. He has them as soon as a pass has made them, so they travel while the
//! rest of the prompt is read; and he asks for no more than he can send, so they pile up nowhere.

use super::Engine;
use kv_cache::CachedExecutor;
use naive_decode::Result;
use paged_cache::BlockId;
use paged_cache::offload::Key;
use prefix_radix::{Chain, Salt};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Bytes for which the copy of a block has room besides its own: whoever sends it may put a checksum behind it.
const SPARE: usize = 64;

/// What engines have in common that exchange blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    /// Stands for all that keys and values depend on besides the text.
    pub fingerprint: [u8; 32],
    /// Tokens of a block.
    pub block_tokens: usize,
    /// Bytes of one.
    pub block_bytes: usize,
}

impl Exchanged {
    /// Names of a text's blocks, but for so many of the first: both sides have the same.
    pub fn names(&self, salt: Salt, text: &[u32], known: usize) -> Vec<Key> {
        let chain = Chain::new(&self.fingerprint);
        chain.names(salt, text, self.block_tokens).skip(known).collect()
    }
}

/// Blocks of a text that is being read.
#[derive(Debug, Clone)]
pub struct BlocksOf {
    /// The request that reads it: the number of its ticket.
    pub request: u64,
    /// What its text is kept under.
    pub salt: Salt,
    /// The text, in whole blocks.
    pub text: Arc<[u32]>,
    /// The first block that is wanted.
    pub from: usize,
    /// Most blocks at a time.
    pub most: usize,
}

/// Somebody who waits for blocks.
pub(super) struct Waiting {
    pub(super) blocks: BlocksOf,
    pub(super) reply: oneshot::Sender<Vec<Vec<u8>>>,
}

impl Engine {
    // ANCHOR: lend
    /// Gives out the blocks that somebody waits for and that are there by now.
    pub(super) fn lend(&mut self) {
        for waiting in std::mem::take(&mut self.borrowers) {
            if waiting.reply.is_closed() {
                continue; // he has gone away
            }
            let BlocksOf { request, salt, ref text, from, most } = waiting.blocks;
            let known = self.pool.known(salt, text);
            let ready = known.get(from..).unwrap_or_default();
            let is_read = self.members.iter().all(|member| member.id != request);
            if ready.is_empty() && !is_read {
                self.borrowers.push(waiting);
                continue;
            }
            // A memory that cannot be read fails the next pass, too; whoever waits goes without.
            let bytes = self.copies(&ready[..ready.len().min(most)]).unwrap_or_default();
            self.counters.lent_bytes += bytes.iter().map(|block| block.len() as u64).sum::<u64>();
            let _ = waiting.reply.send(bytes);
        }
    }
    // ANCHOR_END: lend

    fn copies(&mut self, blocks: &[BlockId]) -> Result<Vec<Vec<u8>>> {
        let length = self.pool.pool().layout().block_bytes();
        let (_, memory) = self.pool.executor_mut().cache_mut().parts();
        let copy = |&block: &BlockId| {
            let mut bytes = Vec::with_capacity(length + SPARE);
            memory.copy_out(block, &mut bytes)?;
            Ok(bytes)
        };
        blocks.iter().map(copy).collect()
    }
}
