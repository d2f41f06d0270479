//! A decoder that guesses what it will be fed.
//!
//! Whoever feeds a decoder takes its logits, chooses a token, and feeds that. So a decoder can guess the next
//! tokens, run them in the same pass, and keep the logits after each. If it is then fed what it guessed, the
//! answer is there already. It needs no rule of acceptance: whoever chooses the tokens need not know that
//! anybody guesses, and any seed gives the tokens that it gives without. This is how speculation stands among
//! the rungs; [`Speculation`](crate::Speculation) keeps more of what is drawn.

use crate::cache::{TreeCache, with_room_for_trees};
use crate::proposer::FromText;
use crate::proposers::PromptLookup;
use crate::tree::DraftTree;
use flash_attention::threads::Pool;
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{
    CpuExecutor, Decoder, Error, Model, Pass, Result, Rung, Sampler, Sampling, Settings, Span, Want,
};
use ndarray::Array2;
use paged_cache::PagedCache;
use std::sync::Arc;

/// A decoder over a proposer. The model runs on the processor unless said otherwise.
pub struct GuessingDecoder<P, E = CpuExecutor<PagedCache>> {
    pub(crate) executor: E,
    pub(crate) sequence: usize,
    proposer: P,
    /// Asked for by proposers that draw. It is greedy, so they name what they find likeliest: guesses are compared here, and
    /// not weighed.
    sampler: Sampler,
    depth: usize,
    capacity: usize,
    prefill_chunk: usize,
    /// What has been fed.
    pub(crate) text: Vec<u32>,
    /// What was run beyond that.
    guess: Option<Guess>,
    rows: usize,
}

/// A tree that was run behind a text.
struct Guess {
    tree: DraftTree,
    /// `[1 + nodes, vocab]`
    logits: Array2<f32>,
    /// Length of the text that it was run behind.
    text: usize,
    /// Nodes that have come true so far.
    path: Vec<usize>,
}

impl<P: FromText> GuessingDecoder<P> {
    /// A decoder of an empty text that guesses `depth` tokens ahead.
    ///
    /// # Errors
    /// If the model's first layer makes no keys and values, there is no memory for as many tokens as the settings
    /// ask for, or the chunk is zero tokens.
    pub fn new(model: Arc<Model>, settings: Settings, proposer: P, depth: usize) -> Result<Self> {
        let cache = with_room_for_trees(&model, settings.capacity)?;
        let mut cache = cache.on_threads(Pool::of(settings.threads));
        let sequence = cache.open();
        GuessingDecoder::over(model, (cache, sequence), settings, proposer, depth)
    }
}

impl<P: FromText, C: TreeCache> GuessingDecoder<P, CpuExecutor<C>> {
    /// The same over an empty sequence of a cache.
    ///
    /// # Errors
    /// If the chunk is zero tokens.
    pub fn over(
        model: Arc<Model>,
        (cache, sequence): (C, usize),
        settings: Settings,
        proposer: P,
        depth: usize,
    ) -> Result<Self> {
        let executor = CpuExecutor { model, attention: cache };
        GuessingDecoder::on((executor, sequence), settings, proposer, depth)
    }
}

impl<P: FromText, E: CachedExecutor<Cache: TreeCache>> GuessingDecoder<P, E> {
    /// The same on any device, over an empty sequence of its cache.
    ///
    /// # Errors
    /// If the chunk is zero tokens.
    pub fn on(
        (executor, sequence): (E, usize),
        settings: Settings,
        proposer: P,
        depth: usize,
    ) -> Result<Self> {
        if settings.prefill_chunk == Some(0) {
            return Err(Error::invalid("prefill chunk", 0, "at least 1 token"));
        }
        Ok(GuessingDecoder {
            capacity: settings.capacity.min(executor.context()),
            executor,
            sequence,
            proposer,
            sampler: Sampler::new(Sampling::default())?,
            depth,
            prefill_chunk: settings.prefill_chunk.unwrap_or(usize::MAX),
            text: Vec::new(),
            guess: None,
            rows: 0,
        })
    }

    /// The logits after a token, if it was guessed.
    pub(crate) fn guessed(&mut self, token: u32) -> Option<Vec<f32>> {
        let guess = self.guess.as_mut()?;
        let at = guess.path.last().copied();
        let child = guess.tree.children(at).find(|&c| guess.tree.nodes()[c].token == token)?;
        guess.path.push(child);
        Some(guess.logits.row(child + 1).to_vec())
    }

    /// Whether this token would bring a guess to its end.
    pub(crate) fn completes_guess(&self, token: u32) -> bool {
        let Some(Guess { tree, path, .. }) = &self.guess else { return false };
        let child = tree.children(path.last().copied()).find(|&c| tree.nodes()[c].token == token);
        child.is_some_and(|child| tree.children(Some(child)).next().is_none())
    }

    /// Forgets what was guessed and has not come true: the cache holds the text then, and nothing else.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if let Some(Guess { text, path, .. }) = self.guess.take() {
            let slots: Vec<usize> = path.iter().map(|node| text + node).collect();
            let cache = self.executor.cache_mut();
            if let Err(error) = cache.keep(self.sequence, text, &slots) {
                // What has come true of the guess is not where the text has it. The next time it is read again.
                return cache.truncate(self.sequence, text).and(Err(error));
            }
        }
        let held = self.executor.cache().len(self.sequence);
        let missing = self.text.get(held..).unwrap_or_default().to_vec();
        self.read(&missing)
    }

    /// Runs a token, and guesses behind it.
    pub(crate) fn run(&mut self, token: u32) -> Result<Vec<f32>> {
        self.settle()?;
        let context = [&self.text[..], &[token]].concat();
        let depth = self.depth.min(self.capacity - context.len());
        let mut tree = self.proposer.propose(&context, depth, &mut self.sampler)?;
        tree.cut_unknown(self.executor.config().vocab_size);
        tree.truncate(self.executor.cache().capacity().saturating_sub(context.len()));
        let span = tree.span(self.sequence, &context)?;
        self.rows += span.rows();
        let logits = self.executor.execute(&Pass::one(span))?;
        let first = logits.row(0).to_vec();
        self.guess = Some(Guess { tree, logits, text: context.len(), path: Vec::new() });
        Ok(first)
    }

    /// Runs tokens that nobody needs logits after.
    fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        self.settle()?;
        self.read(tokens)
    }

    /// The same behind all that the cache holds.
    fn read(&mut self, tokens: &[u32]) -> Result<()> {
        for chunk in tokens.chunks(self.prefill_chunk) {
            let held = self.executor.cache().len(self.sequence);
            let span = Span::new(self.sequence, held, chunk, Want::Nothing);
            self.executor.execute(&Pass::one(span))?;
            self.rows += chunk.len();
        }
        Ok(())
    }

    fn feed_all(&mut self, last: u32, before: &[u32]) -> Result<Vec<f32>> {
        if before.is_empty()
            && let Some(logits) = self.guessed(last)
        {
            return Ok(logits);
        }
        if !before.is_empty() {
            self.prefill(before)?;
            self.text.extend_from_slice(before);
        }
        self.run(last)
    }
}

impl<P: FromText, E: CachedExecutor<Cache: TreeCache>> Decoder for GuessingDecoder<P, E> {
    // ANCHOR: feed
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some((&last, before)) = tokens.split_last() else {
            return Err(Error::invalid("tokens to feed", "none", "at least one"));
        };
        let (text, asked) = (self.text.len(), self.text.len() + tokens.len());
        if asked > self.capacity {
            let what = match self.capacity == self.executor.context() {
                true => "the model's context".into(),
                false => format!("the cache of sequence {}", self.sequence),
            };
            return Err(Error::Capacity { what, capacity: self.capacity, asked });
        }
        let logits = self.feed_all(last, before);
        match logits {
            Ok(logits) => {
                self.text.push(last);
                Ok(logits)
            }
            Err(error) => {
                // All or nothing.
                self.guess = None;
                self.text.truncate(text);
                let held = self.executor.cache().len(self.sequence).min(text);
                self.executor.cache_mut().truncate(self.sequence, held)?;
                Err(error)
            }
        }
    }
    // ANCHOR_END: feed

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.executor.cache().bytes_per_token()
    }
}

/// Tokens that the rung guesses ahead.
const DEPTH: usize = 8;

/// Speculation by prompt lookup as a rung: it needs nothing but the text.
pub const GUESSING: Rung = Rung {
    package: "speculative",
    change: "the next tokens looked up in the text, and checked in the same pass",
    start: |model, settings| {
        Ok(Box::new(GuessingDecoder::new(model, settings, PromptLookup::new(), DEPTH)?))
    },
};
