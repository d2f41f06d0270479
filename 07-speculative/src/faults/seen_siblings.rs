//! A tree that is masked like a text: whatever stands before is seen.

use super::TOKENS;
use super::scene::{BRANCHES, guessing, one_by_one};
use crate::cache::TreeCache;
use kv_cache::{KvCache, forward_kv_cache};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Attention, Decoder, LayerSpec, Pass, Result, Visible, forward_attention};
use ndarray::{Array3, ArrayView3};
use paged_cache::PagedCache;

/// A cache whose attention knows causal masks only.
struct Causal {
    cache: PagedCache,
    side: Side,
}

impl TreeCache for Causal {
    fn keep(&mut self, sequence: usize, start: usize, kept: &[usize]) -> Result<()> {
        TreeCache::keep(&mut self.cache, sequence, start, kept)
    }
}

impl KvCache for Causal {
    forward_kv_cache!(cache: len capacity truncate bytes_per_token allocated_bytes);
}

impl Attention for Causal {
    forward_attention!(cache: begin commit);

    // ANCHOR: fault
    /// On the broken side each row sees every slot up to its own, as in a text. In a tree, some of those are
    /// other branches.
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let mut pass = pass.clone();
        if self.side == Side::Broken {
            for span in &mut pass.spans {
                for (slot, sees) in (span.start..).zip(&mut span.sees) {
                    *sees = Visible::until(slot + 1);
                }
            }
        }
        self.cache.attend(layer, &pass, q, k, v)
    }
    // ANCHOR_END: fault
}

/// Branches of a draft tree see each other.
pub const SEEN_SIBLINGS: BreakIt = BreakIt {
    name: "seen-siblings",
    package: "speculative",
    cites: &["PaddlePaddle/FastDeploy#3514"],
    symptom: "with chains, nothing; with trees, a branch reads what its siblings say, and is judged by it",
    guard: "after guesses of several branches, logits are the naive loop's",
    weaker_test: Some("after guesses of one branch, logits are the naive loop's"),
    run: |bench| {
        let made = |side, branches| guessing(bench, branches, move |cache| Causal { cache, side });
        let decoder = |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(made(side, BRANCHES)?)) };
        let check = |bench: &Bench, decoder| one_by_one(bench, &bench.prompt, 1, decoder);
        Trial {
            about: &SEEN_SIBLINGS,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &|side| check(bench, made(side, BRANCHES)?),
            weaker_test: Some(&|side| check(bench, made(side, 1)?)),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};
