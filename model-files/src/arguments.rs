//! The argument that every program here takes: which model to run.

use crate::files::ModelFiles;
use crate::source::open;
use clap::Args;
use embedded_models::TARGET;
use naive_decode::{LoadOptions, Model, Result};

/// Which model to run.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArgs {
    /// An embedded model (target, draft, mla, hybrid), a directory in Hugging Face's layout or with one
    /// GGUF model, a .gguf or a .safetensors file, or a name on its hub, owner/name, owner/name:FILE.gguf or
    /// owner/name:Q4_K_M; the embedded target if not given
    #[arg(short, long, value_name = "WHAT")]
    pub model: Option<String>,
}

impl ModelArgs {
    /// Whether it is the embedded target, no model of the reader's own.
    pub fn is_embedded(&self) -> bool {
        self.model.as_deref().is_none_or(|what| what == TARGET.name)
    }

    /// The model's files, opened but not loaded.
    ///
    /// # Errors
    /// Whatever is wrong with them.
    pub fn files(&self) -> Result<ModelFiles> {
        match &self.model {
            None => ModelFiles::embedded(&TARGET),
            Some(what) => open(what),
        }
    }

    /// The model with f32 weights and room for `context` tokens, whatever it was trained for: what
    /// measurements of time run on, which do not ask what the model says.
    ///
    /// # Errors
    /// Whatever is wrong with the files.
    pub fn load_to_time(&self, context: usize) -> Result<Model> {
        let mut files = self.files()?;
        files.config.rope_scaling = None;
        files.load(LoadOptions { context: Some(context), ..LoadOptions::default() })
    }
}
