//! Models of other shapes, on which rung 03 shows what a token costs to remember.

use embedded_models::{EmbeddedModel, TARGET};
use gqa_mla::heads;
use kv_cache::CONTIGUOUS;
use naive_decode::{Checkpoint, Config, LoadOptions, Model, Result, Rung};

/// A model, and the cache that it runs with.
pub struct Shape {
    /// Name of the model.
    pub model: &'static str,
    /// Loads it.
    pub load: fn(LoadOptions) -> Result<Model>,
    /// How it is run.
    pub rung: Rung,
}

/// Every shape, dearest cache first within a family.
pub fn all() -> Vec<Shape> {
    let slab = |change| Rung { package: "gqa-mla", change, ..CONTIGUOUS };
    vec![
        Shape {
            model: "target, KV heads repeated",
            load: |options| target_with(8, options),
            rung: slab("MHA: 8 query heads on 8 KV heads"),
        },
        Shape {
            model: "target",
            load: |options| target_with(2, options),
            rung: slab("GQA: 8 query heads on 2 KV heads"),
        },
        Shape {
            model: "target, KV heads averaged",
            load: |options| target_with(1, options),
            rung: slab("MQA: 8 query heads on 1 KV head"),
        },
    ]
}

fn target_with(kv_heads: usize, options: LoadOptions) -> Result<Model> {
    let config = Config::from_json(&file(&TARGET, "config.json"), TARGET.config)?;
    let checkpoint = Checkpoint::embedded(&file(&TARGET, "model.safetensors"), TARGET.weights)?;
    heads::with_kv_heads(config, &checkpoint, kv_heads, options)
}

fn file(model: &EmbeddedModel, name: &str) -> String {
    format!("{}/{name}", model.name)
}
