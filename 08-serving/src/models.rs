//! `ladder models`: what can be run, what it costs to run it, and under what terms.
//!
//! Asks nobody: it reads what is embedded, what the hub's cache has, the directories that are named,
//! and a list of models that are known by name.

mod known;
mod table;

use crate::rungs;
use anyhow::Result;
use clap::Args;
use kv_cache::KvShape;
use model_files::{Hub, ModelSummary};
use naive_decode::{Config, Element, NAIVE};
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

/// What one rung needs to run a model with one sequence, in bytes.
#[derive(Debug, Clone, Serialize)]
struct Memory {
    #[serde(rename = "crate")]
    package: &'static str,
    change: &'static str,
    /// The weights as f32.
    weights: u64,
    /// Keys and values of [`SHORT`] tokens.
    kv_at_2048: u64,
    /// Keys and values of as many tokens as the model was trained to see.
    kv_at_full_context: u64,
}

/// A context that a conversation fits in.
const SHORT: usize = 2_048;

/// Lists models.
///
/// # Errors
/// If something that was named is not there. What is wrong with a model that was found is said in
/// its line.
pub fn models(args: &ModelsArgs) -> Result<()> {
    let models = list(&args.paths)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&models)?);
    } else {
        println!("{}", table::table(&models));
        println!("{}", table::LEGEND);
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
        for path in models_in(path)? {
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
    for (known, config) in known {
        if cached.iter().any(|model| model.name == known.name) {
            continue;
        }
        let found = Found::Model {
            parameters: known.parameters,
            licence: Some(known.licence.into()),
            stored_bytes: None,
            context: config.trained_context,
            memory: memory(&config, known.parameters),
        };
        models.push(Listed { name: known.name.into(), place: Place::Hub, found });
    }
    Ok(models)
}

/// The models at a path: itself, if it is one, or what lies in it.
fn models_in(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() || path.join("config.json").exists() {
        return Ok(vec![path.to_owned()]);
    }
    let io = |source| naive_decode::Error::Io { path: path.to_owned(), source };
    let mut models = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let is_gguf = path.extension().is_some_and(|extension| extension == "gguf");
        if is_gguf && path.is_file() || path.join("config.json").exists() {
            models.push(path);
        }
    }
    models.sort();
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
            memory: memory(&summary.config, summary.parameters),
            parameters: summary.parameters,
            licence: summary.licence,
            stored_bytes: Some(summary.stored_bytes),
        },
    }
}

/// What each rung needs.
fn memory(config: &Config, parameters: u64) -> Vec<Memory> {
    // The head is packed for multiplying, the embedding table is looked up in: two copies, though
    // the file may have one.
    let twice = if config.tied_head { config.vocab_size * config.hidden_size } else { 0 };
    let weights = (parameters + twice as u64) * size_of::<f32>() as u64;
    let shape = KvShape {
        layers: config.layers,
        kv_heads: config.kv_heads,
        key_dim: config.head_dim,
        value_dim: config.head_dim,
        element: Element::F32,
    };
    let needs = rungs().into_iter().map(|rung| {
        let kept = |tokens: usize| match rung.package == NAIVE.package {
            true => 0,
            false => shape.bytes(tokens, 1) as u64,
        };
        Memory {
            package: rung.package,
            change: rung.change,
            weights,
            kv_at_2048: kept(SHORT),
            kv_at_full_context: kept(config.trained_context),
        }
    });
    needs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let table = model.config.vocab_size * model.config.hidden_size * size_of::<f32>();
        let per_token = model.kv_bytes_per_token() as u64;
        assert!((4_000_000..6_000_000).contains(&parameters));
        assert_eq!(context, model.context());
        assert_eq!(memory.len(), rungs().len());
        for need in &memory {
            assert_eq!(need.weights, (model.weight_bytes() + table) as u64);
            let kept = if need.package == "naive-decode" { 0 } else { per_token };
            assert_eq!(need.kv_at_2048, 2_048 * kept);
            assert_eq!(need.kv_at_full_context, context as u64 * kept);
        }
    }
}
