//! More requests than the pool has room for.
//!
//! Blocks are taken as texts grow, so nobody knows beforehand how many requests will fit: the pool is filled
//! with whoever comes first, and when it runs out somebody has to wait. The youngest gives up its blocks and
//! goes to the head of the queue. Later it is brought back from a tier, or computed again: a prefill of what
//! it had been asked and had answered. Either way it goes on with the same tokens. Where a tier fails, it is
//! computed again.
//!
//! This is the least that shows preemption to change no token. Rung 08 has a scheduler.

use crate::offload::Tier;
use crate::paged_cache::PagedCache;
use crate::parking::Parked;
use kv_cache::KvCache;
use naive_decode::{
    CpuExecutor, Error, Executor, Model, Pass, Request, Result, Span, Want, argmax,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// What happens to the blocks of a request that has to wait.
pub enum Preemption {
    /// They are given up, and computed again.
    Recompute,
    /// They are kept elsewhere, and brought back.
    Swap(Box<dyn Tier>),
}

/// What came of a crowd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Tokens generated for each request, in the order in which they were given.
    pub outputs: Vec<Vec<u32>>,
    /// How often somebody had to wait.
    pub preemptions: usize,
    /// Rows that went through the model.
    pub rows: usize,
    /// Most sequences that were in the pool at once.
    pub most_at_once: usize,
}

/// Requests that share a pool.
pub struct Crowd {
    executor: CpuExecutor<PagedCache>,
    preemption: Preemption,
    waiting: VecDeque<Member>,
    /// The oldest first.
    running: Vec<(usize, Member)>,
    outcome: Outcome,
}

/// A request on its way.
struct Member {
    number: usize,
    request: Request,
    /// The prompt and what has been generated.
    context: Vec<u32>,
    parked: Option<Parked>,
}

impl Crowd {
    /// Requests for a model and its empty cache.
    ///
    /// # Errors
    /// If the cache is not empty, or a request asks for nothing, or for more than the whole pool or one sequence can hold.
    pub fn new(
        model: Arc<Model>,
        cache: PagedCache,
        requests: Vec<Request>,
        preemption: Preemption,
    ) -> Result<Self> {
        // Nobody here would ever give them back, and a request might wait for them for ever.
        let used = cache.blocks().used();
        if used > 0 {
            let expected = "0: an empty cache for the crowd";
            return Err(Error::invalid("blocks of the cache in use", used, expected));
        }
        for (number, request) in requests.iter().enumerate() {
            check(&cache, &model, number, request)?;
        }
        let outputs = vec![Vec::new(); requests.len()];
        let member = |(number, request): (usize, Request)| {
            let context = request.prompt.clone();
            Member { number, request, context, parked: None }
        };
        Ok(Crowd {
            executor: CpuExecutor { model, attention: cache },
            preemption,
            waiting: requests.into_iter().enumerate().map(member).collect(),
            running: Vec::new(),
            outcome: Outcome { outputs, ..Outcome::default() },
        })
    }

    /// The cache, to look at.
    pub fn cache(&self) -> &PagedCache {
        &self.executor.attention
    }

    /// Whether every request has been answered.
    pub fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Runs until every request has been answered.
    ///
    /// # Errors
    /// Whatever goes wrong with the model.
    pub fn run(mut self) -> Result<(Outcome, PagedCache)> {
        while !self.is_finished() {
            self.step()?;
        }
        Ok((self.outcome, self.executor.attention))
    }

    // ANCHOR: step
    /// One pass: whoever fits comes in, and everyone inside gets a token.
    ///
    /// # Errors
    /// Whatever goes wrong with the model.
    pub fn step(&mut self) -> Result<()> {
        self.admit()?;
        let mut pass = self.pass();
        while self.cache().blocks_needed(&pass)? > self.cache().blocks().free() {
            self.preempt()?;
            pass = self.pass();
        }
        let logits = self.executor.execute(&pass)?;
        self.outcome.rows += pass.rows();
        self.outcome.most_at_once = self.outcome.most_at_once.max(self.running.len());
        for ((_, member), logits) in self.running.iter_mut().zip(logits.outer_iter()) {
            member.context.push(argmax(&logits.to_vec())?);
        }
        self.let_go()
    }
    // ANCHOR_END: step

    /// Everyone inside with the tokens that have not been through the model.
    fn pass(&self) -> Pass {
        let span = |(sequence, member): &(usize, Member)| {
            let held = self.cache().len(*sequence);
            Span::new(*sequence, held, &member.context[held..], Want::Last)
        };
        Pass { spans: self.running.iter().map(span).collect() }
    }

    // ANCHOR: admit
    /// Lets in who waits, in order, while there are blocks for what they bring, and one more for each of
    /// those who are inside: or the next step would throw somebody out again.
    fn admit(&mut self) -> Result<()> {
        while let Some(member) = self.waiting.front() {
            let layout = self.cache().layout();
            let groups = layout.groups().len();
            let needed = layout.blocks_for(member.context.len()) * groups;
            let spare = self.running.len() * groups;
            if !self.running.is_empty() && needed + spare > self.free_after_pass()? {
                break;
            }
            let mut member = self.waiting.pop_front().expect("it is there");
            let cache = &mut self.executor.attention;
            let sequence = match (member.parked.take(), &mut self.preemption) {
                // What a tier fails to give back is computed again.
                (Some(parked), Preemption::Swap(tier)) => {
                    let sequence = cache.unpark(&parked, &mut **tier);
                    // What has come back is not to push out what still waits. What cannot be forgotten goes when it is the oldest.
                    let waiting = self.waiting.iter().filter_map(|other| other.parked.as_ref());
                    let _ = parked.forget(waiting, &mut **tier);
                    sequence.unwrap_or_else(|_| cache.open())
                }
                _ => cache.open(),
            };
            self.running.push((sequence, member));
        }
        Ok(())
    }
    // ANCHOR_END: admit

    /// Blocks that are free once those inside have had theirs for the next pass.
    fn free_after_pass(&self) -> Result<usize> {
        let needed = self.cache().blocks_needed(&self.pass())?;
        Ok(self.cache().blocks().free().saturating_sub(needed))
    }

    // ANCHOR: preempt
    /// Sends the youngest back to the head of the queue.
    fn preempt(&mut self) -> Result<()> {
        let (sequence, mut member) = self.running.pop().expect("one alone always fits");
        let cache = &mut self.executor.attention;
        match &mut self.preemption {
            // One that has just come in has nothing to keep.
            Preemption::Swap(tier) if cache.len(sequence) > 0 => {
                member.parked = cache.park(sequence, &mut **tier).ok();
            }
            _ => {}
        }
        // What a tier fails to take is given up, and computed again.
        if member.parked.is_none() {
            cache.close(sequence)?;
        }
        self.waiting.push_front(member);
        self.outcome.preemptions += 1;
        Ok(())
    }
    // ANCHOR_END: preempt

    /// Lets those go who have what they asked for.
    fn let_go(&mut self) -> Result<()> {
        let (finished, running) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|(_, member)| member.is_finished());
        self.running = running;
        let finished: Vec<(usize, Member)> = finished;
        for (sequence, member) in finished {
            self.executor.attention.close(sequence)?;
            let Member { number, request, mut context, .. } = member;
            self.outcome.outputs[number] = context.split_off(request.prompt.len());
        }
        Ok(())
    }
}

impl Member {
    fn is_finished(&self) -> bool {
        let generated = &self.context[self.request.prompt.len()..];
        generated.len() >= self.request.tokens
            || generated.last().is_some_and(|last| self.request.end_tokens.contains(last))
    }
}

/// Refuses what could never be answered.
fn check(cache: &PagedCache, model: &Model, number: usize, request: &Request) -> Result<()> {
    let what = |what: &str| format!("{what} of request {number}");
    if request.prompt.is_empty() {
        return Err(Error::invalid(what("prompt"), "empty", "at least one token"));
    }
    if request.tokens == 0 {
        return Err(Error::invalid(what("number of tokens"), 0, "at least 1"));
    }
    // The last token that is generated is never fed back.
    let asked = request.prompt.len().saturating_add(request.tokens - 1);
    let (layout, blocks) = (cache.layout(), cache.blocks().count());
    let in_pool = blocks / layout.groups().len() * layout.tokens();
    for (place, capacity) in [
        ("the model's context", model.context()),
        ("a sequence of the cache", cache.capacity()),
        ("the pool", in_pool),
    ] {
        if asked > capacity {
            let what = format!("{place}, for request {number},");
            return Err(Error::Capacity { what, capacity, asked });
        }
    }
    Ok(())
}
