//! A token was refused, and its keys and values stay.

use super::TOKENS;
use super::scene::{guessing, one_by_one, said_twice};
use crate::cache::TreeCache;
use kv_cache::KvCache;
use naive_decode::break_it::{BreakIt, Side, Trial};
use naive_decode::{Attention, Decoder, Error, LayerSpec, Pass, Result};
use ndarray::{Array3, ArrayView3};
use paged_cache::PagedCache;

/// A cache whose rollback is one row short.
struct OneTooMany {
    cache: PagedCache,
    side: Side,
    /// Rows of refused tokens that are still there. Everybody above believes that they are not.
    left: usize,
}

impl OneTooMany {
    /// What really happens: new rows come behind those that were left, and see them.
    fn behind_what_was_left(&self, pass: &Pass) -> Pass {
        let mut pass = pass.clone();
        for span in &mut pass.spans {
            span.start += self.left;
            for sees in &mut span.sees {
                sees.range.end += self.left;
                sees.also.iter_mut().for_each(|slot| *slot += self.left);
            }
        }
        pass
    }
}

impl TreeCache for OneTooMany {
    // ANCHOR: fault
    /// Of a draft of `k` tokens, `n` were kept. So `k - n` rows are to go; on the broken side, `k - n - 1` do.
    /// The row that stays is that of the token that was refused.
    fn keep(&mut self, sequence: usize, start: usize, kept: &[usize]) -> Result<()> {
        let start = start + self.left;
        let mut kept: Vec<usize> = kept.iter().map(|slot| slot + self.left).collect();
        let refused = start + kept.len();
        if self.side == Side::Broken && refused < self.cache.len(sequence) {
            kept.push(refused);
            self.left += 1;
        }
        TreeCache::keep(&mut self.cache, sequence, start, &kept)
    }
    // ANCHOR_END: fault
}

impl KvCache for OneTooMany {
    fn len(&self, sequence: usize) -> usize {
        self.cache.len(sequence) - self.left
    }

    fn capacity(&self) -> usize {
        self.cache.capacity()
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.cache.truncate(sequence, length + self.left)
    }

    fn bytes_per_token(&self) -> usize {
        self.cache.bytes_per_token()
    }

    fn allocated_bytes(&self) -> usize {
        self.cache.allocated_bytes()
    }
}

impl Attention for OneTooMany {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.cache.begin(&self.behind_what_was_left(pass))
    }

    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        self.cache.attend(layer, &self.behind_what_was_left(pass), q, k, v)
    }

    fn commit(&mut self, pass: &Pass) {
        self.cache.commit(&self.behind_what_was_left(pass));
    }
}

/// A refused token's keys and values stay in the cache.
pub const REJECTED_KEPT: BreakIt = BreakIt {
    name: "rejected-kept",
    package: "speculative",
    cites: &["openvinotoolkit/openvino.genai#4190", "ml-explore/mlx-lm#1109"],
    symptom: "as long as guesses come true, nothing; each one that does not leaves a word that nobody said",
    guard: "after guesses were refused, the cache holds as many rows as the text has tokens",
    weaker_test: Some("a text whose guesses all come true has the naive loop's logits"),
    run: |bench| {
        let cache = |side| move |cache| OneTooMany { cache, side, left: 0 };
        let decoder =
            |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(guessing(bench, 1, cache(side))?)) };
        let guard = |side| {
            let mut decoder = guessing(bench, 1, cache(side))?;
            bench.prompt.chunks(1).try_for_each(|token| decoder.feed(token).map(drop))?;
            decoder.settle()?;
            let (held, text) =
                (decoder.executor.attention.cache.len(decoder.sequence), decoder.text.len());
            match held == text {
                true => Ok(()),
                false => {
                    Err(Error::invalid("rows in the cache", held, format!("{text}, a token each")))
                }
            }
        };
        let weaker = |side| {
            let (text, first, _) = said_twice(bench);
            one_by_one(bench, &text, first, guessing(bench, 1, cache(side))?)
        };
        Trial {
            about: &REJECTED_KEPT,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};
