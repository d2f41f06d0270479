//! What GGUF calls things, by architecture.

use super::metadata::Metadata;
use naive_decode::{Error, Result};

/// How one `general.architecture` is written down.
pub(super) struct Architecture {
    /// The value of `general.architecture`, and the prefix of its metadata.
    pub(super) name: &'static str,
    /// What `config.json` calls it.
    pub(super) hugging_face: &'static str,
    /// Whether queries and keys were reordered so that RoPE turns neighbours.
    permuted: bool,
}

/// Every architecture that is read.
const ARCHITECTURES: [Architecture; 1] =
    [Architecture { name: "llama", hugging_face: "LlamaForCausalLM", permuted: true }];

/// Tensors outside the blocks: Hugging Face's name and GGUF's.
const OUTER: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// Tensors of a block, after `model.layers.N.` there and `blk.N.` here.
const INNER: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The tensor that some files keep beside them: divisors of RoPE's frequencies.
pub(super) const ROPE_DIVISORS: &str = "rope_freqs.weight";

impl Architecture {
    /// The architecture that a file names.
    ///
    /// # Errors
    /// If it names none, or one that is not in the table.
    pub(super) fn of(metadata: &Metadata) -> Result<&'static Self> {
        let key = "general.architecture";
        let known = ARCHITECTURES.map(|known| known.name).join(", ");
        let name = metadata.text(key)?.ok_or_else(|| metadata.missing(key, &known))?;
        let found = ARCHITECTURES.iter().find(|known| known.name == name);
        found.ok_or_else(|| metadata.mismatch(key, name, &format!("one of: {known}")))
    }

    /// Query heads and key-value heads.
    ///
    /// # Errors
    /// If there is no whole number of them.
    pub(super) fn heads(&self, metadata: &Metadata) -> Result<[usize; 2]> {
        let heads = |part: &str| metadata.integer(&self.key(part));
        let queries = heads("attention.head_count")?.ok_or_else(|| {
            metadata.missing(&self.key("attention.head_count"), "the number of heads")
        })?;
        let keys = heads("attention.head_count_kv")?.unwrap_or(queries);
        let small = |n: u64| {
            usize::try_from(n).map_err(|_| Error::file(metadata.file, format!("{n} heads")))
        };
        Ok([small(queries)?, small(keys)?])
    }

    /// The key of a size: `block_count` → `llama.block_count`.
    pub(super) fn key(&self, part: &str) -> String {
        format!("{}.{part}", self.name)
    }

    /// What the file calls the tensor that Hugging Face calls `name`.
    pub(super) fn name_in_file(&self, name: &str) -> Option<String> {
        let (stem, ending) = name.rsplit_once('.')?;
        if let Some((_, outer)) = OUTER.iter().find(|(known, _)| *known == stem) {
            return Some(format!("{outer}.{ending}"));
        }
        let (layer, part) = stem.strip_prefix("model.layers.")?.split_once('.')?;
        let (_, inner) = INNER.iter().find(|(known, _)| *known == part)?;
        Some(format!("blk.{layer}.{inner}.{ending}"))
    }

    /// Whether `name`, as the file has it, is a tensor whose place is known.
    pub(super) fn knows(&self, name: &str) -> bool {
        let Some((stem, "weight" | "bias")) = name.rsplit_once('.') else { return false };
        let inner = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        match inner {
            Some((_, part)) => INNER.iter().any(|(_, own)| *own == part),
            None => name == ROPE_DIVISORS || OUTER.iter().any(|(_, own)| *own == stem),
        }
    }

    /// What errors call the tensor that Hugging Face calls `name`: as the file does, if it can have
    /// it.
    pub(super) fn described(&self, name: &str) -> String {
        self.name_in_file(name).unwrap_or_else(|| name.to_owned())
    }

    /// The number of heads among whose rows `name`'s were reordered, if they were.
    pub(super) fn heads_to_unpermute(&self, name: &str, heads: [usize; 2]) -> Option<usize> {
        let part = name.rsplit('.').nth(1)?;
        match part {
            "q_proj" if self.permuted => Some(heads[0]),
            "k_proj" if self.permuted => Some(heads[1]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_file_has() {
        let llama = &ARCHITECTURES[0];
        let named = |name| llama.name_in_file(name);
        assert_eq!(named("lm_head.weight").as_deref(), Some("output.weight"));
        assert_eq!(
            named("model.layers.12.self_attn.o_proj.weight").as_deref(),
            Some("blk.12.attn_output.weight")
        );
        assert_eq!(named("model.layers.12.self_attn.o_proj"), None);
        assert_eq!(named("visual.weight"), None);
        assert_eq!(
            llama.heads_to_unpermute("model.layers.0.self_attn.k_proj.weight", [9, 3]),
            Some(3)
        );
        assert_eq!(
            llama.heads_to_unpermute("model.layers.0.self_attn.v_proj.weight", [9, 3]),
            None
        );
    }
}
