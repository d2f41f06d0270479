//! The length that lags behind.

use super::{Stepper, TOKENS, guards, store};
use crate::Cached;
use naive_decode::break_it::{BreakIt, Side, Trial};
use naive_decode::{
    Attention, Config, CpuExecutor, Decoder, Executor, LayerSpec, LoadOptions, Model, Pass, Result,
    Visible, forward_attention,
};
use ndarray::{Array3, ArrayView3};
use std::sync::Arc;

/// Attention whose length is brought up to date by the last layer.
///
/// Every layer writes its new keys first and then reads "up to the current length". But the length
/// is one number for all layers, and only the last one moves it: all others read what was there
/// before this pass. In decode they miss the token itself. In prefill they find nothing at all, and
/// answer with zeros; the prompt goes through as if there were one layer of attention.
pub struct StaleLength<A> {
    attention: A,
    layers: usize,
}

impl<A: Attention> Attention for StaleLength<A> {
    forward_attention!(attention: begin commit);

    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let mut seen = pass.clone();
        if layer.index + 1 < self.layers {
            for span in &mut seen.spans {
                span.sees.fill(Visible::until(span.start));
            }
        }
        self.attention.attend(layer, &seen, q, k, v)
    }
}

/// The cache of the sketch in the post on the generation loop.
pub const STALE_LENGTH: BreakIt = BreakIt {
    name: "stale-length",
    package: "kv-cache",
    cites: &["transformer anatomy post, KVCache.update"],
    symptom: "all layers but the last see nothing in prefill and miss the newest token after it",
    guard: "logits are the naive loop's, bit for bit, after prefill and after each step",
    weaker_test: Some("a model of one layer decodes as the naive loop does"),
    run: |bench| {
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            let executor = executor(&bench.model, side)?;
            Ok(Box::new(Stepper::new(executor, bench.model.context(), usize::MAX)))
        };
        let guard =
            |side| guards::equals_naive(&bench.model, executor(&bench.model, side)?, &bench.prompt);
        let weaker = |side| {
            let config = Config { layers: 1, ..bench.model.config.clone() };
            let model = Arc::new(Model::random(config, 1, LoadOptions::default())?);
            guards::equals_naive(&model, executor(&model, side)?, &bench.prompt)
        };
        Trial {
            about: &STALE_LENGTH,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

fn executor(model: &Arc<Model>, side: Side) -> Result<Box<dyn Executor>> {
    let cached = Cached::new(store(model, 1)?, model.isa);
    let model = Arc::clone(model);
    Ok(match side {
        Side::Clean => Box::new(CpuExecutor { model, attention: cached }),
        Side::Broken => {
            let layers = model.config.layers;
            Box::new(CpuExecutor { model, attention: StaleLength { attention: cached, layers } })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::break_it::Bench;
    use naive_decode::{Span, Want};

    #[test]
    fn in_prefill_every_layer_but_the_last_answers_with_zeros() {
        let bench = Bench::embedded().unwrap();
        let (model, config) = (&bench.model, &bench.model.config);
        let attention = Cached::new(store(model, 1).unwrap(), model.isa);
        let mut stale = StaleLength { attention, layers: config.layers };
        let pass = Pass::one(Span::new(0, 0, &[1, 2, 3], Want::Last));
        stale.begin(&pass).unwrap();
        let q = Array3::from_elem((3, config.heads, config.head_dim), 1.0);
        let kv = Array3::from_elem((3, config.kv_heads, config.head_dim), 1.0);
        for index in 0..config.layers {
            let layer =
                LayerSpec { index, kv_layer: index, window: None, scale: 1.0, score_cap: None };
            let answer = stale.attend(layer, &pass, q.view(), kv.view(), kv.view()).unwrap();
            let expected = if index + 1 < config.layers { 0.0 } else { 1.0 };
            assert!(answer.iter().all(|&a| a == expected), "layer {index}");
        }
    }
}
