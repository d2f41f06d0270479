//! A Llama for whoever runs it by other means than rung 01's blocks: its shape, its RoPE, and its tensors by name.

use crate::files::ModelFiles;
use naive_decode::{Config, Error, Result, Rope};

/// What there is to know of a Llama besides its tensors.
pub struct PlainLlama {
    /// Its shape; nothing stretches its RoPE any more.
    pub config: Config,
    /// Its RoPE, stretched as the model's config says.
    pub rope: Rope,
}

impl ModelFiles {
    /// The model as a Llama with room for `context` tokens; for as many as it was trained for, or is stretched to by its
    /// config, if not said. [`ModelFiles::tensor`] has its tensors.
    ///
    /// # Errors
    /// If its blocks are another family's, or the stretching is not known.
    pub fn plain_llama(&self, context: Option<usize>) -> Result<PlainLlama> {
        if !self.family().is_plain_llama() {
            let expected =
                "Llama's blocks: no windows, biases, factors, other norms, latents or experts";
            return Err(Error::invalid("the model's architecture", "another family's", expected));
        }
        let config = Config { rope_scaling: None, ..self.config.clone() };
        let rope = match self.rope_scaling()? {
            None => {
                let positions = context.unwrap_or(config.trained_context);
                Rope::new(config.rope_theta, config.head_dim, positions)
            }
            Some(scaling) => {
                let reached = scaling.context(&config).max(config.trained_context);
                scaling.rope(&config, context.unwrap_or(reached))
            }
        };
        Ok(PlainLlama { config, rope })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::{MLA, TARGET};
    use naive_decode::LoadOptions;
    use serde_json::json;

    #[test]
    fn it_is_what_is_loaded_and_other_families_are_refused() {
        let mut files = ModelFiles::embedded(&TARGET).unwrap();
        for scaling in [None, Some(json!({"rope_type": "yarn", "factor": 4.0}))] {
            files.config.rope_scaling.clone_from(&scaling);
            for context in [None, Some(40)] {
                let options = LoadOptions { context, ..LoadOptions::default() };
                let (model, llama) = (files.load(options).unwrap(), files.plain_llama(context));
                let llama = llama.unwrap();
                assert_eq!(llama.rope.positions(), model.context(), "{scaling:?}");
                assert_eq!(llama.rope.frequencies(), model.rope.frequencies(), "{scaling:?}");
            }
        }
        let refused = ModelFiles::embedded(&MLA).unwrap().plain_llama(None).err().unwrap();
        assert!(refused.to_string().starts_with("the model's architecture is another family's"));
    }
}
