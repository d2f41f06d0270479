//! Families of models, and the one place that tells them apart.
//!
//! Rung 01 knows Llama. What other families do otherwise is said here, family by family, in terms
//! of the seams of rung 01: a projection with biases, a norm after attention, another gate. Nothing
//! of it reaches the rungs; they are handed a [`Model`].
//!
//! | File | Holds |
//! |---|---|
//! | `fields.rs` | a `config.json`, field by field |
//! | `smollm3.rs` | layers that do not turn |
//! | `qwen2.rs` | biases on queries, keys and values |
//! | `qwen3_moe.rs` | Qwen3 with experts, by way of rung 03 |
//! | `windows.rs` | Qwen3, Mistral, and this project's hybrid: windows, QK norm, shared layers |
//! | `phi3.rs` | matrices that are several in one, heads that RoPE turns in part |
//! | `granite.rs` | numbers on embeddings, halves of blocks, scores and logits |
//! | `olmo.rs` | OLMo 2 and 3: norms behind the halves of blocks alone, and over all heads; windows |
//! | `gemma.rs` | Gemma 2 and 3: norms on both sides, caps, two bases of RoPE |
//! | `deepseek.rs` | latent attention and experts, by way of rung 03 |
//! | `parts.rs`, `steps.rs` | what blocks of these families are made of |

mod deepseek;
mod fields;
mod gemma;
mod granite;
mod olmo;
mod parts;
mod phi3;
mod qwen2;
mod qwen3_moe;
mod smollm3;
mod steps;
mod windows;

use fields::Fields;
use kv_cache::RopeScaling;
use naive_decode::{
    Config, KvSize, LoadOptions, Model, Pack, Result, Tensors, dense, random_tensors,
};

/// Reads the `config.json` of one family.
type Read = fn(&Fields) -> Result<Architecture>;

/// Every architecture that is read, by the name that `config.json` has for it.
const KNOWN: [(&str, Read); 16] = [
    ("LlamaForCausalLM", llama),
    ("MistralForCausalLM", windows::read),
    ("SmolLM3ForCausalLM", smollm3::read),
    ("Qwen2ForCausalLM", qwen2::read),
    ("Qwen3ForCausalLM", windows::read),
    ("Qwen3MoeForCausalLM", qwen3_moe::read),
    ("Phi3ForCausalLM", phi3::read),
    ("GraniteForCausalLM", granite::read),
    ("Olmo2ForCausalLM", olmo::read_2),
    ("Olmo3ForCausalLM", olmo::read_3),
    ("Gemma2ForCausalLM", gemma::read_2),
    ("Gemma3ForCausalLM", gemma::read_3),
    ("Gemma3ForConditionalGeneration", gemma::read_text_of_3),
    ("DeepseekV2ForCausalLM", deepseek::read),
    ("DeepseekV3ForCausalLM", deepseek::read),
    ("HybridForCausalLM", windows::read),
];

/// A model's shape and the family it belongs to: all that is needed to put it together from its
/// tensors.
pub struct Architecture {
    /// What all families have. Whoever changes it afterwards (a shorter model, other end tokens)
    /// changes the model that is put together.
    pub config: Config,
    pub(crate) family: Box<dyn Family>,
}

/// What one layer keeps of each token, before any weight is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerKv {
    /// Sizes of the keys and values that it makes; none if it shares an earlier layer's.
    pub size: Option<KvSize>,
    /// How many tokens back a row sees; everything if not said.
    pub window: Option<usize>,
}

/// How the blocks of a family are put together.
pub(crate) trait Family: Send + Sync {
    /// The model of `config`, whose RoPE nothing stretches, from tensors named as Hugging Face
    /// names them.
    ///
    /// # Errors
    /// Whatever `tensors` or `pack` refuses.
    fn assemble(&self, config: Config, from: Source) -> Result<Model>;

    /// Whether its blocks are Llama's and nothing besides, for whoever knows no others.
    fn is_plain_llama(&self) -> bool {
        false
    }

    /// Longest context that the family reaches by itself, for whoever asks for it when the model is put
    /// together.
    fn longest_context(&self, config: &Config) -> usize {
        config.trained_context
    }

    /// Whether layers turn queries and keys by frequencies of the family's own: the model's cannot be stretched for them.
    fn turns_by_its_own(&self) -> bool {
        false
    }

    /// What Hugging Face's names of all its tensors begin with: something, in a model that also sees.
    fn prefix(&self) -> &'static str {
        ""
    }

    /// How many tokens back a row of each layer sees, of families that have windows.
    fn windows(&self) -> &[Option<usize>] {
        &[]
    }

    /// Sizes of the keys and values that a layer makes; none if it shares an earlier one's.
    fn kv(&self, config: &Config, _layer: usize) -> Option<KvSize> {
        let Config { kv_heads: heads, head_dim, .. } = *config;
        Some(KvSize { heads, key_dim: head_dim, value_dim: head_dim })
    }
}

/// Where a model's weights come from and how they are to be kept.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) options: LoadOptions,
    pub(crate) tensors: Tensors<'a>,
    pub(crate) pack: Pack<'a>,
    pub(crate) written_by: Writer,
}

/// Whose conventions the numbers in a file follow, where names alone do not say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    HuggingFace,
    /// Whose conversion adds the 1 to Gemma's norms beforehand.
    LlamaCpp,
}

impl Architecture {
    /// Reads a `config.json`; `file` is the name that errors give it.
    ///
    /// # Errors
    /// Malformed JSON, an architecture that is not in the table, or whatever its family refuses:
    /// each names the field, what it says and what was expected.
    pub fn from_json(file: &str, json: &[u8]) -> Result<Self> {
        let fields = Fields::read(file, json)?;
        let named = fields.texts("architectures")?.unwrap_or_default();
        let known = match named.as_slice() {
            [one] => KNOWN.iter().find(|(name, _)| name == one),
            _ => None,
        };
        let names: Vec<_> = Architecture::known().collect();
        let expected = format!("one of: {}", names.join(", "));
        let (_, read) = known.ok_or_else(|| fields.refusal("architectures", &expected))?;
        read(&fields)
    }

    /// What each layer keeps of a token.
    pub fn kv(&self) -> Vec<LayerKv> {
        let windows = self.family.windows();
        let layer = |layer: usize| LayerKv {
            size: self.family.kv(&self.config, layer),
            window: windows.get(layer).copied().flatten(),
        };
        (0..self.config.layers).map(layer).collect()
    }

    /// The names of all architectures that are read, as `config.json` has them.
    pub fn known() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// Puts a model together from tensors named as Hugging Face names them, each matrix stored as
    /// `pack` decides. RoPE is stretched as the config says.
    ///
    /// # Errors
    /// A stretching that is not known, or whatever `tensors` or `pack` refuses.
    pub fn assemble(&self, options: LoadOptions, tensors: Tensors, pack: Pack) -> Result<Model> {
        let written_by = Writer::HuggingFace;
        let from = Source { options, tensors, pack, written_by };
        let mut config = self.config.clone();
        let scaling = config.rope_scaling.take();
        let scaling = scaling.map(|json| RopeScaling::from_json(&json, &config)).transpose()?;
        assemble(&*self.family, config, scaling, from)
    }

    /// A model with weights drawn at random, as [`Model::random`].
    ///
    /// # Errors
    /// A stretching of RoPE that is not known.
    pub fn random(&self, seed: u64, options: LoadOptions) -> Result<Model> {
        self.assemble(options, &random_tensors(seed), &dense(options.isa))
    }
}

/// Puts a model together, whose config says no more of a stretching, and stretches its RoPE, if that is wanted.
pub(crate) fn assemble(
    family: &dyn Family,
    config: Config,
    scaling: Option<RopeScaling>,
    from: Source,
) -> Result<Model> {
    let mut model = family.assemble(config, from)?;
    match (scaling, from.options.context) {
        (None, _) => {}
        (Some(scaling), None) => scaling.stretch(&mut model),
        (Some(scaling), Some(context)) => model.rope = scaling.rope(&model.config, context),
    }
    Ok(model)
}

/// Rung 01's own.
struct Llama;

fn llama(fields: &Fields) -> Result<Architecture> {
    Ok(Architecture { config: fields.as_llama()?, family: Box::new(Llama) })
}

impl Family for Llama {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        Model::assemble(config, from.options, from.tensors, from.pack)
    }

    fn is_plain_llama(&self) -> bool {
        true
    }
}
