//! A small model in Hugging Face's layout, in one file or several, for tests to damage.

use embedded_models::TARGET;
use ladder_tests::watched::largest_while;
use model_files::open;
use naive_decode::{Checkpoint, LoadOptions};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A small model: its config, and its tensors as f32.
pub(crate) fn config() -> Value {
    let mut config: Value = serde_json::from_slice(TARGET.config).unwrap();
    config["num_hidden_layers"] = 1.into();
    config
}

pub(crate) type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// The tensors of the target's first block and around it.
pub(crate) fn tensors() -> Tensors {
    let weights = Checkpoint::embedded("target", TARGET.weights).unwrap();
    let block = ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
    let rest = ["post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"];
    let names = block.iter().chain(&rest).chain(&["self_attn.o_proj"]);
    let mut names: Vec<String> = names.map(|n| format!("model.layers.0.{n}.weight")).collect();
    names.extend(["model.embed_tokens.weight", "model.norm.weight"].map(String::from));
    let entry = |name: String| {
        let view = weights.view(&name).unwrap();
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    names.into_iter().map(entry).collect()
}

pub(crate) fn write_shard(path: &Path, tensors: &Tensors) {
    let views = tensors.iter().map(|(name, (kind, shape, bytes))| {
        (name.clone(), TensorView::new(*kind, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

pub(crate) fn write_rest(directory: &Path) {
    fs::write(directory.join("config.json"), config().to_string()).unwrap();
    fs::write(directory.join("tokenizer.json"), TARGET.tokenizer).unwrap();
}

pub(crate) const SHARDS: [&str; 2] =
    ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

/// The model in two files with an index, which is also returned.
pub(crate) fn write_sharded(directory: &Path) -> Value {
    write_rest(directory);
    let mut parts = [Tensors::new(), Tensors::new()];
    let mut map = serde_json::Map::new();
    for (i, (name, tensor)) in tensors().into_iter().enumerate() {
        map.insert(name.clone(), SHARDS[i % 2].into());
        parts[i % 2].insert(name, tensor);
    }
    for (shard, part) in SHARDS.iter().zip(&parts) {
        write_shard(&directory.join(shard), part);
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    write_index(directory, &index);
    index
}

pub(crate) fn write_index(directory: &Path, index: &Value) {
    fs::write(directory.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

/// Far more than any tensor of the model needs, far less than a damaged size can say.
const ENOUGH: usize = 16 << 20;

/// Opens and reads all of it, in memory that is in proportion.
pub(crate) fn load(path: &Path) -> naive_decode::Result<()> {
    let load = || open(path.to_str().unwrap())?.load(LoadOptions::default());
    let (loaded, largest) = largest_while(load);
    assert!(largest < ENOUGH, "{largest} bytes were asked for at once");
    loaded.map(drop)
}

pub(crate) fn assert_refused(path: &Path, words: &[&str]) {
    let said = load(path).expect_err(&format!("{words:?} expected")).to_string();
    assert!(!said.contains('\n'), "not one sentence: {said}");
    assert!(words.iter().all(|word| said.contains(word)), "`{said}` lacks one of {words:?}");
}
