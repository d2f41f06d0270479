//! A decoder that guesses by looking words up, over some cache.

use crate::GuessingDecoder;
use crate::cache::{TreeCache, with_room_for_trees};
use crate::proposers::PromptLookup;
use naive_decode::break_it::{Bench, same_logits};
use naive_decode::{CpuExecutor, Decoder, Result, Settings};
use paged_cache::PagedCache;

/// Tokens that it guesses ahead.
const DEPTH: usize = 4;

/// Branches of a guess, where there are to be several.
pub(super) const BRANCHES: usize = 4;

pub(super) type Guessing<C> = GuessingDecoder<PromptLookup, CpuExecutor<C>>;

/// A decoder that puts at most so many branches into a guess, over whatever `cache` makes of a paged one.
pub(super) fn guessing<C: TreeCache>(
    bench: &Bench,
    branches: usize,
    cache: impl FnOnce(PagedCache) -> C,
) -> Result<Guessing<C>> {
    let mut paged = with_room_for_trees(&bench.model, bench.model.context())?;
    let sequence = paged.open();
    let settings = Settings { capacity: bench.model.context(), prefill_chunk: None, threads: None };
    let proposer = PromptLookup::new().with_branches(branches);
    let model = bench.model.clone();
    GuessingDecoder::over(model, (cache(paged), sequence), settings, proposer, DEPTH)
}

/// Feeds a text, from token `first` on one by one, and holds the last logits against the naive loop's.
pub(super) fn one_by_one(
    bench: &Bench,
    text: &[u32],
    first: usize,
    mut decoder: impl Decoder,
) -> Result<()> {
    let mut found = decoder.feed(&text[..first])?;
    for token in text[first..].chunks(1) {
        found = decoder.feed(token)?;
    }
    let expected = bench.naive_logits(text)?;
    same_logits("logits after the text", &found, &expected, "as the naive loop has it")
}

/// Some tokens of the prompt, no two alike.
fn stretch(bench: &Bench) -> Vec<u32> {
    let mut tokens: Vec<u32> = Vec::new();
    for &token in &bench.prompt {
        if tokens.len() < 24 && !tokens.contains(&token) {
            tokens.push(token);
        }
    }
    tokens
}

/// A text that says the same twice, and how much of it may be fed at once: from there on, every guess comes
/// true, and `after` tokens later one has been kept whole.
pub(super) fn said_twice(bench: &Bench) -> (Vec<u32>, usize, usize) {
    let stretch = stretch(bench);
    let first = stretch.len() + 2;
    (stretch.repeat(2), first, DEPTH)
}
