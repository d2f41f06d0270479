//! One model under one load.

use crate::packed::{Came, PackedModel};
use flash_attention::threads::Pool;
use flash_attention::tile_attention::KvType;
use kv_cache::KvCache;
use naive_decode::{Attention, Model, Pass, Result, Span, Want};
use paged_cache::{PagedCache, Room};
use serde::{Serialize, Serializer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens of a block.
const BLOCK: usize = 16;

/// Rows of a pass of prompts: short ones share it. A longer prompt has a pass for itself.
const ROWS: usize = 512;

/// How much goes through the model in one sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) kv: KvType,
    pub(super) prefill: usize,
    pub(super) decode: usize,
    pub(super) depth: usize,
    pub(super) batch: usize,
}

impl Load {
    /// Tokens that one sequence grows to, the longer of its two.
    pub(super) fn tokens(&self) -> usize {
        self.prefill.max(self.depth + self.decode).max(1)
    }

    /// Blocks for the load, whose memory is the process's own from the second sample on, as a server's is.
    pub(super) fn cache(&self, model: &Model, pool: &Arc<Pool>) -> Result<PagedCache> {
        let block = |tokens: usize| tokens.next_multiple_of(BLOCK);
        let tokens = self.batch * block(self.prefill).max(block(self.depth + self.decode));
        let room = Room { kept: self.kv, ..Room::for_tokens(model, tokens)? };
        let mut cache = PagedCache::new(model, room)?.on_threads(pool.clone());
        (0..self.batch).for_each(|_| {
            cache.open();
        });
        Ok(cache)
    }
}

/// A model's samples under one load.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    /// Formats of the matrices, the most common first.
    pub(super) weights: String,
    /// What keys and values are kept as.
    #[serde(serialize_with = "name")]
    kv: KvType,
    /// Whether sums are in the order that all rungs keep ("exact"), or some in BF16's faster one ("fast").
    mode: &'static str,
    threads: usize,
    prefill: usize,
    decode: usize,
    depth: usize,
    pub(super) batch: usize,
    pub(super) prefill_tokens_per_second: Vec<f64>,
    pub(super) decode_tokens_per_second: Vec<f64>,
    /// Bytes of weights that a token reads.
    pub(super) weight_bytes: usize,
    /// Bytes of keys and values that one token leaves, and that every later token of its text reads.
    pub(super) kv_bytes_per_token: usize,
    /// Most memory that the process has had so far, where the system says so.
    pub(super) peak_bytes: Option<u64>,
    pub(super) load_ms: f64,
    /// Whether what was loaded had been packed before.
    pub(super) came: Came,
}

impl Run {
    /// No samples yet.
    pub(super) fn new(
        loaded: &PackedModel,
        load: Load,
        threads: usize,
        cache: &PagedCache,
    ) -> Self {
        let is_fast =
            load.kv == KvType::Bf16Fast || loaded.packed.iter().any(|entry| entry.format.is_fast());
        Run {
            weights: loaded.weights(),
            kv: load.kv,
            mode: if is_fast { "fast" } else { "exact" },
            threads,
            prefill: load.prefill,
            decode: load.decode,
            depth: load.depth,
            batch: load.batch,
            prefill_tokens_per_second: Vec::new(),
            decode_tokens_per_second: Vec::new(),
            weight_bytes: loaded.model.weight_bytes(),
            kv_bytes_per_token: cache.layout().bytes_per_token(),
            peak_bytes: None,
            load_ms: 0.0,
            came: loaded.came,
        }
    }

    /// Bytes that a pass of decoding reads on average: all weights once, and each text's keys and values.
    pub(super) fn bytes_per_pass(&self) -> f64 {
        let held = self.depth as f64 + self.decode as f64 / 2.0;
        self.weight_bytes as f64 + self.kv_bytes_per_token as f64 * self.batch as f64 * held
    }

    /// One sample of prefill, one of decode, each of texts that begin.
    pub(super) fn sample(&mut self, model: &Model, cache: &mut PagedCache) -> Result<()> {
        if self.prefill > 0 {
            let mut time = Duration::ZERO;
            for next in prompts(self.batch, self.prefill, ROWS.max(self.prefill), Want::Last) {
                time += timed(model, cache, &next)?;
            }
            let tokens = (self.prefill * self.batch) as f64;
            self.prefill_tokens_per_second.push(tokens / time.as_secs_f64());
            (0..self.batch).try_for_each(|sequence| cache.reset(sequence))?;
        }
        if self.decode > 0 {
            if self.depth > 0 {
                for next in prompts(self.batch, self.depth, ROWS, Want::Nothing) {
                    timed(model, cache, &next)?;
                }
            }
            let mut time = Duration::ZERO;
            for step in 0..self.decode {
                let next = pass(self.batch, self.depth + step, 1, Want::Last);
                time += timed(model, cache, &next)?;
            }
            let tokens = (self.decode * self.batch) as f64;
            self.decode_tokens_per_second.push(tokens / time.as_secs_f64());
            (0..self.batch).try_for_each(|sequence| cache.reset(sequence))?;
        }
        Ok(())
    }
}

fn name<S: Serializer>(kv: &KvType, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(kv)
}

fn timed(model: &Model, cache: &mut dyn Attention, pass: &Pass) -> Result<Duration> {
    let began = Instant::now();
    std::hint::black_box(model.forward(pass, cache)?);
    Ok(began.elapsed())
}

/// `rows` tokens for each sequence, after `start` earlier ones.
pub(super) fn pass(sequences: usize, start: usize, rows: usize, want: Want) -> Pass {
    Pass { spans: (0..sequences).map(|sequence| span(sequence, start, rows, want)).collect() }
}

/// The passes that read a prompt of `tokens` for each sequence, as many rows at a time as `rows` says: a prompt that does
/// not fit any more goes on in the next pass. `want` is what the last token of each is for.
pub(super) fn prompts(sequences: usize, tokens: usize, rows: usize, want: Want) -> Vec<Pass> {
    let mut passes = Vec::new();
    let (mut spans, mut free) = (Vec::new(), rows);
    for sequence in 0..sequences {
        let mut start = 0;
        while start < tokens {
            let taken = free.min(tokens - start);
            let wanted = if start + taken == tokens { want } else { Want::Nothing };
            spans.push(span(sequence, start, taken, wanted));
            start += taken;
            free -= taken;
            if free == 0 {
                passes.push(Pass { spans: std::mem::take(&mut spans) });
                free = rows;
            }
        }
    }
    if !spans.is_empty() {
        passes.push(Pass { spans });
    }
    passes
}

/// `rows` tokens of a sequence, after `start` earlier ones. Which tokens is all one to the clock.
fn span(sequence: usize, start: usize, rows: usize, want: Want) -> Span {
    let token = |slot: usize| ((sequence * 31 + slot) * 37 % 250 + 3) as u32;
    let tokens: Vec<u32> = (start..start + rows).map(token).collect();
    Span::new(sequence, start, &tokens, want)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each span of each pass: its sequence, its first slot, its rows, and whether logits are wanted.
    fn spans(passes: &[Pass]) -> Vec<Vec<(usize, usize, usize, bool)>> {
        let of = |span: &Span| {
            (span.sequence, span.start, span.tokens.len(), span.want != Want::Nothing)
        };
        passes.iter().map(|pass| pass.spans.iter().map(of).collect()).collect()
    }

    #[test]
    fn short_prompts_share_a_pass_and_long_ones_go_on_in_the_next() {
        let found = spans(&prompts(3, 4, 10, Want::Last));
        let first = vec![(0, 0, 4, true), (1, 0, 4, true), (2, 0, 2, false)];
        assert_eq!(found, [first, vec![(2, 2, 2, true)]]);
        let found = spans(&prompts(1, 7, 3, Want::Last));
        assert_eq!(found, [[(0, 0, 3, false)], [(0, 3, 3, false)], [(0, 6, 1, true)]]);
        let found = spans(&prompts(2, 5, 5, Want::Nothing));
        assert_eq!(found, [[(0, 0, 5, false)], [(1, 0, 5, false)]]);
        assert!(prompts(2, 0, 5, Want::Last).is_empty());
    }

    #[test]
    fn a_token_does_not_depend_on_the_pass_that_brings_it() {
        let tokens = |rows| -> Vec<u32> {
            let passes = prompts(2, 9, rows, Want::Last);
            passes.into_iter().flat_map(|pass| pass.spans).flat_map(|span| span.tokens).collect()
        };
        assert_eq!(tokens(4), tokens(18));
    }
}
