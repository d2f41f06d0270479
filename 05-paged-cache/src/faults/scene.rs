//! One sequence in a pool, and what happens beside it.

use crate::blocks::BlockId;
use crate::paged_cache::{PagedCache, Room};
use kv_cache::KvCache;
use naive_decode::break_it::Bench;
use naive_decode::{CpuExecutor, Decoder, Error, Executor, Model, Pass, Result, Span, Want};
use std::sync::Arc;

/// A pool with the sequence that is decoded.
pub(super) struct Scene {
    pub(super) executor: CpuExecutor<PagedCache>,
    /// The sequence that is decoded.
    pub(super) sequence: usize,
    /// Its tokens so far.
    pub(super) text: Vec<u32>,
}

impl Scene {
    /// An empty sequence in a pool for three as long as the model can take.
    pub(super) fn new(model: &Arc<Model>) -> Result<Self> {
        let room = Room::for_tokens(model, 3 * model.context())?;
        let mut cache = PagedCache::new(model, room)?;
        let sequence = cache.open();
        let executor = CpuExecutor { model: Arc::clone(model), attention: cache };
        Ok(Scene { executor, sequence, text: Vec::new() })
    }

    pub(super) fn cache(&mut self) -> &mut PagedCache {
        &mut self.executor.attention
    }

    /// Runs more tokens of the sequence that is decoded, and gives the last one's logits.
    pub(super) fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.text.extend_from_slice(tokens);
        self.run(self.sequence, tokens)
    }

    /// Runs tokens of some sequence, and gives the last one's logits.
    pub(super) fn run(&mut self, sequence: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        let start = self.cache().len(sequence);
        let pass = Pass::one(Span::new(sequence, start, tokens, Want::Last));
        Ok(self.executor.execute(&pass)?.into_iter().collect())
    }

    /// The bytes of every block that the sequence holds, in order.
    pub(super) fn bytes(&mut self) -> Result<Vec<Vec<u8>>> {
        let sequence = self.sequence;
        let held: Vec<BlockId> = self.cache().tables(sequence)?.held().collect();
        let (_, memory) = self.cache().parts();
        let bytes = |block| {
            let mut bytes = Vec::new();
            memory.copy_out(block, &mut bytes)?;
            Ok(bytes)
        };
        held.into_iter().map(bytes).collect()
    }
}

/// Another user's prompt.
pub(super) fn other_prompt(bench: &Bench) -> Result<Vec<u32>> {
    let world = Bench::world(1, 5, 2);
    bench.tokenizer.encode(&(world.prompt().to_owned() + &world.question(0)))
}

/// A decoder of a scene's sequence, beside which something happens once.
pub(super) struct Beside<F> {
    scene: Scene,
    calls: usize,
    /// Whether it happens before this call, by number, after this many tokens.
    due: fn(call: usize, tokens: usize) -> bool,
    /// None once it has happened.
    event: Option<F>,
}

/// A decoder over a fresh scene, beside which `event` happens once, before the first call that is `due`.
pub(super) fn beside(
    model: &Arc<Model>,
    due: fn(call: usize, tokens: usize) -> bool,
    event: impl FnOnce(&mut Scene) -> Result<()> + 'static,
) -> Result<Box<dyn Decoder>> {
    Ok(Box::new(Beside { scene: Scene::new(model)?, calls: 0, due, event: Some(event) }))
}

impl<F: FnOnce(&mut Scene) -> Result<()>> Decoder for Beside<F> {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::invalid("tokens to feed", "none", "at least one"));
        }
        if (self.due)(self.calls, self.scene.text.len())
            && let Some(event) = self.event.take()
        {
            event(&mut self.scene)?;
        }
        self.calls += 1;
        self.scene.feed(tokens)
    }

    fn capacity(&self) -> usize {
        self.scene.executor.model.context()
    }

    fn rows(&self) -> usize {
        self.scene.text.len()
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.scene.executor.attention.bytes_per_token()
    }
}
