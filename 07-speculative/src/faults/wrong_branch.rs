//! One branch was kept, and the rows of another are in its place.

use super::TOKENS;
use super::scene::{BRANCHES, guessing, one_by_one};
use crate::cache::TreeCache;
use kv_cache::{KvCache, forward_kv_cache};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Attention, Decoder, Result, forward_attention};
use paged_cache::PagedCache;

/// A cache that is made shorter, and believes that all is done.
struct NotMoved {
    cache: PagedCache,
    side: Side,
}

impl TreeCache for NotMoved {
    // ANCHOR: fault
    /// The path that was kept moves up to where the text ends. On the broken side the cache is only cut to the
    /// right length: there lie the rows of whichever branch stood first.
    fn keep(&mut self, sequence: usize, start: usize, kept: &[usize]) -> Result<()> {
        match self.side {
            Side::Clean => TreeCache::keep(&mut self.cache, sequence, start, kept),
            Side::Broken => self.cache.truncate(sequence, start + kept.len()),
        }
    }
    // ANCHOR_END: fault
}

impl KvCache for NotMoved {
    forward_kv_cache!(cache: len capacity truncate bytes_per_token allocated_bytes);
}

impl Attention for NotMoved {
    forward_attention!(cache: begin attend commit);
}

/// A branch is kept, and the cache holds another's rows.
pub const WRONG_BRANCH: BreakIt = BreakIt {
    name: "wrong-branch",
    package: "speculative",
    cites: &["trymirai/lalamo#209"],
    symptom: "right as long as the first branch comes true; then the text remembers a word that it did not say",
    guard: "after guesses of several branches, logits are the naive loop's",
    weaker_test: Some(
        "after guesses of one branch, some of them refused, logits are the naive loop's",
    ),
    run: |bench| {
        let made =
            |side, branches| guessing(bench, branches, move |cache| NotMoved { cache, side });
        let decoder = |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(made(side, BRANCHES)?)) };
        let check = |bench: &Bench, decoder| one_by_one(bench, &bench.prompt, 1, decoder);
        Trial {
            about: &WRONG_BRANCH,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &|side| check(bench, made(side, BRANCHES)?),
            weaker_test: Some(&|side| check(bench, made(side, 1)?)),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};
