//! What GGUF calls things, by architecture.

mod names;

use super::metadata::Metadata;
use naive_decode::Result;
use names::{
    EXPERTS, FUSED, LATENT, LLAMA_NORMS, NORMS_BEFORE, NORMS_BEHIND, Names, OUTER, QK_NORMS,
    QKV_BIASES, ROUTER_BIASES, SEPARATE, SHARED, SHARED_EXPERTS,
};

/// How one `general.architecture` is written down.
pub(super) struct Dialect {
    /// The value of `general.architecture`, and the prefix of its metadata.
    pub(super) name: &'static str,
    /// What `config.json` calls it.
    pub(super) hugging_face: &'static str,
    /// Whether queries and keys were reordered so that RoPE turns neighbours.
    permuted: bool,
    /// Tensors of a block that have biases.
    biases: &'static [&'static str],
    /// Tensors of a block.
    inner: &'static [&'static [Names]],
}

/// Every architecture that is read.
const DIALECTS: [Dialect; 11] = [
    dialect("llama", "LlamaForCausalLM", &[SHARED, SEPARATE, LLAMA_NORMS]).permuted(),
    dialect("smollm3", "SmolLM3ForCausalLM", &[SHARED, SEPARATE, LLAMA_NORMS]).permuted(),
    dialect("qwen2", "Qwen2ForCausalLM", &[SHARED, SEPARATE, LLAMA_NORMS]).with(QKV_BIASES),
    dialect("qwen3", "Qwen3ForCausalLM", &[SHARED, SEPARATE, LLAMA_NORMS, QK_NORMS]),
    dialect("qwen3moe", "Qwen3MoeForCausalLM", &[SHARED, SEPARATE, LLAMA_NORMS, QK_NORMS, EXPERTS]),
    dialect("phi3", "Phi3ForCausalLM", &[SHARED, FUSED, LLAMA_NORMS]),
    dialect("granite", "GraniteForCausalLM", &[SHARED, SEPARATE, LLAMA_NORMS]).permuted(),
    dialect("olmo2", "Olmo2ForCausalLM", &[SHARED, SEPARATE, NORMS_BEHIND, QK_NORMS]),
    dialect("gemma2", "Gemma2ForCausalLM", &[SHARED, SEPARATE, NORMS_BEFORE, NORMS_BEHIND]),
    dialect(
        "gemma3",
        "Gemma3ForCausalLM",
        &[SHARED, SEPARATE, NORMS_BEFORE, NORMS_BEHIND, QK_NORMS],
    ),
    dialect(
        "deepseek2",
        "DeepseekV2ForCausalLM",
        &[SHARED, SEPARATE, LLAMA_NORMS, LATENT, EXPERTS, SHARED_EXPERTS],
    )
    .with(ROUTER_BIASES),
];

const fn dialect(
    name: &'static str,
    hugging_face: &'static str,
    inner: &'static [&'static [Names]],
) -> Dialect {
    Dialect { name, hugging_face, permuted: false, biases: &[], inner }
}

/// More heads than any model has, and few enough to be multiplied by whatever a shape holds.
const MOST_HEADS: u64 = 1 << 24;

/// Tensors outside the blocks that are read before the model is: divisors of RoPE's frequencies,
/// Llama 3's, and longrope's for short texts and for long ones.
pub(super) const ROPE_DIVISORS: &str = "rope_freqs.weight";
pub(super) const SHORT_DIVISORS: &str = "rope_factors_short.weight";
pub(super) const LONG_DIVISORS: &str = "rope_factors_long.weight";

impl Dialect {
    const fn permuted(mut self) -> Self {
        self.permuted = true;
        self
    }

    const fn with(mut self, biases: &'static [&'static str]) -> Self {
        self.biases = biases;
        self
    }

    /// The dialect of the architecture that a file names.
    ///
    /// # Errors
    /// If it names none, or one that is not in the table.
    pub(super) fn of(metadata: &Metadata) -> Result<&'static Self> {
        let key = "general.architecture";
        let known: Vec<_> = DIALECTS.iter().map(|known| known.name).collect();
        let known = known.join(", ");
        let name = metadata.text(key)?.ok_or_else(|| metadata.missing(key, &known))?;
        let found = DIALECTS.iter().find(|known| known.name == name);
        found.ok_or_else(|| metadata.mismatch(key, name, &format!("one of: {known}")))
    }

    /// Query heads and key-value heads.
    ///
    /// # Errors
    /// If there is no whole number of them, or more than any model has.
    pub(super) fn heads(&self, metadata: &Metadata) -> Result<[usize; 2]> {
        let heads = |part: &str| {
            let key = self.key(part);
            let Some(count) = metadata.integer(&key)? else { return Ok(None) };
            match count {
                // No loss: the most fits every `usize`.
                0..=MOST_HEADS => Ok(Some(count as usize)),
                _ => {
                    let expected = format!("at most {MOST_HEADS}");
                    Err(metadata.mismatch(&key, &count.to_string(), &expected))
                }
            }
        };
        let queries = heads("attention.head_count")?.ok_or_else(|| {
            metadata.missing(&self.key("attention.head_count"), "the number of heads")
        })?;
        let keys = heads("attention.head_count_kv")?.unwrap_or(queries);
        Ok([queries, keys])
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
        if ending == names::CORRECTION.0 && part == "mlp.gate" {
            return Some(format!("blk.{layer}.{}", names::CORRECTION.1));
        }
        let (_, inner) = self.names().find(|(known, _)| *known == part)?;
        Some(format!("blk.{layer}.{inner}.{ending}"))
    }

    /// Whether `name`, as the file has it, is a tensor whose place in a model of so many blocks is known.
    pub(super) fn knows(&self, name: &str, blocks: u64) -> bool {
        let Some((stem, ending)) = name.rsplit_once('.') else { return false };
        let inner = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let Some((block, part)) = inner else {
            return [ROPE_DIVISORS, SHORT_DIVISORS, LONG_DIVISORS].contains(&name)
                || ending == "weight" && OUTER.iter().any(|(_, own)| *own == stem);
        };
        let number = block.parse().ok().filter(|number: &u64| number.to_string() == block);
        number.is_some_and(|number| number < blocks)
            && match ending {
                "weight" => self.names().any(|(_, own)| *own == part),
                "bias" => self.biases.contains(&part),
                _ => false,
            }
    }

    fn names(&self) -> impl Iterator<Item = &'static Names> {
        self.inner.iter().flat_map(|names| names.iter())
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
    use super::super::cursor::Cursor;
    use super::super::value::Entry;
    use super::*;
    use std::collections::BTreeMap;

    /// What a llama's file with these numbers of heads says, if they are accepted.
    fn heads(queries: u64, keys: u64) -> Result<[usize; 2]> {
        // 10 is GGUF's number of u64.
        let value = |n: u64| [&10_u32.to_le_bytes()[..], &n.to_le_bytes()].concat();
        let bytes = [value(queries), value(keys)].concat();
        let mut cursor = Cursor { file: "file", bytes: &bytes, at: 0 };
        let mut entries = BTreeMap::new();
        for key in ["llama.attention.head_count", "llama.attention.head_count_kv"] {
            entries.insert(key.to_owned(), Entry::read(&mut cursor, key)?);
        }
        DIALECTS[0].heads(&Metadata { file: "file", bytes: &bytes, entries: &entries })
    }

    #[test]
    fn more_heads_than_any_model_has_are_refused() {
        assert_eq!(heads(9, 3).unwrap(), [9, 3]);
        assert_eq!(heads(MOST_HEADS, MOST_HEADS).unwrap(), [1 << 24; 2]);
        for many in [MOST_HEADS + 1, 1 << 63, (1 << 63) + 1, u64::MAX] {
            for (queries, keys, key) in [(many, 1, "head_count`"), (2, many, "head_count_kv`")] {
                let said = heads(queries, keys).unwrap_err().to_string();
                let expected = format!("{key} is {many}, expected at most 16777216");
                assert!(said.contains(&expected), "{said}");
            }
        }
    }

    #[test]
    fn names_are_those_that_the_file_has() {
        let llama = &DIALECTS[0];
        let named = |name| llama.name_in_file(name);
        assert_eq!(named("lm_head.weight").as_deref(), Some("output.weight"));
        assert_eq!(
            named("model.layers.12.self_attn.o_proj.weight").as_deref(),
            Some("blk.12.attn_output.weight")
        );
        assert_eq!(named("model.layers.12.self_attn.o_proj"), None);
        assert_eq!(named("visual.weight"), None);
        assert_eq!(named("model.layers.0.self_attn.q_norm.weight"), None);
        assert_eq!(
            llama.heads_to_unpermute("model.layers.0.self_attn.k_proj.weight", [9, 3]),
            Some(3)
        );
        assert_eq!(
            llama.heads_to_unpermute("model.layers.0.self_attn.v_proj.weight", [9, 3]),
            None
        );
    }

    #[test]
    fn one_name_may_mean_another_tensor_in_another_family() {
        let named = |name: &str, tensor: &str| {
            let dialect = DIALECTS.iter().find(|dialect| dialect.name == name).unwrap();
            dialect.name_in_file(&format!("model.layers.3.{tensor}"))
        };
        let after = "post_attention_layernorm.weight";
        assert_eq!(named("qwen3", after).as_deref(), Some("blk.3.ffn_norm.weight"));
        assert_eq!(named("gemma2", after).as_deref(), Some("blk.3.post_attention_norm.weight"));
        let fused = named("phi3", "mlp.gate_up_proj.weight");
        assert_eq!(fused.as_deref(), Some("blk.3.ffn_up.weight"));
        let bias = named("deepseek2", "mlp.gate.e_score_correction_bias");
        assert_eq!(bias.as_deref(), Some("blk.3.exp_probs_b.bias"));
    }
}
