//! One column of activations that is far larger than the others, and one scale for the row.

use super::{TOKENS, predicts_alike};
use crate::packed::{Calibration, Seen, THRESHOLD, outlier_packer};
use crate::threads::Pool;
use embedded_models::TARGET;
use kv_cache::CONTIGUOUS;
use naive_decode::break_it::{BreakIt, Side, Trial};
use naive_decode::{
    Checkpoint, Config, Error, LoadOptions, Model, NaiveAttention, Pack, Pass, Result, Settings,
    Span, Want, dense,
};
use std::sync::Arc;

/// How much larger the outlier column is. A power of two, so that full precision changes by no bit.
const OUTLIER: f32 = 256.0;

/// Which column of the normed hidden rows it is, in every layer.
const COLUMN: usize = 5;

// ANCHOR: outlier_column
/// The embedded target with an outlier: both norms of every layer make one column `factor` times as
/// large, and the weights that meet it are as much smaller.
///
/// Their products are what they were, so the model is too. Trained models from some billions of
/// parameters on have such columns of their own accord (Dettmers et al. 2022, section 4).
///
/// # Errors
/// If the embedded files do not fit together, or `pack` refuses.
pub fn with_outlier_column(factor: f32, pack: Pack) -> Result<Model> {
    let config = Config::from_json("target/config.json", TARGET.config)?;
    let checkpoint = Checkpoint::embedded("target/model.safetensors", TARGET.weights)?;
    let tensors = |name: &str, shape: &[usize]| {
        let mut weights = checkpoint.tensor(name, shape)?;
        let meets = ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"];
        if name.ends_with("layernorm.weight") {
            weights[COLUMN] *= factor;
        } else if meets.iter().any(|part| name.contains(part)) {
            weights.chunks_exact_mut(shape[1]).for_each(|row| row[COLUMN] /= factor);
        }
        Ok(weights)
    };
    Model::assemble(config, LoadOptions::default(), &tensors, pack)
}
// ANCHOR_END: outlier_column

/// Activations of eight bits, one scale a row, and no column kept apart.
pub const ACTIVATION_OUTLIER: BreakIt = BreakIt {
    name: "activation-outlier",
    package: "flash-attention",
    cites: &["inference lesson, LLM.int8()", "Dettmers et al. 2022, arXiv 2208.07339"],
    symptom: "good weights and bad sums: one large activation takes all the steps of its row",
    guard: "predictions along the prompt part from full precision's by less than 0.1 nats a token",
    weaker_test: Some(
        "every weight of the last matrix is within a step of what the checkpoint has",
    ),
    run: |bench| {
        bench.only_embedded("the embedded weights, with an outlier put in")?;
        let options = LoadOptions::default();
        let full = with_outlier_column(OUTLIER, &dense(options.isa))?;
        let seen = seen(&bench.prompt)?;
        let pool = Pool::new(1);
        let model = |side| {
            let threshold = match side {
                Side::Clean => THRESHOLD,
                Side::Broken => f32::INFINITY,
            };
            with_outlier_column(OUTLIER, &outlier_packer(&seen, threshold, options.isa, &pool))
        };
        let decoder = |side| {
            let model = Arc::new(model(side)?);
            let settings =
                Settings { capacity: model.context(), prefill_chunk: None, threads: None };
            (CONTIGUOUS.start)(model, settings)
        };
        let guard = |side| predicts_alike(bench, &full, &model(side)?);
        let weaker = |side| weights_are_near(&full, &model(side)?);
        Trial {
            about: &ACTIVATION_OUTLIER,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// What each matrix is multiplied with, on the text given.
fn seen(text: &[u32]) -> Result<Vec<Seen>> {
    let calibration = Calibration::new(LoadOptions::default().isa);
    let model = with_outlier_column(OUTLIER, &calibration)?;
    let pass = Pass::one(Span::new(0, 0, text, Want::Last));
    model.forward(&pass, &mut NaiveAttention::new(model.isa))?;
    Ok(calibration.seen())
}

/// Looks at the head's weights, one input at a time: each row of activations has a single 1 and zeros, so none is large
/// beside another.
fn weights_are_near(full: &Model, model: &Model) -> Result<()> {
    let hidden = full.config.hidden_size;
    let ones = ndarray::Array2::eye(hidden);
    let (expected, found) = (full.head.apply(ones.view()), model.head.apply(ones.view()));
    for (expected, found) in expected.columns().into_iter().zip(found.columns()) {
        let largest = expected.iter().fold(0f32, |most, w| most.max(w.abs()));
        let off = expected.iter().zip(found).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        if off > largest / 127.0 {
            let expected = format!("at most a 127th of {largest}");
            return Err(Error::invalid("error of a weight", off, expected));
        }
    }
    Ok(())
}
