//! A model from safetensors and the same one from GGUF: the same shape, the same bits.

use super::checkpoint::{self as tiny, Checkpoint, tokens};
use super::conversion::as_gguf;
use crate::writer::{GgufFile, Meta, Tensor};
use model_files::{Gguf, ModelFiles};
use naive_decode::{LoadOptions, NaiveAttention, Pass, Span, Want};
use serde_json::{Value, json};

fn logits(files: &ModelFiles) -> Vec<u32> {
    let model = files.load(LoadOptions::default()).unwrap();
    let pass = Pass::one(Span::new(0, 0, &tokens(30), Want::All));
    let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// The same from both kinds of file; `name` is GGUF's of the architecture.
fn compare(config: Value, name: &str, split: bool) {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::random(config);
    checkpoint.write(directory.path());
    let path = as_gguf(&checkpoint, name, split).write(directory.path());
    let plain = ModelFiles::open_directory(directory.path()).unwrap();
    let gguf = ModelFiles::open_gguf(&path).unwrap();
    assert_eq!(gguf.config, plain.config, "{name}");
    for (tensor, (shape, values)) in &checkpoint.tensors {
        let read = gguf.tensor(tensor, shape).unwrap();
        let plus_one = name.starts_with("gemma") && tensor.ends_with("norm.weight");
        let stored = values.iter().map(|v| if plus_one { v + 1.0 } else { *v });
        assert!(read.iter().copied().eq(stored), "{name}: {tensor}");
    }
    assert!(logits(&gguf) == logits(&plain), "{name}: other logits");
}

#[test]
fn llama_from_gguf_is_llama() {
    compare(tiny::llama(), "llama", false);
}

#[test]
fn mistral_from_gguf_is_mistral() {
    compare(tiny::mistral(), "llama", false);
}

/// GGUF does not say which layers do not turn: it is every fourth, as in llama.cpp.
#[test]
fn smollm3_from_gguf_is_smollm3() {
    let config =
        tiny::with(tiny::smollm3(), json!({ "num_hidden_layers": 5, "no_rope_layers": null }));
    compare(config.clone(), "smollm3", false);
    let listed = tiny::with(config, json!({ "no_rope_layers": [1, 1, 1, 0, 1] }));
    compare(listed, "smollm3", false);
}

#[test]
fn qwen2_from_gguf_is_qwen2() {
    compare(tiny::qwen2(), "qwen2", false);
}

#[test]
fn qwen3_from_gguf_is_qwen3() {
    compare(tiny::qwen3(), "qwen3", false);
}

#[test]
fn qwen3s_experts_from_gguf_are_qwen3s() {
    compare(tiny::qwen3_moe(), "qwen3moe", false);
}

#[test]
fn phi3_from_gguf_is_phi3() {
    compare(tiny::phi3(), "phi3", false);
    compare(tiny::phi3_partly(), "phi3", false);
    compare(tiny::with(tiny::phi3(), json!({ "sliding_window": 9 })), "phi3", false);
}

#[test]
fn a_factor_on_rope_is_phi3s_where_its_rope_is_stretched() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = as_gguf(&Checkpoint::random(tiny::phi3()), "phi3", false);
    file.set("phi3.rope.scaling.attn_factor", Meta::F32(1.5));
    let open = |file: &GgufFile| ModelFiles::open_gguf(&file.write(directory.path())).map(drop);
    let said = open(&file).unwrap_err().to_string();
    assert!(said.contains("`phi3.rope.scaling.attn_factor` is 1.5, expected 1"), "{said}");
    file.set("phi3.rope.scaling.original_context_length", Meta::U32(16));
    for name in ["rope_factors_short.weight", "rope_factors_long.weight"] {
        let bytes = [1.0_f32; 6].map(f32::to_le_bytes).concat();
        file.tensors.push(Tensor { name: name.into(), shape: vec![6], code: 0, bytes });
    }
    open(&file).unwrap();
    for (factor, words) in [
        (-1.5, "attention_factor is -1.5, expected a number above 0"),
        (f32::NAN, "a finite number"),
    ] {
        file.set("phi3.rope.scaling.attn_factor", Meta::F32(factor));
        let said = open(&file).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn divisors_of_rope_are_no_weights() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = as_gguf(&Checkpoint::random(tiny::phi3()), "phi3", false);
    let parameters =
        |file: &GgufFile| Gguf::open(&file.write(directory.path())).unwrap().parameters();
    let plain = parameters(&file);
    for name in ["rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"] {
        let bytes = [1.0_f32; 6].map(f32::to_le_bytes).concat();
        file.tensors.push(Tensor { name: name.into(), shape: vec![6], code: 0, bytes });
        assert_eq!(parameters(&file), plain, "{name}");
    }
}

#[test]
fn granite_from_gguf_is_granite() {
    compare(tiny::granite(), "granite", false);
    let apart = json!({ "tie_word_embeddings": false, "head_dim": null });
    compare(tiny::with(tiny::granite(), apart), "granite", false);
}

/// As in llama.cpp; 0 says that there is none.
#[test]
fn what_a_granite_from_gguf_leaves_out_is_as_llama_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let open = |file: &GgufFile| ModelFiles::open_gguf(&file.write(directory.path())).unwrap();
    let root = f64::from(1.0 / 12_f32.sqrt());
    for (key, field, as_llama) in [
        ("granite.embedding_scale", "embedding_multiplier", 1.0),
        ("granite.residual_scale", "residual_multiplier", 1.0),
        ("granite.attention.scale", "attention_multiplier", root),
        ("granite.logit_scale", "logits_scaling", 1.0),
    ] {
        let config = tiny::with(tiny::granite(), json!({ field: as_llama }));
        let said = logits(&open(&as_gguf(&Checkpoint::random(config), "granite", false)));
        let mut file = as_gguf(&Checkpoint::random(tiny::granite()), "granite", false);
        assert!(logits(&open(&file)) != said, "{key}");
        file.set(key, Meta::F32(0.0));
        assert!(logits(&open(&file)) == said, "{key}, 0");
        file.remove(key);
        assert!(logits(&open(&file)) == said, "{key}, left out");
    }
}

#[test]
fn factors_and_turns_that_no_granite_has_are_refused_by_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = as_gguf(&Checkpoint::random(tiny::granite()), "granite", false);
    let said = |key: &str, value: Meta| {
        let mut file = file.clone();
        file.set(key, value);
        let opened = ModelFiles::open_gguf(&file.write(directory.path()));
        opened.map(drop).map_err(|error| error.to_string())
    };
    let key = "granite.rope.scaling.finetuned";
    said(key, Meta::Bool(true)).unwrap();
    let still = said(key, Meta::Bool(false)).unwrap_err();
    assert!(still.contains(&format!("metadata `{key}` is false, expected true")), "{still}");
    let negative = said("granite.residual_scale", Meta::F32(-0.5)).unwrap_err();
    assert!(
        negative.contains("residual_multiplier is -0.5, expected a number above 0"),
        "{negative}"
    );
    let experts = said("granite.expert_count", Meta::U32(4)).unwrap_err();
    assert!(experts.contains("`granite.expert_count` is 4, expected none"), "{experts}");
}

#[test]
fn olmo2_from_gguf_is_olmo2() {
    compare(tiny::olmo2(), "olmo2", false);
    compare(tiny::with(tiny::olmo2(), json!({ "tie_word_embeddings": true })), "olmo2", false);
}

/// `compare` asks for the same config, in which 32 bits are not enough for YaRN's factor.
#[test]
fn olmo3_from_gguf_is_olmo3() {
    let directory = tempfile::tempdir().unwrap();
    let plain = tiny::with(tiny::olmo3(), json!({ "rope_scaling": null }));
    compare(plain, "olmo2", false);
    let checkpoint = Checkpoint::random(tiny::olmo3());
    checkpoint.write(directory.path());
    let expected = logits(&ModelFiles::open_directory(directory.path()).unwrap());
    let mut file = as_gguf(&checkpoint, "olmo2", false);
    let open = |file: &GgufFile| ModelFiles::open_gguf(&file.write(directory.path()));
    let read = |file: &GgufFile| logits(&open(file).unwrap());
    assert!(read(&file) == expected);
    let key = "olmo2.attention.sliding_window_pattern";
    // All layers but every so-manieth, as llama.cpp reads it, too.
    file.set(key, Meta::U32(3));
    assert!(read(&file) == expected);
    file.set(key, Meta::Bools(vec![true, false, true]));
    assert!(read(&file) != expected);
    for (value, words) in [
        (Meta::Bools(vec![true; 2]), "layer_types is a list of 2, expected one for each of the 3"),
        (Meta::I32s(vec![1; 3]), "an array of I32, expected an array of true and false"),
        (Meta::U32(0), "sliding_window_pattern is 0"),
    ] {
        file.set(key, value);
        let said = open(&file).map(drop).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    // A window of 0 is none, and the list then of no account.
    file.set("olmo2.attention.sliding_window", Meta::U32(0));
    let stretched = json!({ "architectures": ["Olmo2ForCausalLM"], "layer_types": null });
    Checkpoint { config: tiny::with(tiny::olmo3(), stretched), ..checkpoint }
        .write(directory.path());
    assert!(read(&file) == logits(&ModelFiles::open_directory(directory.path()).unwrap()));
}

#[test]
fn windows_of_a_gemma_3_may_be_listed() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = as_gguf(&Checkpoint::random(tiny::gemma3()), "gemma3", false);
    let read =
        |file: &GgufFile| logits(&ModelFiles::open_gguf(&file.write(directory.path())).unwrap());
    let expected = read(&file);
    let key = "gemma3.attention.sliding_window_pattern";
    file.set(key, Meta::Bools(vec![true, true, false]));
    assert!(read(&file) == expected);
    file.set(key, Meta::Bools(vec![false, true, false]));
    assert!(read(&file) != expected);
    file.remove("gemma3.attention.sliding_window");
    let without = read(&file);
    file.remove(key);
    assert!(read(&file) == without && without != expected);
}

/// The same from `attention_factor`, which is the whole, and from `attn_factor`, which is what the usual one is times.
#[test]
fn yarns_factor_is_told_from_what_it_is_times() {
    let directory = tempfile::tempdir().unwrap();
    let usual = 0.1 * 4f64.ln() + 1.0;
    let scaling = |fields: Value| {
        let yarn =
            json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16 });
        tiny::with(tiny::qwen3(), json!({ "rope_scaling": tiny::with(yarn, fields) }))
    };
    let logits_of = |config: Value| {
        Checkpoint::random(config).write(directory.path());
        logits(&ModelFiles::open_directory(directory.path()).unwrap())
    };
    let from = |fields: Value, said: &[(&str, f64)]| {
        let mut file = as_gguf(&Checkpoint::random(scaling(fields)), "qwen3", false);
        for (key, number) in said {
            file.set(&format!("qwen3.rope.scaling.{key}"), Meta::F32(*number as f32));
        }
        ModelFiles::open_gguf(&file.write(directory.path()))
    };
    let read = |said: &[(&str, f64)]| logits(&from(json!({}), said).unwrap());
    let as_usual = logits_of(scaling(json!({})));
    // What is no power of two has one value in 32 bits and another in 64.
    let times = |times: f64| logits_of(scaling(json!({ "attn_factor": f64::from(times as f32) })));
    assert!(read(&[]) == as_usual && times(0.75) != as_usual);
    assert!(read(&[("yarn_attn_factor", usual)]) == as_usual);
    assert!(read(&[("yarn_attn_factor", 1.0)]) == as_usual);
    assert!(read(&[("yarn_attn_factor", 1.0 / usual)]) == times(1.0 / usual));
    assert!(read(&[("attn_factor", 0.75)]) == times(0.75));
    assert!(read(&[("attn_factor", 0.75), ("yarn_attn_factor", usual)]) == times(0.75));
    for said in [
        &[("yarn_attn_factor", 0.75)][..],
        &[("attn_factor", 0.75), ("yarn_attn_factor", 1.0 / usual)],
    ] {
        let said = from(json!({}), said).map(drop).unwrap_err().to_string();
        let words = "expected 1, YaRN's factor 1.1386, or one by that";
        assert!(said.contains("yarn_attn_factor` is 0.") && said.contains(words), "{said}");
    }
    let said = from(json!({}), &[("attn_factor", -1.0)]).unwrap().load(LoadOptions::default());
    let said = said.map(drop).unwrap_err().to_string();
    assert!(said.contains("attn_factor is -1.0, expected a number above 0"), "{said}");
}

#[test]
fn gemma2_from_gguf_is_gemma2() {
    compare(tiny::gemma2(), "gemma2", false);
}

/// As in llama.cpp; 0 says that there is none.
#[test]
fn what_a_gemma2_from_gguf_leaves_out_is_as_usual() {
    let directory = tempfile::tempdir().unwrap();
    let usual = json!({ "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "sliding_window": 4096 });
    let mut checkpoint = Checkpoint::random(tiny::with(tiny::gemma2(), usual));
    for (name, (_, values)) in &mut checkpoint.tensors {
        // Scores that a cap of 50 shows in.
        if name.ends_with("q_proj.weight") {
            values.iter_mut().for_each(|value| *value *= 32.0);
        }
    }
    let mut file = as_gguf(&checkpoint, "gemma2", false);
    let open = |file: &GgufFile| ModelFiles::open_gguf(&file.write(directory.path())).unwrap();
    let capped = logits(&open(&file));
    for (part, none) in [
        ("attn_logit_softcapping", Meta::F32(0.0)),
        ("final_logit_softcapping", Meta::F32(0.0)),
        ("attention.sliding_window", Meta::U32(0)),
    ] {
        let key = format!("gemma2.{part}");
        let told = file.metadata.iter().position(|(name, _)| *name == key).expect(&key);
        let (_, told) = file.metadata.remove(told);
        let silent = open(&file);
        assert_eq!(silent.windows(), [Some(4096), None, Some(4096)], "{part}");
        assert!(logits(&silent) == capped, "{part}");
        file.set(&key, none);
        let none = open(&file);
        match part {
            "attention.sliding_window" => assert_eq!(none.windows(), [None; 3]),
            _ => assert!(logits(&none) != capped, "{part}"),
        }
        file.set(&key, told);
    }
}

#[test]
fn gemma3_from_gguf_is_gemma3() {
    compare(tiny::gemma3(), "gemma3", false);
}

#[test]
fn deepseek_from_gguf_is_deepseek_in_one_part_and_in_two() {
    for split in [false, true] {
        compare(tiny::deepseek2(), "deepseek2", split);
        compare(tiny::deepseek3(), "deepseek2", split);
    }
}
