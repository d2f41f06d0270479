//! `ladder models`: what can be run, what it costs to run it, and under what terms.
//!
//! Asks nobody: it reads what is embedded, what the hub's cache has, the directories that are named,
//! and a list of models that are known by name.

mod known;
mod memory;
mod table;

use crate::say::say;
use anyhow::Result;
use clap::Args;
use memory::{Memory, memory};
use model_files::{Hub, ModelSummary, is_gguf_model};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What to list.
#[derive(Debug, Clone, Args)]
pub struct ModelsArgs {
    /// Directories and files of models to list as well
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A model that can be run, or could be if nothing were wrong with it.
#[derive(Debug, Serialize)]
struct Listed {
    /// What to say after `--model`; the embedded target runs without.
    name: String,
    place: Place,
    #[serde(flatten)]
    found: Found,
}

/// Where a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    /// Part of the program.
    Embedded,
    /// In the hub's cache on this machine.
    Cached,
    /// Where the command line said.
    Named,
    /// On the hub, not here yet.
    Hub,
}

/// What is known of a model, or why nothing is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", untagged)]
enum Found {
    Model {
        parameters: u64,
        licence: Option<String>,
        /// Bytes of its weights as they are stored; not known of those that are not here.
        stored_bytes: Option<u64>,
        /// Tokens it was trained to see at once.
        context: usize,
        memory: Vec<Memory>,
    },
    Refused {
        problem: String,
    },
}

/// Lists models.
///
/// # Errors
/// If something that was named is not there, or holds no model. What is wrong with a model that was found is said in
/// its line.
pub fn models(args: &ModelsArgs) -> Result<()> {
    let models = list(&args.paths)?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&models)?)?;
    } else {
        say!("{}", table::table(&models))?;
        table::problems(&models).iter().try_for_each(|problem| say!("cannot be run: {problem}"))?;
        say!("{}", table::LEGEND)?;
    }
    Ok(())
}

fn list(paths: &[PathBuf]) -> Result<Vec<Listed>> {
    let mut models = Vec::new();
    for model in embedded_models::all() {
        let found = found(ModelSummary::embedded(model));
        models.push(Listed { name: model.name.into(), place: Place::Embedded, found });
    }
    for path in paths {
        let found = models_in(path)?;
        anyhow::ensure!(
            !found.is_empty(),
            "{}: holds no model, expected a .gguf or .safetensors file, or a directory with a config.json, .gguf files or \
             directories of models, at most {DEPTH} deep",
            path.display()
        );
        for path in found {
            let name = path.display().to_string();
            models.push(Listed { name, place: Place::Named, found: read(&path) });
        }
    }
    let cached = Hub::from_environment().map_or_else(|_| Vec::new(), |hub| hub.cached_models());
    let known = known::known()?;
    for model in &cached {
        let mut found = read(&model.path);
        let terms = known.iter().find(|(known, _)| known.name == model.name);
        // Whoever downloads a model rarely downloads its card.
        if let (Found::Model { licence, .. }, Some((known, _))) = (&mut found, terms) {
            licence.get_or_insert_with(|| known.licence.into());
        }
        models.push(Listed { name: model.name.clone(), place: Place::Cached, found });
    }
    for (known, architecture) in known {
        if cached.iter().any(|model| model.name == known.name) {
            continue;
        }
        let found = Found::Model {
            parameters: known.parameters,
            licence: Some(known.licence.into()),
            stored_bytes: None,
            context: architecture.config.trained_context,
            memory: memory(&architecture.config, &architecture.kv(), known.parameters),
        };
        models.push(Listed { name: known.name.into(), place: Place::Hub, found });
    }
    Ok(models)
}

/// Folders below the one that is named in which models are looked for: an owner's, and a model's.
const DEPTH: usize = 2;

/// The models at a path: itself, if it is one, or what lies in it.
fn models_in(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        let is_named = path.extension().is_some_and(|it| it == "gguf" || it == "safetensors");
        let is_weights = is_named || is_gguf_model(path);
        return Ok(is_weights.then(|| path.to_owned()).into_iter().collect());
    }
    if path.join("config.json").exists() {
        return Ok(vec![path.to_owned()]);
    }
    let mut models = models_below(path, DEPTH)?;
    models.sort();
    Ok(models)
}

/// The models in a folder, and in folders in it, so many deep.
fn models_below(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let io = |source| naive_decode::Error::Io { path: folder.to_owned(), source };
    let mut models = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if is_gguf_model(&path) || path.join("config.json").exists() {
            models.push(path);
        } else if depth > 0 && path.is_dir() {
            // What may not be looked into holds none.
            models.extend(models_below(&path, depth - 1).unwrap_or_default());
        }
    }
    Ok(models)
}

fn read(path: &Path) -> Found {
    found(ModelSummary::read(path))
}

fn found(summary: naive_decode::Result<ModelSummary>) -> Found {
    match summary {
        Err(problem) => Found::Refused { problem: problem.to_string() },
        Ok(summary) => Found::Model {
            context: summary.config.trained_context,
            memory: memory(&summary.config, &summary.kv, summary.parameters),
            parameters: summary.parameters,
            licence: summary.licence,
            stored_bytes: Some(summary.stored_bytes),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rungs;
    use embedded_models::TARGET;
    use naive_decode::{LoadOptions, Model};

    #[test]
    fn memory_is_what_the_loaded_model_takes() {
        let model =
            Model::embedded("target", TARGET.config, TARGET.weights, LoadOptions::default());
        let model = model.unwrap();
        let Found::Model { parameters, memory, context, .. } =
            found(ModelSummary::embedded(&TARGET))
        else {
            panic!("the target is a model")
        };
        let per_token = model.kv_bytes_per_token() as u64;
        assert!((4_000_000..6_000_000).contains(&parameters));
        assert_eq!(context, model.context());
        assert_eq!(memory.len(), rungs().len());
        for need in &memory {
            assert_eq!(
                need.weights,
                model.weight_bytes() as u64,
                "the table is the head: held once"
            );
            let kept = if need.package == "naive-decode" { 0 } else { per_token };
            assert_eq!(need.kv_at_2048, 2_048 * kept);
            assert_eq!(need.kv_at_full_context, context as u64 * kept);
        }
    }
}
