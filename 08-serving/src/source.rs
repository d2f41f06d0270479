//! Where the model comes from: built in, or files of somebody else's.

use anyhow::Result;
use kv_cache::RopeScaling;
use model_files::{ModelArgs, ModelFiles};
use naive_decode::{Error, LoadOptions, Model, Tokenizer};
use std::sync::Arc;

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

impl Loaded {
    /// Loads a model with the context that it was trained for, or that its config stretches it to; with room for `room` tokens
    /// if the model has that much by itself.
    ///
    /// # Errors
    /// Whatever is wrong with the files.
    pub fn load(files: ModelFiles, room: usize) -> Result<Self> {
        Loaded::new(files, room, None)
    }

    /// Loads a model with room for a text and `more` tokens after it. A context longer than the
    /// model was trained for is stretched with YaRN, unless the model brings its own stretching.
    ///
    /// # Errors
    /// Whatever is wrong with the files or the text, or a text longer than any stretching reaches.
    pub fn open_for(model: &ModelArgs, text: &str, more: usize) -> Result<Self> {
        let files = model.files()?;
        // The last token is never fed back.
        let room = encode(&files.tokenizer, text)?.len().saturating_add(more).saturating_sub(1);
        if !files.brings_stretching() {
            let scaling = stretch_to(room, files.longest_context())?;
            return Loaded::new(files, room, scaling);
        }
        let loaded = Loaded::new(files, room, None)?;
        let capacity = loaded.model.context();
        if room > capacity {
            let what = "the model's context, which has a stretching of its own,".to_owned();
            return Err(Error::Capacity { what, capacity, asked: room }.into());
        }
        Ok(loaded)
    }

    /// `scaling` is for models that bring none.
    fn new(mut files: ModelFiles, room: usize, scaling: Option<RopeScaling>) -> Result<Self> {
        let scaling = files.rope_scaling()?.or(scaling);
        files.config.rope_scaling = None;
        let mut options = LoadOptions::default();
        let (trained, reached) = (files.config.trained_context, files.longest_context());
        // Some models have frequencies of their own for long texts (Phi-3's longrope).
        if room > trained && reached > trained {
            options.context = Some(reached);
        }
        let mut model = files.load(options)?;
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
pub(crate) fn encode(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>> {
    let tokens = tokenizer.encode_with_special(prompt)?;
    anyhow::ensure!(!tokens.is_empty(), "the prompt is empty, expected at least one token of text");
    Ok(tokens)
}
