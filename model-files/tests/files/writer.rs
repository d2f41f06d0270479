//! Writes GGUF files for tests: well-formed ones, and whatever a test then does to the bytes.

use std::path::{Path, PathBuf};

/// A metadata value.
#[derive(Clone)]
pub(crate) enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    Bools(Vec<bool>),
}

/// A tensor: its name, its shape with the outermost dimension first, ggml's number of its type, and
/// its bytes.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) code: u32,
    pub(crate) bytes: Vec<u8>,
}

/// A file to be.
#[derive(Clone)]
pub(crate) struct GgufFile {
    pub(crate) version: u32,
    pub(crate) metadata: Vec<(String, Meta)>,
    pub(crate) tensors: Vec<Tensor>,
}

pub(crate) fn text(text: &str) -> Meta {
    Meta::Text(text.into())
}

pub(crate) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Meta {
    Meta::Texts(texts.into_iter().map(Into::into).collect())
}

impl GgufFile {
    pub(crate) fn set(&mut self, key: &str, value: Meta) {
        self.remove(key);
        self.metadata.push((key.into(), value));
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.metadata.retain(|(known, _)| known != key);
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            write_text(&mut out, key);
            write_value(&mut out, value);
        }
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            write_text(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            for size in tensor.shape.iter().rev() {
                out.extend(size.to_le_bytes());
            }
            out.extend(tensor.code.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += (tensor.bytes.len() as u64).next_multiple_of(32);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(&tensor.bytes);
        }
        out
    }

    /// The same in `count` files, as `gguf-split` has it: tensors in turn, metadata in the first.
    pub(crate) fn parts(&self, count: usize) -> Vec<GgufFile> {
        let mut parts: Vec<GgufFile> = (0..count)
            .map(|number| {
                let metadata = if number == 0 { self.metadata.clone() } else { Vec::new() };
                let tensors = self.tensors.iter().skip(number).step_by(count).cloned().collect();
                let mut part = GgufFile { version: self.version, metadata, tensors };
                part.set("split.no", Meta::U32(number as u32));
                part.set("split.count", Meta::U32(count as u32));
                part
            })
            .collect();
        parts[0].set("split.tensors.count", Meta::U32(self.tensors.len() as u32));
        parts
    }

    pub(crate) fn write(&self, directory: &Path) -> PathBuf {
        let path = directory.join("model.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn write_value(out: &mut Vec<u8>, value: &Meta) {
    let code = |value: &Meta| match value {
        Meta::U32(_) => 4_u32,
        Meta::F32(_) => 6,
        Meta::Bool(_) => 7,
        Meta::Text(_) => 8,
        Meta::Texts(_) | Meta::I32s(_) | Meta::F32s(_) | Meta::Bools(_) => 9,
    };
    out.extend(code(value).to_le_bytes());
    let mut array = |element: u32, count: usize, bytes: Vec<u8>| {
        out.extend(element.to_le_bytes());
        out.extend((count as u64).to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Meta::U32(n) => out.extend(n.to_le_bytes()),
        Meta::F32(x) => out.extend(x.to_le_bytes()),
        Meta::Bool(flag) => out.push((*flag).into()),
        Meta::Text(text) => write_text(out, text),
        Meta::Texts(texts) => {
            let mut bytes = Vec::new();
            texts.iter().for_each(|text| write_text(&mut bytes, text));
            array(8, texts.len(), bytes);
        }
        Meta::I32s(numbers) => {
            array(5, numbers.len(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect());
        }
        Meta::F32s(numbers) => {
            array(6, numbers.len(), numbers.iter().flat_map(|x| x.to_le_bytes()).collect());
        }
        Meta::Bools(flags) => {
            array(7, flags.len(), flags.iter().map(|&flag| flag.into()).collect())
        }
    }
}

/// The smallest model that has one of everything: one block, 32 wide, 2 query heads and 1 key-value
/// head of 16, 12 tokens.
pub(crate) fn tiny() -> GgufFile {
    let mut tokens: Vec<&str> = "a b c d e f Ġ ab Ġa cd".split(' ').collect();
    tokens.extend(["<|begin|>", "<|end|>"]);
    let mut kinds = vec![1; 10];
    kinds.extend([3, 3]);
    let metadata = [
        ("general.architecture", text("llama")),
        ("llama.block_count", Meta::U32(1)),
        ("llama.context_length", Meta::U32(64)),
        ("llama.embedding_length", Meta::U32(32)),
        ("llama.feed_forward_length", Meta::U32(32)),
        ("llama.attention.head_count", Meta::U32(2)),
        ("llama.attention.head_count_kv", Meta::U32(1)),
        ("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5)),
        ("llama.rope.freq_base", Meta::F32(1e4)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("smollm")),
        ("tokenizer.ggml.tokens", texts(tokens)),
        ("tokenizer.ggml.token_type", Meta::I32s(kinds)),
        ("tokenizer.ggml.merges", texts(["a b", "Ġ a", "c d"])),
        ("tokenizer.ggml.bos_token_id", Meta::U32(10)),
        ("tokenizer.ggml.eos_token_id", Meta::U32(11)),
        (
            "tokenizer.chat_template",
            text("{% for m in messages %}<|begin|>{{ m.content }}<|end|>{% endfor %}"),
        ),
    ];
    let metadata = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut file = GgufFile { version: 3, metadata, tensors: Vec::new() };
    let mut add = |name: &str, shape: &[u64], code: u32, block: usize, bytes: usize| {
        let blocks = shape.iter().product::<u64>() as usize / block;
        // Small integers everywhere: as scales, half-precision numbers near zero.
        let bytes = (0..blocks * bytes).map(|i| (i * 7 % 48) as u8).collect();
        file.tensors.push(Tensor { name: name.into(), shape: shape.into(), code, bytes });
    };
    add("token_embd.weight", &[12, 32], 8, 32, 34);
    add("output_norm.weight", &[32], 0, 1, 4);
    for (name, shape, code, bytes) in [
        ("attn_q", [32, 32], 2, 18),
        ("attn_k", [16, 32], 3, 20),
        ("attn_v", [16, 32], 6, 22),
        ("attn_output", [32, 32], 7, 24),
        ("ffn_gate", [32, 32], 8, 34),
        ("ffn_up", [32, 32], 2, 18),
        ("ffn_down", [32, 32], 2, 18),
    ] {
        add(&format!("blk.0.{name}.weight"), &shape, code, 32, bytes);
    }
    for name in ["attn_norm", "ffn_norm"] {
        add(&format!("blk.0.{name}.weight"), &[32], 0, 1, 4);
    }
    file
}
