//! A cache of blocks that believes what a hash says.

use super::TOKENS;
use super::scene::{AnyCache, Sharing, answers_as_if_alone, pool, serve};
use crate::{Evicted, Prefix, PrefixCache, Salt, Statistics};
use naive_decode::break_it::{Bench, BreakIt, Report, Side, Trial};
use naive_decode::{Decoder, Result};
use paged_cache::{BlockId, Blocks};
use std::collections::HashMap;

/// Blocks by a number. What that number is made from is the fault.
pub(super) struct Trusting {
    block_tokens: usize,
    /// A block's number from its own tokens and the number of the block before.
    number: fn(before: u64, tokens: &[u32]) -> u64,
    known: HashMap<u64, BlockId>,
}

impl Trusting {
    pub(super) fn new(block_tokens: usize, number: fn(u64, &[u32]) -> u64) -> Self {
        Trusting { block_tokens, number, known: HashMap::new() }
    }

    /// The numbers of a text's whole blocks.
    fn numbers<'a>(&'a self, tokens: &'a [u32]) -> impl Iterator<Item = u64> + 'a {
        tokens.chunks_exact(self.block_tokens).scan(0, |before, tokens| {
            *before = (self.number)(*before, tokens);
            Some(*before)
        })
    }
}

impl PrefixCache for Trusting {
    fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    fn longest(&mut self, _: Salt, tokens: &[u32], most: usize, blocks: &mut Blocks) -> Prefix {
        let numbers = self.numbers(&tokens[..most]);
        let found: Vec<BlockId> =
            numbers.map_while(|number| self.known.get(&number).copied()).collect();
        found.iter().for_each(|&block| blocks.share(block));
        Prefix { tokens: found.len() * self.block_tokens, blocks: found }
    }

    fn keep(&mut self, _: Salt, tokens: &[u32], table: &[BlockId], blocks: &mut Blocks) -> usize {
        let numbers: Vec<u64> = self.numbers(tokens).collect();
        let before = self.known.len();
        for (number, &block) in numbers.into_iter().zip(table) {
            self.known.entry(number).or_insert_with(|| {
                blocks.share(block);
                block
            });
        }
        self.known.len() - before
    }

    /// Nothing is ever let go of: the pools of these break-its are large enough.
    fn evict(&mut self, _: usize, _: &mut Blocks, _: &mut dyn FnMut(Evicted)) -> usize {
        0
    }

    fn held(&self) -> Vec<BlockId> {
        self.known.values().copied().collect()
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn check_integrity(&self, _: &Blocks) -> Result<()> {
        Ok(())
    }
}

/// A request after another one, which `other` makes of its prompt so that the broken cache takes the one for the other. Asked
/// twice, a prompt is what the cache says it is: that shows nothing.
pub(super) fn after_another(
    bench: &Bench,
    about: &'static BreakIt,
    cache: fn(Side) -> Result<AnyCache>,
    other: fn(&[u32]) -> Vec<u32>,
) -> Result<Report> {
    let after = |side, other: fn(&[u32]) -> Vec<u32>| -> Result<Sharing> {
        let pool = pool(&bench.model, 3 * bench.model.context(), cache(side)?)?;
        Ok(Sharing::new(pool, move |pool, prompt| serve(pool, &other(prompt))))
    };
    let alone = |decoder| answers_as_if_alone(bench, &bench.prompt, decoder);
    Trial {
        about,
        tokens: TOKENS,
        decoder: &|side| -> Result<Box<dyn Decoder>> { Ok(Box::new(after(side, other)?)) },
        guard: &|side| alone(after(side, other)?),
        weaker_test: Some(&|side| alone(after(side, |prompt| prompt.to_vec())?)),
        recall: None,
    }
    .run_until_it_shows(bench)
}
