//! The models' files as bytes of the program.

/// A model as the files that any loader of Hugging Face's layout reads.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedModel {
    /// What it is called here, also its folder in `models/weights`.
    pub name: &'static str,
    /// `config.json`: the architecture and its sizes.
    pub config: &'static [u8],
    /// `generation_config.json`: the tokens that end a text or a turn.
    pub generation_config: &'static [u8],
    /// `tokenizer.json`, the same in the whole family.
    pub tokenizer: &'static [u8],
    /// `tokenizer_config.json`: the chat template.
    pub tokenizer_config: &'static [u8],
    /// `model.safetensors`: the weights in bf16, matrices as `[out, in]`.
    pub weights: &'static [u8],
}

/// The model that answers: 4.75 million parameters, 6 layers, grouped queries (8 heads, 2 for keys and
/// values), trained at a context of 512.
pub static TARGET: EmbeddedModel = EmbeddedModel {
    name: "target",
    config: include_bytes!("../weights/target/config.json"),
    generation_config: include_bytes!("../weights/target/generation_config.json"),
    tokenizer: include_bytes!("../weights/target/tokenizer.json"),
    tokenizer_config: include_bytes!("../weights/target/tokenizer_config.json"),
    weights: include_bytes!("../weights/target/model.safetensors"),
};

/// The model that guesses ahead for [`TARGET`]: 0.62 million parameters, 2 layers, distilled from it.
pub static DRAFT: EmbeddedModel = EmbeddedModel {
    name: "draft",
    config: include_bytes!("../weights/draft/config.json"),
    generation_config: include_bytes!("../weights/draft/generation_config.json"),
    tokenizer: include_bytes!("../weights/draft/tokenizer.json"),
    tokenizer_config: include_bytes!("../weights/draft/tokenizer_config.json"),
    weights: include_bytes!("../weights/draft/model.safetensors"),
};

/// The model whose cache is a latent: 2.96 million parameters, 6 layers of 6 heads, multi-head latent
/// attention in DeepSeek-V2's layout. A token and layer keep 64 numbers and 16 that RoPE has turned.
pub static MLA: EmbeddedModel = EmbeddedModel {
    name: "mla",
    config: include_bytes!("../weights/mla/config.json"),
    generation_config: include_bytes!("../weights/mla/generation_config.json"),
    tokenizer: include_bytes!("../weights/mla/tokenizer.json"),
    tokenizer_config: include_bytes!("../weights/mla/tokenizer_config.json"),
    weights: include_bytes!("../weights/mla/model.safetensors"),
};

/// The model that looks less far: 2.71 million parameters, 6 layers of 6 query heads and 2 for keys and
/// values, normed. Four layers see a window of 64, and two of those read the keys and values of the one
/// before them.
pub static HYBRID: EmbeddedModel = EmbeddedModel {
    name: "hybrid",
    config: include_bytes!("../weights/hybrid/config.json"),
    generation_config: include_bytes!("../weights/hybrid/generation_config.json"),
    tokenizer: include_bytes!("../weights/hybrid/tokenizer.json"),
    tokenizer_config: include_bytes!("../weights/hybrid/tokenizer_config.json"),
    weights: include_bytes!("../weights/hybrid/model.safetensors"),
};

/// Every embedded model that shares the family's tokenizer.
pub fn all() -> [&'static EmbeddedModel; 4] {
    [&TARGET, &DRAFT, &MLA, &HYBRID]
}

/// Heads that guess further ahead for [`TARGET`], reading its last hidden state.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedHeads {
    /// Its folder in `models/weights`.
    pub name: &'static str,
    /// `medusa.safetensors`: a matrix for each place behind the next token.
    pub medusa: &'static [u8],
    /// `mtp.safetensors`: a block of multi-token prediction.
    pub mtp: &'static [u8],
}

/// Three Medusa heads, 0.20 million parameters, and an MTP block, 0.84 million. Embedding and head are the
/// target's.
pub static HEADS: EmbeddedHeads = EmbeddedHeads {
    name: "heads",
    medusa: include_bytes!("../weights/heads/medusa.safetensors"),
    mtp: include_bytes!("../weights/heads/mtp.safetensors"),
};

/// A character-level microGPT. It needs no tokenizer: its config lists its characters, and the token
/// of a character is its place in that list.
#[derive(Clone, Copy, Debug)]
pub struct NamesModel {
    /// `config.json`: sizes, characters and the token that begins and ends a name.
    pub config: &'static [u8],
    /// `model.safetensors`: the weights in f32, matrices as `[out, in]`.
    pub weights: &'static [u8],
}

/// microGPT trained on the given names of [`crate::names`]: 4,192 parameters, one layer.
pub static NAMES: NamesModel = NamesModel {
    config: include_bytes!("../weights/names/config.json"),
    weights: include_bytes!("../weights/names/model.safetensors"),
};
