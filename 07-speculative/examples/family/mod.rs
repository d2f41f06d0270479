//! A model and who guesses for it, as the measurements of this rung have them.

use anyhow::{Result, bail};
use flash_attention::fusion::Fused;
use flash_attention::packed::{Format, Packer, Weights};
use flash_attention::threads::Pool;
use model_files::ModelArgs;
use naive_decode::{LoadOptions, Model, Tokenizer};
use speculative::proposers::{Lookahead, PromptLookup};
use speculative::{Embedded, Guesser, Proposer};
use std::sync::Arc;

/// The embedded target with all that was trained for it, or any model with those who need no training.
pub(crate) struct Family {
    pub(crate) model: Arc<Model>,
    pub(crate) tokenizer: Tokenizer,
    embedded: Option<Embedded>,
}

impl Family {
    /// With room for texts of `context` tokens of the embedded model. Others cut the same text into other tokens,
    /// perhaps twice as many. Weights are packed as bytes, as a server would have them.
    pub(crate) fn new(arguments: &ModelArgs, context: usize) -> Result<Self> {
        let tokenizer = arguments.files()?.tokenizer;
        if arguments.is_embedded() {
            let family = Embedded::new(context, Format::Q8_0)?;
            return Ok(Family { model: family.target.clone(), tokenizer, embedded: Some(family) });
        }
        let mut files = arguments.files()?;
        files.config.rope_scaling = None; // texts are shorter than what it is for
        let options = LoadOptions { context: Some(2 * context), ..LoadOptions::default() };
        let (pool, none) = (Pool::shared(), |_: &str| Ok(None));
        let packer = Packer::new(Weights::As(Format::Q8_0), options.isa, &pool, &none);
        let model = Arc::new(files.assemble(options, &Fused::new(&packer, &pool))?);
        Ok(Family { model, tokenizer, embedded: None })
    }

    /// Who can guess for this model.
    pub(crate) fn guessers(&self) -> Vec<Guesser> {
        match self.embedded {
            Some(_) => Guesser::ALL.to_vec(),
            None => vec![Guesser::PromptLookup, Guesser::Lookahead],
        }
    }

    pub(crate) fn proposer(&self, guesser: Guesser) -> Result<Box<dyn Proposer>> {
        Ok(match (&self.embedded, guesser) {
            (Some(family), guesser) => family.proposer(guesser)?,
            (None, Guesser::PromptLookup) => Box::new(PromptLookup::new()),
            (None, Guesser::Lookahead) => Box::new(Lookahead::new()),
            (None, guesser) => bail!("{}: only the embedded model has one", guesser.name()),
        })
    }
}
