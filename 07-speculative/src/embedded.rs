//! The embedded target with everything here that guesses for it.

use crate::proposer::Proposer;
use crate::proposers::{Ahead, DraftModel, Lookahead, Medusa, Mtp, PromptLookup};
use crate::tap::Tap;
use embedded_models::{DRAFT, EmbeddedModel, HEADS, TARGET};
use flash_attention::fusion::Fused;
use flash_attention::packed::{Format, Packer, Weights};
use flash_attention::threads::Pool;
use naive_decode::{Checkpoint, Config, Isa, LoadOptions, Model, Pack, Result};
use std::sync::Arc;

/// A target, its draft and its heads.
pub struct Embedded {
    /// The target, with a tap before its head.
    pub target: Arc<Model>,
    tap: Arc<Tap>,
    draft: Arc<Model>,
    format: Format,
    medusa: Checkpoint,
    mtp: Checkpoint,
}

/// Who proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guesser {
    /// A smaller model.
    DraftModel,
    /// The same, three branches that part once more.
    DraftTree,
    /// The same as a chain, drafting on while the target verifies.
    DraftAhead,
    /// What followed the last words before.
    PromptLookup,
    /// What the target said of guesses about its future.
    Lookahead,
    /// Heads on the target's last hidden state.
    Medusa,
    /// One more block on it.
    Mtp,
}

impl Guesser {
    /// All of them.
    pub const ALL: [Guesser; 7] = [
        Guesser::DraftModel,
        Guesser::DraftTree,
        Guesser::DraftAhead,
        Guesser::PromptLookup,
        Guesser::Lookahead,
        Guesser::Medusa,
        Guesser::Mtp,
    ];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Guesser::DraftModel => "draft model",
            Guesser::DraftTree => "draft model, tree",
            Guesser::DraftAhead => "draft model, ahead",
            Guesser::PromptLookup => "prompt lookup",
            Guesser::Lookahead => "lookahead",
            Guesser::Medusa => "Medusa heads",
            Guesser::Mtp => "MTP block",
        }
    }
}

impl Embedded {
    /// Loads all of it, with room for this many tokens of a text, packed for rung 04's kernels. The files have bfloat16:
    /// panels of that lose no bit.
    ///
    /// # Errors
    /// If the embedded files do not fit together.
    pub fn new(context: usize, format: Format) -> Result<Self> {
        let options = LoadOptions { context: Some(context), ..LoadOptions::default() };
        let (target, tap) = Tap::on(packed(&TARGET, options, format)?);
        let draft = packed(&DRAFT, options, format)?;
        let part =
            |name: &str, bytes| Checkpoint::embedded(&format!("{}/{name}", HEADS.name), bytes);
        Ok(Embedded {
            target: Arc::new(target),
            tap,
            draft: Arc::new(draft),
            format,
            medusa: part("medusa.safetensors", HEADS.medusa)?,
            mtp: part("mtp.safetensors", HEADS.mtp)?,
        })
    }

    /// Somebody who guesses for one text.
    ///
    /// # Errors
    /// If the embedded files do not fit together.
    pub fn proposer(&self, guesser: Guesser) -> Result<Box<dyn Proposer>> {
        let draft = || DraftModel::new(self.draft.clone(), &self.target);
        Ok(match guesser {
            Guesser::DraftModel => Box::new(draft()?),
            Guesser::DraftTree => Box::new(draft()?.with_widths(&[3, 2, 1])?),
            Guesser::DraftAhead => Box::new(Ahead::new(draft()?)?),
            Guesser::PromptLookup => Box::new(PromptLookup::new()),
            Guesser::Lookahead => Box::new(Lookahead::new()),
            Guesser::Medusa => {
                let (target, tap) = (&self.target, self.tap.clone());
                with_packing(self.format, |pack| {
                    Ok(Box::new(Medusa::new(target, tap, &self.medusa, pack)?))
                })?
            }
            Guesser::Mtp => {
                let (target, tap) = (self.target.clone(), self.tap.clone());
                with_packing(self.format, |pack| {
                    Ok(Box::new(Mtp::new(target, tap, &self.mtp, pack)?))
                })?
            }
        })
    }
}

fn packed(model: &EmbeddedModel, options: LoadOptions, format: Format) -> Result<Model> {
    let config = Config::from_json(&format!("{}/config.json", model.name), model.config)?;
    let file = format!("{}/model.safetensors", model.name);
    let checkpoint = Checkpoint::embedded(&file, model.weights)?;
    let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
    with_packing(format, |pack| Model::assemble(config, options, &tensors, pack))
}

/// Calls `make` with what packs in a format, fused, for the process's threads.
fn with_packing<T>(format: Format, make: impl FnOnce(Pack) -> Result<T>) -> Result<T> {
    let (pool, none) = (Pool::shared(), |_: &str| Ok(None));
    let packer = Packer::new(Weights::As(format), Isa::best(), &pool, &none);
    make(&Fused::new(&packer, &pool))
}
