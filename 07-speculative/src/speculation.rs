//! Propose, verify, accept, roll back: one cycle after another.

use crate::accept::{Rule, accept};
use crate::adaptive::{Adaptive, Observation};
use crate::proposer::{Proposer, Verdict};
use kv_cache::{CachedExecutor, KvCache};
use naive_decode::{CpuExecutor, Error, Model, Pass, Request, Result, Sampler, Span};
use paged_cache::{BlockId, PagedCache};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How deep drafts go.
#[derive(Debug, Clone)]
pub enum Depth {
    /// Always so many tokens one after the other.
    Fixed(usize),
    /// As many as pay.
    Adaptive(Adaptive),
}

/// What came of one cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// The new tokens: those that were kept, and the one after them.
    pub tokens: Vec<u32>,
    /// Length of the proposed tree's longest path.
    pub proposed: usize,
    /// Nodes of the tree.
    pub nodes: usize,
    /// Tokens of it that were kept.
    pub kept: usize,
    /// Time to draft, and to learn from what became of it.
    pub draft: Duration,
    /// Time of the target's pass.
    pub verify: Duration,
}

/// A text in the making, by speculation. The target runs on the processor unless said otherwise.
pub struct Speculation<P, E = CpuExecutor<PagedCache>> {
    executor: E,
    sequence: usize,
    /// Where candidates come from.
    pub proposer: P,
    sampler: Sampler,
    rule: Rule,
    depth: Depth,
    request: Request,
    /// The prompt and what has been generated; the cache holds all but the last token.
    context: Vec<u32>,
    finished: bool,
}

impl<P: Proposer> Speculation<P> {
    /// Runs the prompt but for its last token, which begins the first cycle; in a cache such as
    /// [`with_room_for_trees`](crate::with_room_for_trees) makes.
    ///
    /// # Errors
    /// An empty prompt, no tokens asked for, or more than the model's context; and whatever the model says.
    pub fn new(
        model: Arc<Model>,
        mut cache: PagedCache,
        proposer: P,
        sampler: Sampler,
        depth: Depth,
        request: Request,
    ) -> Result<Self> {
        let sequence = cache.open();
        Speculation::over(model, (cache, sequence), proposer, sampler, depth, request)
    }

    // ANCHOR: over
    /// The same over a sequence that holds the beginning of the prompt: it was found in a prefix cache, shared
    /// with another, or brought back from where it had to wait. The last of these needs
    /// [`Speculation::with_prompt_length`].
    ///
    /// # Errors
    /// If there is no such sequence, it holds more than all of the prompt but its last token, and as
    /// [`Speculation::new`].
    pub fn over(
        model: Arc<Model>,
        (cache, sequence): (PagedCache, usize),
        proposer: P,
        sampler: Sampler,
        depth: Depth,
        request: Request,
    ) -> Result<Self> {
        let executor = CpuExecutor { model, attention: cache };
        Speculation::on((executor, sequence), proposer, sampler, depth, request)
    }
}

impl<P: Proposer, E: CachedExecutor<Cache = PagedCache>> Speculation<P, E> {
    /// The same for a target on any device.
    ///
    /// # Errors
    /// As [`Speculation::over`].
    pub fn on(
        (mut executor, sequence): (E, usize),
        mut proposer: P,
        sampler: Sampler,
        depth: Depth,
        request: Request,
    ) -> Result<Self> {
        let Some((_, before)) = request.prompt.split_last() else {
            return Err(Error::invalid("prompt", "empty", "at least one token"));
        };
        if request.tokens == 0 {
            return Err(Error::invalid("number of tokens to generate", 0, "at least 1"));
        }
        // The last token that is generated is never fed back.
        let asked = request.prompt.len().saturating_add(request.tokens - 1);
        if asked > executor.context() {
            let what = "the model's context".into();
            return Err(Error::Capacity { what, capacity: executor.context(), asked });
        }
        executor.cache().tables(sequence)?; // one that is not there has no length either
        let held = executor.cache().len(sequence);
        let Some(rest) = before.get(held..) else {
            let expected = format!("at most {}, all of the prompt but its last", before.len());
            return Err(Error::invalid("tokens held of a prompt", held, expected));
        };
        if !rest.is_empty() {
            executor.execute(&Pass::one(Span::new(sequence, held, rest, proposer.wants())))?;
            proposer.read(&request.prompt, held);
        }
        let context = request.prompt.clone();
        let sampler = sampler.with_prompt_length(context.len());
        Ok(Speculation {
            executor,
            sequence,
            proposer,
            sampler,
            rule: accept,
            depth,
            request,
            context,
            finished: false,
        })
    }
    // ANCHOR_END: over

    /// The same of a text that goes on, of which only the first `tokens` are the prompt, as a sampler's penalties count what was
    /// generated. If nothing is said, all that was given is.
    pub fn with_prompt_length(self, tokens: usize) -> Self {
        Speculation { sampler: self.sampler.with_prompt_length(tokens), ..self }
    }

    /// The same with another rule of acceptance.
    pub fn with_rule(self, rule: Rule) -> Self {
        Speculation { rule, ..self }
    }

    /// The prompt and everything generated so far.
    pub fn context(&self) -> &[u32] {
        &self.context
    }

    // ANCHOR: cycle
    /// One cycle; none once the text is complete.
    ///
    /// # Errors
    /// Whatever the models or the sampler say. Text and cache are then as they were, and another cycle may go well.
    pub fn advance(&mut self) -> Result<Option<Cycle>> {
        if self.finished {
            return Ok(None);
        }
        let asked = self.asked();
        let began = Instant::now();
        let mut tree = self.proposer.propose(&self.context, asked, &mut self.sampler)?;
        let mut draft = began.elapsed();
        // What the model does not know, or the cache has no room for behind the text, is not run.
        tree.cut_unknown(self.executor.config().vocab_size);
        tree.truncate(self.executor.cache().capacity().saturating_sub(self.context.len()));

        let span = tree.span(self.sequence, &self.context)?;
        let start = span.start;
        let began = Instant::now();
        let logits = self.executor.execute(&Pass::one(span))?;
        let verify = began.elapsed();

        let accepted = (self.rule)(&mut self.sampler, &mut self.context, &tree, logits.view());
        let accepted = accepted.or_else(|error| self.roll_back(start, error))?;
        let (path, next) = (&accepted.path[..], accepted.next);
        let context = &self.context[..];
        let began = Instant::now();
        self.proposer.learn(&Verdict { context, tree: &tree, path, next, logits: logits.view() });
        draft += began.elapsed();

        // The text's last token and the path stay in the cache; the rest never was.
        let slots = std::iter::once(start).chain(path.iter().map(|node| start + 1 + node));
        let slots: Vec<usize> = slots.collect();
        let kept = self.executor.cache_mut().keep(self.sequence, start, &slots);
        kept.or_else(|error| self.roll_back(start, error))?;

        let kept = path.iter().map(|&node| tree.nodes()[node].token);
        let tokens = self.extend(kept.chain([next]).collect());
        let (proposed, nodes, kept) = (tree.depth(), tree.len(), path.len());
        if let Depth::Adaptive(adaptive) = &mut self.depth {
            let judged = tree.judged(path);
            let seen = Observation { asked, proposed, judged, nodes, kept, draft, verify };
            adaptive.observe(seen);
        }
        Ok(Some(Cycle { tokens, proposed, nodes, kept, draft, verify }))
    }
    // ANCHOR_END: cycle

    /// Lets go of a pass of which nothing has come: the next one begins where it did.
    fn roll_back<T>(&mut self, start: usize, error: Error) -> Result<T> {
        self.executor.cache_mut().truncate(self.sequence, start).and(Err(error))
    }

    /// How deep the next draft is to go: no deeper than the text may still grow.
    fn asked(&mut self) -> usize {
        let wanted = match &mut self.depth {
            Depth::Fixed(depth) => *depth,
            Depth::Adaptive(adaptive) => adaptive.depth(|depth| self.proposer.nodes(depth)),
        };
        let generated = self.context.len() - self.request.prompt.len();
        wanted.min(self.request.tokens - generated - 1)
    }

    /// Adds tokens to the text, as far as it goes; gives those that were added.
    fn extend(&mut self, mut tokens: Vec<u32>) -> Vec<u32> {
        let generated = self.context.len() - self.request.prompt.len();
        tokens.truncate(self.request.tokens - generated);
        let ends = |token: &u32| self.request.end_tokens.contains(token);
        if let Some(end) = tokens.iter().position(ends) {
            tokens.truncate(end + 1);
            self.finished = true;
        }
        self.context.extend_from_slice(&tokens);
        let generated = self.context.len() - self.request.prompt.len();
        self.finished |= generated >= self.request.tokens;
        tokens
    }
}

impl<P: Proposer, E: CachedExecutor<Cache = PagedCache>> Iterator for Speculation<P, E> {
    type Item = Result<Cycle>;

    fn next(&mut self) -> Option<Self::Item> {
        let cycle = self.advance();
        self.finished |= cycle.is_err();
        cycle.transpose()
    }
}

impl<P> Speculation<P> {
    /// The target's cache, to be used again, and the text's sequence in it.
    pub fn into_cache(self) -> (PagedCache, usize) {
        (self.executor.attention, self.sequence)
    }
}

impl<P, E: CachedExecutor<Cache = PagedCache>> Speculation<P, E> {
    /// Whether cache and text agree: the cache holds all of the text but its last token. `others` are the
    /// blocks that somebody else holds, as [`PagedCache::check_integrity`] has it.
    ///
    /// # Errors
    /// If they do not, or the cache's own invariants do not hold.
    pub fn check_integrity(&self, others: impl IntoIterator<Item = BlockId>) -> Result<()> {
        let cache = self.executor.cache();
        cache.check_integrity(others)?;
        let (held, expected) = (cache.len(self.sequence), self.context.len() - 1);
        // A text that ended early has some tokens behind its end in the cache.
        match held == expected || (self.finished && held > expected) {
            true => Ok(()),
            false => Err(Error::invalid("tokens in the cache", held, expected.to_string())),
        }
    }
}
