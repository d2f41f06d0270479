//! A pool, a cache and a list of requests, without a model.
//!
//! Each request looks up its prompt, takes the blocks it lacks (the cache has to let go of some if none are
//! free), writes them and lets the cache keep them. What it "writes" is which text a block is from, so that a
//! hit that belongs to another text is an error here, and not a good result.

use super::Request;
use crate::{Prefix, PrefixCache, Salt};
use naive_decode::{Error, Result};
use paged_cache::{BlockId, Blocks, check_block_tokens};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a replay came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Tokens of all prompts.
    pub prompt: usize,
    /// Tokens of them that the cache knew, and that no model would have had to read.
    pub found: usize,
    /// Blocks that the cache let go of to make room.
    pub evicted: u64,
}

impl Report {
    /// Part of the prompts' tokens that need not be read.
    pub fn saved(&self) -> f64 {
        self.found as f64 / self.prompt.max(1) as f64
    }
}

/// Sends `requests` in order, the last `at_once` of them holding their blocks at any time.
///
/// # Errors
/// If a request that is alone needs more blocks than there are, one has no tokens, one goes on from a later
/// one, or a hit belongs to another text; or if no blocks are of the cache's size.
pub fn replay(
    requests: &[Request],
    cache: &mut dyn PrefixCache,
    blocks: &mut Blocks,
    at_once: usize,
) -> Result<Report> {
    check_block_tokens(cache.block_tokens())?;
    let written = vec![(Arc::from([]), 0); blocks.count()];
    let evicted = cache.statistics().evicted;
    let mut replay =
        Replay { cache, blocks, written, live: VecDeque::new(), report: Report::default() };
    let sent = replay.send_all(requests, at_once.max(1));
    while !replay.live.is_empty() {
        replay.finish();
    }
    let evicted = replay.cache.statistics().evicted - evicted;
    sent.map(|()| Report { evicted, ..replay.report })
}

/// A request that holds its blocks.
struct Live {
    request: usize,
    text: Arc<[u32]>,
    table: Vec<BlockId>,
}

struct Replay<'a> {
    cache: &'a mut dyn PrefixCache,
    blocks: &'a mut Blocks,
    /// By block: the text it was written for, and the token at which it ends.
    written: Vec<(Arc<[u32]>, usize)>,
    live: VecDeque<Live>,
    report: Report,
}

impl Replay<'_> {
    fn send_all(&mut self, requests: &[Request], at_once: usize) -> Result<()> {
        let mut texts: Vec<Arc<[u32]>> = Vec::with_capacity(requests.len());
        for (i, request) in requests.iter().enumerate() {
            let mut prompt = Vec::new();
            if let Some(after) = request.after {
                let Some(text) = texts.get(after) else {
                    let expected = format!("below {i}, its own number");
                    return Err(Error::invalid("the request gone on from", after, expected));
                };
                while self.live.iter().any(|live| live.request == after) {
                    self.finish();
                }
                prompt.extend_from_slice(text);
            }
            prompt.extend_from_slice(&request.tokens);
            let text: Arc<[u32]> = [&prompt, &*request.answer].concat().into();
            if text.is_empty() {
                let what = format!("tokens of request {i}'s prompt and answer");
                return Err(Error::invalid(what, 0, "at least 1"));
            }
            while self.live.len() >= at_once {
                self.finish();
            }
            let table = self.table(&prompt, &text)?;
            self.cache.keep(Salt::NONE, &prompt, &table, self.blocks);
            self.live.push_back(Live { request: i, text: Arc::clone(&text), table });
            texts.push(text);
        }
        Ok(())
    }

    /// Blocks for a request's whole text: those found, and others, written now.
    fn table(&mut self, prompt: &[u32], text: &Arc<[u32]>) -> Result<Vec<BlockId>> {
        let size = self.cache.block_tokens();
        let prefix = self.cache.find(Salt::NONE, prompt, self.blocks);
        if let Err(error) = self.check(&prefix, prompt) {
            prefix.release(self.blocks);
            return Err(error);
        }
        self.report.prompt += prompt.len();
        self.report.found += prefix.tokens;
        let Prefix { tokens, blocks: mut table } = prefix;
        // The rest of a block that is shared in part is written, so it is copied first.
        let mut shared = table.pop_if(|_| !tokens.is_multiple_of(size));
        let whole = table.len();
        while table.len() < text.len().div_ceil(size) {
            if let Some(block) = self.take() {
                table.push(block);
            } else if let Some(block) = shared.take() {
                // No room for two copies. What the shared one has of this text is read again.
                self.blocks.release(block);
                self.report.found -= tokens % size;
            } else {
                Prefix { tokens: 0, blocks: table }.release(self.blocks);
                let (what, capacity) = ("the pool".into(), self.blocks.count() * size);
                return Err(Error::Capacity { what, capacity, asked: text.len() });
            }
        }
        if let Some(block) = shared {
            self.blocks.release(block);
        }
        for (i, block) in table.iter().enumerate().skip(whole) {
            self.written[block.index()] = (Arc::clone(text), text.len().min((i + 1) * size));
        }
        Ok(table)
    }

    /// Whether a hit belongs to this prompt.
    fn check(&self, prefix: &Prefix, prompt: &[u32]) -> Result<()> {
        for (i, block) in prefix.blocks.iter().enumerate() {
            let (from, end) = &self.written[block.index()];
            let to = prefix.tokens.min((i + 1) * self.cache.block_tokens());
            if to > *end || from[..to] != prompt[..to] {
                let what = format!("block {} of a hit", block.0);
                return Err(Error::invalid(what, "from another text", "from this one"));
            }
        }
        Ok(())
    }

    /// A free block; if there is none, one that the cache lets go of; if it has none to spare, one of the
    /// oldest request that is still there.
    fn take(&mut self) -> Option<BlockId> {
        loop {
            if let Some(block) = self.blocks.take() {
                return Some(block);
            }
            if self.cache.evict(1, self.blocks, &mut |_| ()) == 0 {
                self.live.front()?;
                self.finish();
            }
        }
    }

    /// The oldest request is answered. Its last token was never read, so it is not kept.
    fn finish(&mut self) {
        let Some(Live { text, table, .. }) = self.live.pop_front() else { return };
        self.cache.keep(Salt::NONE, &text[..text.len() - 1], &table, self.blocks);
        for block in table {
            self.blocks.release(block);
        }
    }
}
