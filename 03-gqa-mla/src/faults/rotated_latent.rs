//! RoPE in the one place where latent attention cannot have it.

use super::TOKENS;
use crate::mla::{self, Form};
use embedded_models::MLA;
use kv_cache::CONTIGUOUS;
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, same_logits};
use naive_decode::{
    Block, Decoder, KvSize, LoadOptions, Model, NAIVE, Projected, Projection, Result, Rope, Rung,
    Settings,
};
use ndarray::{Array2, Array3, ArrayView2};
use std::sync::Arc;

/// Keys are turned by their position before they are cached: in every other model of this book that
/// is right. In the absorbed form a key is the latent, which every head has yet to be made from,
/// and `W_UK` has moved to the query's side. A turn that comes between the two belongs to neither:
/// scores no longer depend on distance alone, and values, which begin their keys, are turned as
/// well.
pub const ROTATED_LATENT: BreakIt = BreakIt {
    name: "rotated-latent",
    package: "gqa-mla",
    cites: &["DeepSeek-V2 report, section 2.1.3 on decoupled RoPE"],
    symptom: "at position 0 nothing is turned and all is well; the further into the text, the less \
              the absorbed form agrees with the explicit one",
    guard: "absorbed and explicit form give the same logits, but for rounding, at every position",
    weaker_test: Some("decoding with a cache gives the logits of decoding without"),
    run: |bench| {
        bench.only_embedded("the embedded latents")?;
        let bench = &Bench {
            model: Arc::new(latent_model(Form::Absorbed)?),
            tokenizer: bench.tokenizer.clone(),
            prompt: bench.prompt.clone(),
            is_embedded: bench.is_embedded,
        };
        let start = |rung: &Rung, side| {
            let settings =
                Settings { capacity: bench.model.context(), prefill_chunk: None, threads: None };
            (rung.start)(Arc::new(absorbed(side)?), settings)
        };
        let decoder = |side| -> Result<Box<dyn Decoder>> { start(&CONTIGUOUS, side) };
        let guard = |side| {
            let explicit = latent_model(Form::Explicit)?;
            mla::forms_agree(&absorbed(side)?, &explicit, &bench.prompt)
        };
        let weaker = |side| {
            let expected = start(&NAIVE, side)?.feed(&bench.prompt)?;
            let found = start(&CONTIGUOUS, side)?.feed(&bench.prompt)?;
            same_logits("logits", &found, &expected, "as without a cache")
        };
        Trial {
            about: &ROTATED_LATENT,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// Latent attention whose latents are turned as if they were keys of a head.
pub struct RotatedLatent {
    inner: Box<dyn Projection>,
    /// Width of the latent.
    latent: usize,
}

impl Projection for RotatedLatent {
    fn kv(&self) -> Option<KvSize> {
        self.inner.kv()
    }

    // ANCHOR: rotated
    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        let mut made = self.inner.project(x, positions, rope)?;
        if let Some(kv) = &mut made.kv {
            for rows in [&mut kv.k, &mut kv.v] {
                for (mut row, &position) in rows.outer_iter_mut().zip(positions) {
                    let row = row.as_slice_mut().expect("projections are contiguous");
                    rope.rotate(&mut row[..self.latent], position)?;
                }
            }
        }
        Ok(made)
    }
    // ANCHOR_END: rotated

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        self.inner.output(attended)
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

/// The embedded model with latent attention.
fn latent_model(form: Form) -> Result<Model> {
    mla::embedded(MLA.name, MLA.config, MLA.weights, form, LoadOptions::default())
}

/// Its absorbed form, on the broken side with latents turned.
fn absorbed(side: Side) -> Result<Model> {
    let mut model = latent_model(Form::Absorbed)?;
    if side == Side::Broken {
        let turned = |block: Block| {
            let size = block.projection.kv().expect("latent attention makes its own keys");
            let latent = size.key_dim - 2 * model.rope.frequencies().len();
            let projection = Box::new(RotatedLatent { inner: block.projection, latent });
            Block { projection, ..block }
        };
        model.blocks = model.blocks.into_iter().map(turned).collect();
    }
    Ok(model)
}
