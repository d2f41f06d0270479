//! Packed weights kept in a file: the next start has the same bits, and never somebody else's.

use embedded_models::TARGET;
use flash_attention::fusion::Fused;
use flash_attention::kernels::Simd;
use flash_attention::packed::{Format, PackedFile, PackedFrom, Packer, Rows, Weights};
use flash_attention::threads::Pool;
use model_files::{Architecture, ModelFiles, open};
use naive_decode::{
    Checkpoint, Error, Isa, LoadOptions, Model, NaiveAttention, Pass, Span, Tensors, Want,
    random_tensors,
};
use serde_json::Value;
use serving::packed::{Came, Keep, PackedModel, load_packed};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

/// The file of weights that are packed for two threads in a model's directory.
const KEPT: &str = "model.q8_0.threads-2.packed";

fn write_model(directory: &Path) {
    std::fs::write(directory.join("config.json"), TARGET.config).unwrap();
    std::fs::write(directory.join("model.safetensors"), TARGET.weights).unwrap();
    std::fs::write(directory.join("tokenizer.json"), TARGET.tokenizer).unwrap();
}

fn files(directory: &Path) -> ModelFiles {
    open(directory.to_str().unwrap()).unwrap()
}

fn load(directory: &Path, threads: usize, keep: Keep) -> PackedModel {
    let options = LoadOptions { context: Some(64), ..LoadOptions::default() };
    let weights = Weights::As(Format::Q8_0);
    load_packed(&files(directory), weights, options, &Pool::new(threads), keep).unwrap()
}

fn logits(model: &Model) -> Vec<u32> {
    let pass = Pass::one(Span::new(0, 0, &[5, 96, 41, 0, 17], Want::All));
    let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn what_is_kept_is_what_would_be_packed() {
    let directory = tempfile::tempdir().unwrap();
    write_model(directory.path());
    let fresh = load(directory.path(), 2, Keep::Never);
    assert_eq!(fresh.came, Came::Packed);
    assert!(!directory.path().join(KEPT).exists());
    let kept = load(directory.path(), 2, Keep::Always);
    assert_eq!(kept.came, Came::PackedAndKept);
    let mapped = load(directory.path(), 2, Keep::Slow);
    assert_eq!(mapped.came, Came::Mapped);
    assert_eq!(mapped.packed, fresh.packed);
    assert!(logits(&mapped.model) == logits(&fresh.model));
    assert!(logits(&kept.model) == logits(&fresh.model));
    assert_eq!(load(directory.path(), 2, Keep::Never).came, Came::Packed, "not even read");
}

#[test]
fn what_does_not_fit_any_more_is_packed_again_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write_model(directory);
    let weights = directory.join("model.safetensors");
    let replaced = |what: &str| {
        let again = load(directory, 2, Keep::Slow);
        assert_eq!(again.came, Came::PackedAndKept, "{what}");
        let fresh = load(directory, 2, Keep::Never);
        assert!(logits(&again.model) == logits(&fresh.model), "{what}");
        let mapped = load(directory, 2, Keep::Slow);
        assert_eq!(mapped.came, Came::Mapped, "{what}");
        assert!(logits(&mapped.model) == logits(&fresh.model), "{what}");
        logits(&fresh.model)
    };
    load(directory, 2, Keep::Always);

    // Nothing shows that it was changed but the time. (Some systems count it in seconds.)
    let set_modified = |time: SystemTime| {
        std::fs::File::options().write(true).open(&weights).unwrap().set_modified(time).unwrap();
    };
    let later = SystemTime::now() + Duration::from_secs(10);
    set_modified(later);
    let before = replaced("a source with another time");

    // Nor the time: layers of images and packages have made-up ones. Length and head are what they were.
    std::fs::write(&weights, with_a_matrix_negated()).unwrap();
    set_modified(later);
    let after = replaced("a source that was changed");
    assert!(before != after, "the change shows in the logits");

    let mut config: Value = serde_json::from_slice(TARGET.config).unwrap();
    config["rms_norm_eps"] = 1e-3.into();
    std::fs::write(directory.join("config.json"), config.to_string()).unwrap();
    replaced("another config");

    let kept = directory.join(KEPT);
    let whole = std::fs::read(&kept).unwrap();
    std::fs::write(&kept, &whole[..whole.len() - 1]).unwrap();
    replaced("cut short");
    std::fs::write(&kept, b"").unwrap();
    replaced("empty");
    std::fs::write(&kept, [&whole[..100], &[!whole[100]], &whole[101..]].concat()).unwrap();
    replaced("damaged");
}

/// The target's weights with one matrix of bf16 negated.
fn with_a_matrix_negated() -> Vec<u8> {
    let checkpoint = Checkpoint::embedded("target", TARGET.weights).unwrap();
    let matrix = checkpoint.view("model.layers.1.mlp.up_proj.weight").unwrap();
    let start = matrix.data().as_ptr().addr() - TARGET.weights.as_ptr().addr();
    let mut bytes = TARGET.weights.to_vec();
    for number in bytes[start..][..matrix.data().len()].as_chunks_mut::<2>().0 {
        number[1] ^= 0x80;
    }
    bytes
}

#[test]
fn each_number_of_threads_has_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write_model(directory);
    for threads in [2, 1] {
        assert_eq!(load(directory, threads, Keep::Always).came, Came::PackedAndKept, "{threads}");
    }
    let fresh = logits(&load(directory, 2, Keep::Never).model);
    for threads in [2, 1, 2, 1] {
        let mapped = load(directory, threads, Keep::Always);
        assert_eq!(mapped.came, Came::Mapped, "{threads}");
        assert!(logits(&mapped.model) == fresh, "{threads}");
    }
}

/// `ladder bench` on a model, with a folder for caches of its own.
fn bench(directory: &Path, caches: &Path, more: &[&str]) -> (Value, String) {
    let model = directory.to_str().unwrap();
    let load = ["bench", "--json", "--prefill", "2", "--decode", "1", "--samples", "1"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.args(load).args(["--weights", "q8_0", "--threads", "2", "--model", model]).args(more);
    command.env("XDG_CACHE_HOME", caches).env("HOME", caches);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success() && !said.contains("panicked"), "{said}");
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    (report["runs"][0]["came"].clone(), said)
}

#[cfg(target_os = "linux")]
#[test]
fn one_line_says_what_became_of_the_file() {
    let (directory, caches) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (directory, caches) = (directory.path(), caches.path());
    write_model(directory);
    let kept = directory.join(KEPT);
    let (came, said) = bench(directory, caches, &[]);
    match kept.exists() {
        false => assert_eq!((came, said.as_str()), ("packed".into(), ""), "quick to pack: no file"),
        // On a machine that has much else to do, packing can take its second.
        true => std::fs::remove_file(&kept).unwrap(),
    }
    let (came, said) = bench(directory, caches, &["--keep", "always"]);
    assert_eq!(came, "packed_and_kept");
    assert!(said.contains("kept in") && said.contains(KEPT) && said.lines().count() == 1, "{said}");
    let (came, said) = bench(directory, caches, &[]);
    assert_eq!((came, said.as_str()), ("mapped".into(), ""));
    std::fs::write(&kept, b"something else").unwrap();
    let (came, said) = bench(directory, caches, &[]);
    assert_eq!(came, "packed_and_kept");
    assert!(said.contains(KEPT) && said.contains("packing again"), "{said}");
    assert_eq!(bench(directory, caches, &[]).0, "mapped");

    // Nothing can be written beside the model: the user's folder has it.
    std::fs::remove_file(&kept).unwrap();
    std::fs::create_dir(&kept).unwrap();
    let (came, said) = bench(directory, caches, &[]);
    assert_eq!(came, "packed_and_kept");
    assert!(said.contains("is no file") && said.contains("inference-ladder"), "{said}");
    assert_eq!(bench(directory, caches, &[]).0, "mapped");
    // Nor there: the model runs all the same.
    let (came, said) = bench(directory, Path::new("/dev/null"), &["--keep", "always"]);
    assert_eq!(came, "packed");
    assert!(said.contains("not kept"), "{said}");
}

#[test]
fn the_fast_mode_says_its_name() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.args(["bench", "--json", "--prefill", "2", "--decode", "1", "--samples", "1"]);
    command.args(["--weights", "bf16,bf16-fast"]);
    let Output { stdout, stderr, .. } = command.output().unwrap();
    let (report, said): (Value, _) =
        (serde_json::from_slice(&stdout).unwrap(), String::from_utf8(stderr).unwrap());
    let modes = [0, 1].map(|run| report["runs"][run]["mode"].as_str().unwrap().to_owned());
    assert_eq!(modes, ["exact", "fast"]);
    let has_some = Simd::within(Isa::best()).has_bf16_instructions();
    assert_eq!(said.contains("no instructions for BF16"), !has_some, "{said}");
}

/// A config of each family that makes matrices of others, or has more than Llama's.
const FAMILIES: [&str; 10] = [
    r#""architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1, 0]"#,
    r#""architectures": ["Qwen3ForCausalLM"]"#,
    r#""architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
       "sliding_window": 48, "sliding_window_pattern": 2, "rope_local_base_freq": 500.0"#,
    r#""architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 0.5"#,
    r#""architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": true"#,
    r#""architectures": ["Qwen3MoeForCausalLM"], "num_experts": 5, "num_experts_per_tok": 2,
       "moe_intermediate_size": 20, "norm_topk_prob": true"#,
    r#""architectures": ["Olmo3ForCausalLM"], "sliding_window": 3,
       "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512}"#,
    r#""architectures": ["GraniteForCausalLM"], "embedding_multiplier": 12.0,
       "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 3.0,
       "tie_word_embeddings": true"#,
    r#""architectures": ["Gemma2ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
       "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0"#,
    r#""architectures": ["DeepseekV2ForCausalLM"], "q_lora_rank": 20, "kv_lora_rank": 24,
       "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_shared_experts": 1,
       "moe_intermediate_size": 20, "n_routed_experts": 5, "num_experts_per_tok": 2,
       "first_k_dense_replace": 1, "routed_scaling_factor": 1.0, "topk_method": "greedy",
       "scoring_func": "softmax", "moe_layer_freq": 1, "norm_topk_prob": false"#,
];

fn family(own: &str) -> Architecture {
    // Latent attention has as many as heads.
    let kv_heads = if own.contains("kv_lora_rank") { 4 } else { 2 };
    let json = format!(
        r#"{{"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": {kv_heads}, "head_dim": 16, "intermediate_size": 64, "vocab_size": 97,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 1024, {own}}}"#
    );
    Architecture::from_json("config.json", json.as_bytes()).unwrap()
}

/// A matrix as if a file had it in this format.
fn kept(
    format: Format,
    name: &str,
    [outputs, inputs]: [usize; 2],
    tensors: Tensors,
) -> Result<Option<Rows<'static>>, Error> {
    let weights = tensors(name, &[outputs, inputs])?;
    Rows::encoded(format, &weights, outputs, inputs).map(Some)
}

#[test]
fn every_family_has_the_same_bits_fused() {
    // As many rows as experts take in two goes, many that they share out, and few.
    let prompts = [600, 90, 3, 1].map(|rows| Vec::from_iter((0..rows).map(|i| i * 31 % 97)));
    let run = |model: &Model| {
        let logits = prompts.iter().flat_map(|prompt| {
            let pass = Pass::one(Span::new(0, 0, prompt, Want::All));
            model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap()
        });
        Vec::from_iter(logits.map(f32::to_bits))
    };
    for own in FAMILIES {
        let architecture = family(own);
        let (options, stored) = (LoadOptions::default(), |_: &str| Ok(None::<Rows>));
        let plain = run(&architecture.random(9, options).unwrap());
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            let packer = Packer::new(Weights::As(Format::F32), Isa::best(), &pool, &stored);
            let fused = Fused::new(&packer, &pool);
            let fused = architecture.assemble(options, &random_tensors(9), &fused).unwrap();
            assert!(run(&fused) == plain, "{threads} threads, {own}");
        }
        // Values and what goes past the gate are stored otherwise than what they are stacked with elsewhere.
        let random = random_tensors(9);
        let stored = |name: &str| match name {
            _ if name.contains(".v_proj.") => kept(Format::F16, name, [32, 48], &random),
            _ if name.contains(".mlp.up_proj.") => kept(Format::F16, name, [64, 48], &random),
            _ => Ok(None),
        };
        let pool = Pool::new(2);
        let packer = Packer::new(Weights::AsStored, Isa::best(), &pool, &stored);
        let apart = run(&architecture.assemble(options, &random, &packer).unwrap());
        let fused = architecture.assemble(options, &random, &Fused::new(&packer, &pool)).unwrap();
        assert!(run(&fused) == apart, "{own}");
    }
}

#[test]
fn every_matrix_of_every_family_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.packed");
    let from = PackedFrom { sources: [1; 32], weights: Weights::As(Format::F16), threads: 2 };
    let random = random_tensors(9);
    // What is read though it is mapped: norms and biases.
    let small = |name: &str, shape: &[usize]| match shape {
        [_] => random(name, shape),
        _ => Err(Error::invalid("a matrix", name, "in the file")),
    };
    for own in FAMILIES {
        let architecture = family(own);
        let (options, pool) = (LoadOptions::default(), Pool::new(2));
        let stored = |_: &str| Ok(None::<Rows>);
        let packer = Packer::new(from.weights, Isa::best(), &pool, &stored);
        let fused = Fused::new(&packer, &pool);
        let fresh = architecture.assemble(options, &random, &fused).unwrap();
        packer.write(&path, &from).unwrap();
        let file = PackedFile::open(&path, &from).unwrap();
        let stored = |_: &str| Ok(None::<Rows>);
        let packer = Packer::new(from.weights, Isa::best(), &pool, &stored).with_file(&file);
        let fused = Fused::new(&packer, &pool);
        let mapped = architecture.assemble(options, &small, &fused).unwrap();
        assert!(logits(&mapped) == logits(&fresh), "{own}");
    }
}
