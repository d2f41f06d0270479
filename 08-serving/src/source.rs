//! Where the model comes from: built in, or files of somebody else's.

use anyhow::Result;
use clap::Args;
use embedded_models::TARGET;
use kv_cache::RopeScaling;
use model_files::ModelFiles;
use naive_decode::{Error, LoadOptions, Model, Tokenizer};
use std::sync::Arc;

/// Which model to run.
#[derive(Debug, Clone, Args)]
pub struct ModelArgs {
    /// A directory in Hugging Face's layout, a .gguf or a .safetensors file, or owner/name on its
    /// hub; the embedded target if not given
    #[arg(long, value_name = "WHAT")]
    pub model: Option<String>,
}

/// A model with its tokenizer.
pub struct Loaded {
    /// What to call it.
    pub name: String,
    /// The weights.
    pub model: Arc<Model>,
    /// The vocabulary.
    pub tokenizer: Tokenizer,
    /// How the context was stretched, if it was.
    pub scaling: Option<RopeScaling>,
}

/// How many times its trained context a model may be stretched to. Further, there is nothing left
/// of what it learnt.
const MOST_STRETCH: usize = 8;

impl ModelArgs {
    /// Whether it is the embedded target, no model of the reader's own.
    pub fn is_embedded(&self) -> bool {
        self.model.is_none()
    }

    /// Loads the model with the context that it was trained for, or that its config stretches it to.
    ///
    /// # Errors
    /// Whatever is wrong with the files.
    pub fn load(&self) -> Result<Loaded> {
        Loaded::new(self.files()?, |_| Ok(0))
    }

    /// Loads the model with room for a text and `more` tokens after it. A context longer than the
    /// model was trained for is stretched with YaRN, unless the model brings its own stretching.
    ///
    /// # Errors
    /// Whatever is wrong with the files or the text, or a text longer than any stretching reaches.
    pub fn load_for(&self, text: &str, more: usize) -> Result<Loaded> {
        let room = |tokenizer: &Tokenizer| {
            // The last token is never fed back.
            Ok(encode(tokenizer, text)?.len().saturating_add(more).saturating_sub(1))
        };
        Loaded::new(self.files()?, room)
    }

    /// The model's files, opened but not loaded.
    ///
    /// # Errors
    /// Whatever is wrong with them.
    pub fn files(&self) -> Result<ModelFiles> {
        Ok(match &self.model {
            None => ModelFiles::embedded(&TARGET)?,
            Some(what) => model_files::open(what)?,
        })
    }
}

impl Loaded {
    fn new(mut files: ModelFiles, room: impl FnOnce(&Tokenizer) -> Result<usize>) -> Result<Self> {
        let own = files.config.rope_scaling.take();
        let own = own.map(|json| RopeScaling::from_json(&json, &files.config)).transpose()?;
        let scaling = match own {
            Some(own) => Some(own),
            None => stretch_to(room(&files.tokenizer)?, files.config.trained_context)?,
        };
        let mut model = files.load(LoadOptions::default())?;
        if let Some(scaling) = scaling {
            scaling.stretch(&mut model);
        }
        let ModelFiles { name, tokenizer, .. } = files;
        Ok(Loaded { name, model: Arc::new(model), tokenizer, scaling })
    }

    /// The prompt as tokens.
    ///
    /// # Errors
    /// If it comes to no tokens at all.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>> {
        encode(&self.tokenizer, prompt)
    }
}

/// The stretching that makes room for `tokens`, if any is needed.
fn stretch_to(tokens: usize, trained: usize) -> Result<Option<RopeScaling>> {
    let factor = tokens.div_ceil(trained);
    if factor > MOST_STRETCH {
        let what = format!("the model's context, stretched {MOST_STRETCH} times,");
        let capacity = trained * MOST_STRETCH;
        return Err(Error::Capacity { what, capacity, asked: tokens }.into());
    }
    Ok((factor > 1).then(|| RopeScaling::yarn(factor as f64, trained)))
}

/// The prompt as tokens.
fn encode(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>> {
    let tokens = tokenizer.encode_with_special(prompt)?;
    anyhow::ensure!(!tokens.is_empty(), "the prompt is empty, expected at least one token of text");
    Ok(tokens)
}
