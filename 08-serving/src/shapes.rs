//! Models of other shapes, on which rung 03 shows what a token costs to remember.

use embedded_models::{EmbeddedModel, HYBRID, MLA, TARGET};
use gqa_mla::mla::{self, Form};
use gqa_mla::{heads, hybrid};
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
        Shape {
            model: MLA.name,
            load: |options| latent(Form::Explicit, options),
            rung: slab("MLA, explicit: keys and values of every head"),
        },
        Shape {
            model: MLA.name,
            load: |options| latent(Form::Absorbed, options),
            rung: slab("MLA, absorbed: one latent for all heads"),
        },
        Shape {
            model: HYBRID.name,
            load: windowed,
            rung: slab("windows and shared layers, everything kept"),
        },
        Shape {
            model: HYBRID.name,
            load: windowed,
            rung: Rung { change: "windows in rings, nothing for shared layers", ..hybrid::RING },
        },
    ]
}

fn target_with(kv_heads: usize, options: LoadOptions) -> Result<Model> {
    let config = Config::from_json(&file(&TARGET, "config.json"), TARGET.config)?;
    let checkpoint = Checkpoint::embedded(&file(&TARGET, "model.safetensors"), TARGET.weights)?;
    heads::with_kv_heads(config, &checkpoint, kv_heads, options)
}

fn latent(form: Form, options: LoadOptions) -> Result<Model> {
    mla::embedded(MLA.name, MLA.config, MLA.weights, form, options)
}

fn windowed(options: LoadOptions) -> Result<Model> {
    hybrid::embedded(HYBRID.name, HYBRID.config, HYBRID.weights, options)
}

fn file(model: &EmbeddedModel, name: &str) -> String {
    format!("{}/{name}", model.name)
}
