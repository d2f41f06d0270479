//! GGUF files with everything wrong that can be: each ends in one error that says what, where, and
//! what was expected, and none in a panic or in memory set aside for what is not there.

use crate::writer::{GgufFile, Meta, Tensor, text, texts, tiny};
use ladder_tests::watched::largest_while;
use model_files::{Gguf, ModelFiles};
use naive_decode::LoadOptions;
use proptest::prelude::*;
use std::path::Path;

/// Far more than a file of seven kilobytes needs, far less than a damaged size can say.
const ENOUGH: usize = 8 << 20;

/// Opens a file and reads all of it, in memory that is in proportion.
fn open(path: &Path) -> naive_decode::Result<()> {
    // A context of any length is no damage; tables for it are asked for here.
    let options = LoadOptions { context: Some(64), ..LoadOptions::default() };
    let load = || ModelFiles::open_gguf(path).and_then(|files| files.load(options));
    let (loaded, largest) = largest_while(load);
    assert!(largest < ENOUGH, "{largest} bytes were asked for at once");
    loaded.map(drop)
}

fn open_bytes(bytes: &[u8]) -> naive_decode::Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    open(&path)
}

fn assert_refused(file: &GgufFile, words: &[&str]) {
    let said = open_bytes(&file.bytes()).expect_err(&format!("{words:?} expected")).to_string();
    for word in words.iter().chain(&["model.gguf"]) {
        assert!(said.contains(word), "`{said}` lacks `{word}`");
    }
}

#[test]
fn a_file_that_nothing_is_wrong_with_opens() {
    open_bytes(&tiny().bytes()).unwrap();
}

#[test]
fn every_truncation_is_refused() {
    let bytes = tiny().bytes();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    for length in 0..bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let said = open(&path).expect_err(&format!("{length} of {} bytes", bytes.len()));
        assert!(said.to_string().contains("model.gguf"), "{length}: {said}");
    }
}

#[test]
fn files_that_are_something_else() {
    let with = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = tiny().bytes();
        edit(&mut bytes);
        open_bytes(&bytes).unwrap_err().to_string()
    };
    let said = with(&|bytes| bytes[..4].copy_from_slice(b"PK\x03\x04"));
    assert!(said.contains("PK") && said.contains("expected \"GGUF\""), "{said}");
    let said = with(&|bytes| bytes[4..8].copy_from_slice(&1_u32.to_le_bytes()));
    assert!(said.contains("version 1, expected 2 or 3"), "{said}");
    let said = with(&|bytes| bytes[4..8].copy_from_slice(&3_u32.to_be_bytes()));
    assert!(said.contains("big-endian"), "{said}");
    for (place, what) in [(8, "number of tensors"), (16, "number of metadata entries")] {
        let said = with(&|bytes| bytes[place..place + 8].copy_from_slice(&u64::MAX.to_le_bytes()));
        assert!(said.contains(what) && said.contains("at most"), "{said}");
        assert!(said.ends_with("it is truncated or damaged"), "{said}");
    }
}

/// Edits the bytes after the first place where `marker` stands.
fn after(bytes: &mut [u8], marker: &str, skip: usize, new: &[u8]) {
    let found = bytes.windows(marker.len()).position(|window| window == marker.as_bytes());
    let at = found.unwrap() + marker.len() + skip;
    bytes[at..at + new.len()].copy_from_slice(new);
}

#[test]
fn counts_and_lengths_that_no_file_could_hold() {
    let far = u64::MAX.to_le_bytes();
    // (marker, bytes between it and the number, what is said): a type is 4 bytes, an array's two.
    for (marker, skip, words) in [
        ("tokenizer.ggml.tokens", 8, ["length of `tokenizer.ggml.tokens`", "truncated or damaged"]),
        ("tokenizer.ggml.tokens", 16, ["`tokenizer.ggml.tokens`", "truncated or damaged"]),
        ("tokenizer.ggml.token_type", 8, ["tokenizer.ggml.token_type", "truncated or damaged"]),
        ("general.architecture", 4, ["`general.architecture`", "truncated or damaged"]),
        ("token_embd.weight", 4, ["tensor `token_embd.weight` has rows of", "Q8_0"]),
        ("token_embd.weight", 12, ["tensor `token_embd.weight` has shape", "no more than"]),
        ("blk.0.attn_q.weight", 24, ["`blk.0.attn_q.weight` begins at offset", "multiple of 32"]),
    ] {
        let mut bytes = tiny().bytes();
        after(&mut bytes, marker, skip, &far);
        let said = open_bytes(&bytes).unwrap_err().to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}

#[test]
fn tensors_that_overlap_or_lie_outside() {
    let place = |offset: u64| {
        let mut bytes = tiny().bytes();
        after(&mut bytes, "blk.0.attn_q.weight", 24, &offset.to_le_bytes());
        open_bytes(&bytes).unwrap_err().to_string()
    };
    let said = place(32);
    assert!(said.contains("attn_q") && said.contains("token_embd.weight` ends"), "{said}");
    let said = place(6_400);
    assert!(said.contains("attn_q") && said.contains("expected inside"), "{said}");
    let said = place(u64::MAX - 31);
    assert!(said.contains("attn_q") && said.contains("no more than"), "{said}");
}

#[test]
fn tensors_of_types_and_shapes_that_cannot_be() {
    let mut file = tiny();
    file.tensor("blk.0.ffn_up.weight").code = 21;
    assert_refused(&file, &["blk.0.ffn_up.weight", "type 21", "Q4_K"]);
    let mut file = tiny();
    file.tensor("blk.0.ffn_up.weight").shape = vec![32, 31];
    assert_refused(&file, &["blk.0.ffn_up.weight", "31", "blocks of 32"]);
    let mut file = tiny();
    file.tensor("blk.0.ffn_up.weight").shape = vec![0, 32];
    assert_refused(&file, &["blk.0.ffn_up.weight", "[0, 32]", "at least one"]);
    let mut file = tiny();
    file.tensor("blk.0.ffn_up.weight").shape = vec![1, 1, 1, 32, 32];
    assert_refused(&file, &["blk.0.ffn_up.weight", "5 dimensions", "1 to 4"]);
    let mut file = tiny();
    file.tensor("blk.0.ffn_up.weight").shape = vec![16, 64];
    assert_refused(&file, &["blk.0.ffn_up.weight", "[16, 64]", "[32, 32]"]);
    let mut file = tiny();
    file.tensors.retain(|tensor| tensor.name != "blk.0.ffn_up.weight");
    assert_refused(&file, &["blk.0.ffn_up.weight", "missing", "[32, 32]"]);
    let mut file = tiny();
    let again = file.tensor("blk.0.ffn_up.weight").clone();
    file.tensors.push(again);
    assert_refused(&file, &["blk.0.ffn_up.weight", "twice"]);
}

#[test]
fn tensors_that_a_llama_has_not() {
    let mut file = tiny();
    file.tensors.push(Tensor {
        name: "blk.0.attn_sinks.weight".into(),
        shape: vec![2],
        code: 0,
        bytes: vec![0; 8],
    });
    assert_refused(&file, &["blk.0.attn_sinks.weight", "llama"]);
    for name in [
        "blk.0.attn_q.bias",
        "blk.0.ffn_up.bias",
        "output_norm.bias",
        // There is one block.
        "blk.1.ffn_norm.weight",
        "blk.00.ffn_norm.weight",
    ] {
        file.tensors.last_mut().unwrap().name = name.into();
        assert_refused(&file, &[name, "known of a llama with llama.block_count 1"]);
    }
    file.tensors.last_mut().unwrap().name = "rope_freqs.weight".into();
    assert_refused(&file, &["rope_freqs.weight", "Llama 3"]);
    let ones = [1.0_f32; 2].map(f32::to_le_bytes).concat();
    file.tensors.last_mut().unwrap().bytes = ones;
    open_bytes(&file.bytes()).unwrap();
    // Llama 3's, for a base that makes the second frequency a slow one; and then another way besides.
    let divisors = [1.0_f32, 8.0].map(f32::to_le_bytes).concat();
    file.tensors.last_mut().unwrap().bytes = divisors;
    file.set("llama.rope.freq_base", Meta::F32(5e8));
    open_bytes(&file.bytes()).unwrap();
    file.set("llama.rope.scaling.type", text("linear"));
    assert_refused(&file, &["llama.rope.scaling.type", "linear", "rope_freqs.weight"]);
}

#[test]
fn weights_that_are_no_numbers() {
    let mut file = tiny();
    // The scale of the second block of 18 bytes: a NaN of half precision.
    file.tensor("blk.0.ffn_down.weight").bytes[18..20].copy_from_slice(&[0x00, 0x7e]);
    assert_refused(&file, &["blk.0.ffn_down.weight", "Q4_0", "NaN at 32", "finite"]);
    let mut file = tiny();
    let infinity = f32::INFINITY.to_le_bytes();
    file.tensor("output_norm.weight").bytes[8..12].copy_from_slice(&infinity);
    assert_refused(&file, &["output_norm.weight", "inf at 2", "finite"]);
}

#[test]
fn metadata_that_is_missing_or_of_another_kind() {
    for key in [
        "general.architecture",
        "llama.block_count",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
    ] {
        let mut file = tiny();
        file.remove(key);
        assert_refused(&file, &[key, "missing", "expected"]);
        file.set(key, Meta::Bool(true));
        assert_refused(&file, &[key, "expected"]);
    }
    let edits: [(&str, Meta, &[&str]); 22] = [
        ("general.architecture", text("mamba"), &["mamba", "one of: llama"]),
        ("general.alignment", Meta::U32(24), &["general.alignment", "24", "power of two"]),
        ("llama.attention.head_count_kv", Meta::U32(3), &["num_key_value_heads", "3", "2"]),
        ("llama.embedding_length", Meta::U32(0), &["hidden_size", "0"]),
        ("llama.embedding_length", Meta::U32(1 << 24), &["token_embd.weight", "[12, 32]"]),
        ("llama.embedding_length", Meta::U32(u32::MAX), &["hidden_size", "4294967295"]),
        ("llama.feed_forward_length", Meta::U32(1 << 24), &["ffn_gate.weight", "16777216"]),
        ("llama.block_count", Meta::U32(1 << 16), &["blk.1.attn_q.weight", "missing"]),
        ("llama.block_count", Meta::U32(1 << 24), &["num_hidden_layers", "16777216", "65536"]),
        (
            "llama.attention.head_count",
            Meta::U32(u32::MAX),
            &["head_count", "4294967295", "16777216"],
        ),
        ("llama.context_length", Meta::U32(0), &["max_position_embeddings", "0"]),
        ("llama.expert_count", Meta::U32(8), &["llama.expert_count", "8", "none"]),
        ("llama.rope.dimension_count", Meta::U32(8), &["partial_rotary_factor", "0.5", "1"]),
        ("llama.rope.freq_base", Meta::F32(f32::NAN), &["llama.rope.freq_base", "NaN", "finite"]),
        (
            "llama.rope.scaling.yarn_ext_factor",
            Meta::F32(0.5),
            &["`llama.rope.scaling.yarn_ext_factor` is 0.5", "1, or -1"],
        ),
        (
            "llama.rope.scaling.yarn_attn_factor",
            Meta::F32(0.75),
            &["`llama.rope.scaling.yarn_attn_factor` is 0.75", "expected 1"],
        ),
        (
            "llama.rope.scaling.attn_factor",
            Meta::F32(1.5),
            &["`llama.rope.scaling.attn_factor` is 1.5", "expected 1"],
        ),
        ("tokenizer.ggml.model", text("bert"), &["tokenizer.ggml.model", "bert", "gpt2"]),
        ("tokenizer.ggml.pre", text("odd"), &["tokenizer.ggml.pre", "odd", "smollm"]),
        ("tokenizer.ggml.merges", texts(["a b", "a c"]), &["merges", "\"a c\" at 1", "third"]),
        ("tokenizer.ggml.token_type", Meta::I32s(vec![1; 3]), &["3 values", "12 tokens"]),
        ("tokenizer.ggml.bos_token_id", Meta::U32(12), &["bos_token_id", "12", "below"]),
    ];
    for (key, value, words) in edits {
        let mut file = tiny();
        file.set(key, value);
        assert_refused(&file, words);
    }
    let mut file = tiny();
    file.set("tokenizer.chat_template", text("{% for m in %}"));
    assert_refused(&file, &["tokenizer.chat_template", "line 1", "syntax error"]);
    let mut file = tiny();
    file.metadata.push(("llama.block_count".into(), Meta::U32(1)));
    assert_refused(&file, &["llama.block_count", "twice"]);
}

#[test]
fn a_key_may_be_long_and_is_written_out_only_where_something_is_wrong() {
    const LONGEST: usize = 65_535;
    let directory = tempfile::tempdir().unwrap();
    let mut file = tiny();
    file.set(&"k".repeat(LONGEST), texts(["", "", ""]));
    let path = file.write(directory.path());
    let (opened, largest) = largest_while(|| Gguf::open(&path).map(drop));
    opened.unwrap();
    // The key itself is kept. Its value has a name that is longer.
    assert!(largest <= LONGEST, "{largest} bytes were asked for at once");
    file.set(&"k".repeat(LONGEST + 1), Meta::U32(1));
    assert_refused(&file, &["metadata key at byte", "65536 bytes", "at most 65535"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    /// Whatever bytes are changed: an error or a model, and no panic.
    #[test]
    fn damage_anywhere_is_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        header in any::<bool>(),
    ) {
        let mut bytes = tiny().bytes();
        // Half of the cases in the header, which is where damage has consequences.
        let range = if header { 2_000.min(bytes.len()) } else { bytes.len() };
        for (at, byte) in changes {
            bytes[at.index(range)] = byte;
        }
        if let Err(error) = open_bytes(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
