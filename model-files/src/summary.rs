//! What a model is, from the beginnings of its files: neither weights nor vocabulary are read.

use crate::architectures::{Architecture, LayerKv};
use crate::gguf::{Gguf, is_gguf};
use crate::safetensors::Safetensors;
use crate::text_file::{TextFile, read};
use embedded_models::EmbeddedModel;
use naive_decode::{Checkpoint, Config, Result};
use std::path::Path;

/// A model's size and terms.
#[derive(Debug, Clone)]
pub struct ModelSummary {
    /// Its shape.
    pub config: Config,
    /// What each of its layers keeps of a token.
    pub kv: Vec<LayerKv>,
    /// Numbers in its weights.
    pub parameters: u64,
    /// Bytes of its weights as they are stored.
    pub stored_bytes: u64,
    /// The licence that its files name, as the hub writes it: "apache-2.0".
    pub licence: Option<String>,
}

impl ModelSummary {
    /// A model on this machine, by what [`open`](crate::open) takes: a directory in Hugging Face's
    /// layout, a `.gguf` or a `.safetensors` file.
    ///
    /// # Errors
    /// Whatever is missing or malformed in its config or in its weights' header.
    pub fn read(path: &Path) -> Result<Self> {
        if is_gguf(path) {
            let gguf = Gguf::open(path)?;
            let (parameters, stored_bytes) = (gguf.parameters() as u64, gguf.size() as u64);
            let architecture = gguf.architecture()?;
            let (kv, config) = (architecture.kv(), architecture.config);
            let licence = gguf.metadata().text("general.license")?.map(str::to_owned);
            return Ok(ModelSummary { config, kv, parameters, stored_bytes, licence });
        }
        let (directory, weights) = match path.is_file() {
            true => (path.parent().unwrap_or(Path::new("")), Safetensors::open(path)?),
            false => (path, Safetensors::open_directory(path)?),
        };
        let (parameters, stored_bytes) = (weights.parameters() as u64, weights.size() as u64);
        let file = directory.join("config.json");
        let json = read(&file)?;
        let architecture = Architecture::from_json(&file.display().to_string(), &json)?;
        let (kv, config) = (architecture.kv(), architecture.config);
        let card = TextFile::of(directory, "README.md").ok().flatten();
        let licence = card.and_then(|card| licence(&String::from_utf8_lossy(&card.bytes)));
        Ok(ModelSummary { config, kv, parameters, stored_bytes, licence })
    }

    /// A model that is part of the program, under the program's licence.
    ///
    /// # Errors
    /// If its files do not go together.
    pub fn embedded(model: &EmbeddedModel) -> Result<Self> {
        let name = |file: &str| format!("embedded {}/{file}", model.name);
        let architecture = Architecture::from_json(&name("config.json"), model.config)?;
        let (kv, config) = (architecture.kv(), architecture.config);
        let weights = Checkpoint::embedded(&name("model.safetensors"), model.weights)?;
        let (parameters, stored_bytes) = (weights.numbers() as u64, weights.size() as u64);
        let licence = Some(env!("CARGO_PKG_LICENSE").to_owned());
        Ok(ModelSummary { config, kv, parameters, stored_bytes, licence })
    }
}

/// The licence in the head of a model card: a block of YAML between two lines `---`.
fn licence(card: &str) -> Option<String> {
    let mut lines = card.lines();
    if lines.next()?.trim_end() != "---" {
        return None;
    }
    let head: Vec<&str> = lines.take_while(|line| line.trim_end() != "---").collect();
    let value = |key: &str| {
        let value = head.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        let value = value.trim().trim_matches(['"', '\'']);
        (!value.is_empty()).then(|| value.to_owned())
    };
    // "other" has its name beside it.
    value("license").filter(|name| name != "other").or_else(|| value("license_name"))
}

#[cfg(test)]
mod tests {
    use super::licence;

    #[test]
    fn licences_are_found_in_the_heads_of_cards_only() {
        let said = |card: &str| licence(card).unwrap_or_default();
        assert_eq!(said("---\nlibrary_name: x\nlicense: apache-2.0\n---\n# Model"), "apache-2.0");
        assert_eq!(said("---\r\nlicense: \"mit\"\r\n---\r\n"), "mit");
        assert_eq!(said("---\nlicense: other\nlicense_name: llama3\n---\n"), "llama3");
        assert_eq!(said("---\nlicense:\n- mit\n---\n"), "");
        assert_eq!(said("# Model\nlicense: mit\n"), "");
        assert_eq!(said("---\ntags: x\n---\nlicense: mit\n"), "");
        assert_eq!(said(""), "");
    }
}
