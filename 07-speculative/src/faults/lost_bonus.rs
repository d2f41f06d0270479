//! All of a draft was kept, and nobody draws the token after it.

use super::TOKENS;
use super::scene::{Guessing, guessing, one_by_one, said_twice};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Decoder, Result};
use paged_cache::PagedCache;

/// A decoder that forgets the logits after the last token of a draft.
struct NoBonus {
    inner: Guessing<PagedCache>,
    side: Side,
}

impl Decoder for NoBonus {
    // ANCHOR: fault
    /// A pass over a draft of `k` tokens gives logits after each of them, and before the first: `k + 1` tokens can
    /// come of it. The broken side takes `k`. Then it has no new token to begin the next pass with, so it begins
    /// with the last of the text, as a loop without a cache may; but that is in the cache already.
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let inner = &mut self.inner;
        match *tokens {
            [token] if self.side == Side::Broken && inner.completes_guess(token) => {
                inner.guessed(token); // it was right, and is kept
                inner.settle()?;
                inner.text.push(token);
                let logits = inner.run(token)?;
                inner.text.push(token);
                Ok(logits)
            }
            _ => inner.feed(tokens),
        }
    }
    // ANCHOR_END: fault

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.inner.kv_bytes_per_token()
    }
}

/// The bonus token is never drawn.
pub const LOST_BONUS: BreakIt = BreakIt {
    name: "lost-bonus",
    package: "speculative",
    cites: &[
        "inference lesson, speculative_step",
        "vllm-project/vllm#4212",
        "vllm-project/vllm#9730",
    ],
    symptom: "the better the draft, the worse: after each draft that is kept whole, its last word stands in the cache twice",
    guard: "after a draft that was kept whole, logits are the naive loop's",
    weaker_test: Some(
        "after a draft that was kept but for its last token, logits are the naive loop's",
    ),
    run: |bench| {
        let made = |side| -> Result<NoBonus> {
            Ok(NoBonus { inner: guessing(bench, 1, |cache| cache)?, side })
        };
        let decoder = |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(made(side)?)) };
        let guard = |side| begun(bench, made(side)?, 0);
        let weaker = |side| begun(bench, made(side)?, 1);
        Trial {
            about: &LOST_BONUS,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// A text that says the same twice, up to where its first draft has been kept but for `but` tokens.
fn begun(bench: &Bench, decoder: NoBonus, but: usize) -> Result<()> {
    let (text, first, draft) = said_twice(bench);
    // The last token that is fed with the others brings the draft.
    one_by_one(bench, &text[..first + draft - but], first, decoder)
}
