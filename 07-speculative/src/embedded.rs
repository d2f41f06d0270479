//! The embedded target with everything here that guesses for it.

use crate::proposer::Proposer;
use crate::proposers::{Ahead, DraftModel, Lookahead, Medusa, Mtp, PromptLookup};
use crate::tap::Tap;
use embedded_models::{DRAFT, HEADS, TARGET};
use naive_decode::{Checkpoint, LoadOptions, Model, Result};
use std::sync::Arc;

/// A target, its draft and its heads.
pub struct Embedded {
    /// The target, with a tap before its head.
    pub target: Arc<Model>,
    tap: Arc<Tap>,
    draft: Arc<Model>,
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
    /// Loads all of it, with room for so many tokens of a text.
    ///
    /// # Errors
    /// If the embedded files do not fit together.
    pub fn new(context: usize) -> Result<Self> {
        let options = LoadOptions { context: Some(context), ..LoadOptions::default() };
        let target = Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options)?;
        let (target, tap) = Tap::on(target);
        let draft = Model::embedded(DRAFT.name, DRAFT.config, DRAFT.weights, options)?;
        let part =
            |name: &str, bytes| Checkpoint::embedded(&format!("{}/{name}", HEADS.name), bytes);
        Ok(Embedded {
            target: Arc::new(target),
            tap,
            draft: Arc::new(draft),
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
            Guesser::Medusa => Box::new(Medusa::new(&self.target, self.tap.clone(), &self.medusa)?),
            Guesser::Mtp => Box::new(Mtp::new(self.target.clone(), self.tap.clone(), &self.mtp)?),
        })
    }
}
