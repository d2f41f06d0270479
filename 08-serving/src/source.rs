//! Where the model comes from: built in, or a directory.

use anyhow::{Context, Result};
use clap::Args;
use embedded_models::TARGET;
use kv_cache::RopeScaling;
use naive_decode::{Checkpoint, Config, LoadOptions, Model, Tokenizer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which model to run.
#[derive(Debug, Clone, Args)]
pub struct ModelArgs {
    /// Directory with config.json, model.safetensors and tokenizer.json; the embedded target if not
    /// given
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
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

impl ModelArgs {
    /// Loads the model, with room for what `tokens` says a sequence will come to, given the
    /// tokenizer.
    ///
    /// A context longer than the model was trained for is stretched with YaRN, unless the model
    /// brings its own stretching.
    ///
    /// # Errors
    /// Whatever is wrong with the files, or with what is asked.
    pub fn load(&self, tokens: impl FnOnce(&Tokenizer) -> Result<usize>) -> Result<Loaded> {
        let (name, config, tokenizer, checkpoint) = match &self.model {
            None => (
                format!("{} (embedded)", TARGET.name),
                Config::from_json("embedded config.json", TARGET.config)?,
                Tokenizer::from_bytes("embedded tokenizer.json", TARGET.tokenizer)?,
                Checkpoint::embedded("embedded model.safetensors", TARGET.weights)?,
            ),
            Some(directory) => (
                directory.display().to_string(),
                read_config(&directory.join("config.json"))?,
                Tokenizer::from_file(directory.join("tokenizer.json"))?,
                Checkpoint::open(&directory.join("model.safetensors"))?,
            ),
        };
        Loaded::new(name, config, tokenizer, &checkpoint, tokens)
    }
}

fn read_config(path: &Path) -> Result<Config> {
    let json = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Config::from_json(&path.display().to_string(), &json)?)
}

impl Loaded {
    fn new(
        name: String,
        mut config: Config,
        tokenizer: Tokenizer,
        checkpoint: &Checkpoint,
        tokens: impl FnOnce(&Tokenizer) -> Result<usize>,
    ) -> Result<Self> {
        tokenizer.check_vocab_size(config.vocab_size)?;
        let tokens = tokens(&tokenizer)?;
        let own = config.rope_scaling.take();
        let own = own.map(|json| RopeScaling::from_json(&json, &config)).transpose()?;
        let trained = config.trained_context;
        let stretch = || {
            let factor = tokens.div_ceil(trained);
            (factor > 1).then(|| RopeScaling::yarn(factor as f64, trained))
        };
        let scaling = own.or_else(stretch);
        let mut model = Model::load(config, checkpoint, LoadOptions::default())?;
        if let Some(scaling) = scaling {
            scaling.stretch(&mut model);
        }
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

/// The prompt as tokens.
///
/// # Errors
/// If it comes to no tokens at all.
pub fn encode(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>> {
    let tokens = tokenizer.encode_with_special(prompt)?;
    anyhow::ensure!(!tokens.is_empty(), "the prompt is empty, expected at least one token of text");
    Ok(tokens)
}
