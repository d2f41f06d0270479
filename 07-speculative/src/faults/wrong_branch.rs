//! One branch was kept, and the rows of another are in its place.

use super::TOKENS;
use super::scene::{BRANCHES, guessing, one_by_one};
use crate::cache::TreeCache;
use kv_cache::KvCache;
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Attention, Decoder, LayerSpec, Pass, Result};
use ndarray::{Array3, ArrayView3};
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
    fn len(&self, sequence: usize) -> usize {
        self.cache.len(sequence)
    }

    fn capacity(&self) -> usize {
        self.cache.capacity()
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.cache.truncate(sequence, length)
    }

    fn bytes_per_token(&self) -> usize {
        self.cache.bytes_per_token()
    }

    fn allocated_bytes(&self) -> usize {
        self.cache.allocated_bytes()
    }
}

impl Attention for NotMoved {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.cache.begin(pass)
    }

    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        self.cache.attend(layer, pass, q, k, v)
    }

    fn commit(&mut self, pass: &Pass) {
        self.cache.commit(pass);
    }
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
