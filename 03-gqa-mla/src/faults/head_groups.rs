//! Query heads dealt out to key-value heads in turn, instead of group by group.

use super::TOKENS;
use crate::heads;
use kv_cache::faults::Stepper;
use kv_cache::{Cached, ContiguousStore, KvShape};
use naive_decode::break_it::{BreakIt, Side, Trial, same_logits};
use naive_decode::{
    Attention, Config, CpuExecutor, Decoder, Executor, LayerSpec, LoadOptions, Model,
    NaiveAttention, NaiveDecoder, Pass, Result, dense, forward_attention, random_tensors,
};
use ndarray::{Array3, ArrayView3, Axis};
use std::sync::Arc;

/// With 8 query heads and 2 key-value heads, heads 0 to 3 share the first. `repeat_interleave`
/// copies heads that way, `repeat` and `tile` copy the whole row of heads instead, and then heads
/// 0, 2, 4 and 6 share it. Shapes are the same, and so is the cache; nothing crashes.
pub const HEAD_GROUPS: BreakIt = BreakIt {
    name: "head-groups",
    package: "gqa-mla",
    cites: &["facebookresearch/lingua#44"],
    symptom: "half of the query heads ask a key-value head that was never trained to answer them; \
              nothing is left of the text",
    guard: "the same weights with a key-value head for every query head give the same logits",
    weaker_test: Some("decoding with a cache gives the logits of decoding without"),
    run: |bench| {
        let decoder = |side| cached(&bench.model, side);
        let guard = |side| {
            // Two models of random weights, equal but for the copies.
            let model = |kv_heads| -> Result<Arc<Model>> {
                let config = Config { layers: 2, ..bench.model.config.clone() };
                let options = LoadOptions::default();
                let (tensors, pack) = (random_tensors(1), dense(options.isa));
                heads::assemble(config, kv_heads, options, &tensors, &pack).map(Arc::new)
            };
            let Config { heads, kv_heads, .. } = bench.model.config;
            let grouped = cached(&model(kv_heads)?, side)?.feed(&bench.prompt)?;
            let multi_head = cached(&model(heads)?, side)?.feed(&bench.prompt)?;
            same_logits("logits", &grouped, &multi_head, "as with one head for each query head")
        };
        let weaker = |side| {
            let expected = naive(&bench.model, side).feed(&bench.prompt)?;
            let found = cached(&bench.model, side)?.feed(&bench.prompt)?;
            same_logits("logits", &found, &expected, "as without a cache")
        };
        Trial {
            about: &HEAD_GROUPS,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// Attention in which query head `h` reads key-value head `h % kv_heads`.
pub struct Tiled<A> {
    /// Attention by the right rule.
    pub attention: A,
}

// ANCHOR: tiled
impl<A: Attention> Attention for Tiled<A> {
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let (heads, kv_heads) = (q.dim().1, k.dim().1);
        // Where a query head has to stand so that the right rule gives it the wrong head.
        let stands = |head| head % kv_heads * (heads / kv_heads) + head / kv_heads;
        let mut order = vec![0; heads];
        (0..heads).for_each(|head| order[stands(head)] = head);
        let attended =
            self.attention.attend(layer, pass, q.select(Axis(1), &order).view(), k, v)?;
        let back: Vec<usize> = (0..heads).map(stands).collect();
        Ok(attended.select(Axis(1), &back).as_standard_layout().into_owned())
    }
    // ANCHOR_END: tiled

    forward_attention!(attention: begin commit);
}

fn cached(model: &Arc<Model>, side: Side) -> Result<Box<dyn Decoder>> {
    let store = ContiguousStore::new(KvShape::of(model), model.context(), 1)?;
    let executor = executor(model, side, Cached::new(store, model.isa));
    Ok(Box::new(Stepper::new(executor, model.context(), usize::MAX)))
}

fn naive(model: &Arc<Model>, side: Side) -> Box<dyn Decoder> {
    let executor = executor(model, side, NaiveAttention::new(model.isa));
    Box::new(NaiveDecoder::over(executor, model.context()))
}

/// The model over `attention`, on the broken side with its groups mixed up.
fn executor(
    model: &Arc<Model>,
    side: Side,
    attention: impl Attention + 'static,
) -> Box<dyn Executor> {
    let model = Arc::clone(model);
    match side {
        Side::Clean => Box::new(CpuExecutor { model, attention }),
        Side::Broken => Box::new(CpuExecutor { model, attention: Tiled { attention } }),
    }
}
