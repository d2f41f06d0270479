//! Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1; V3 has the same).
//!
//! Keys and values of all heads are made from one short vector a token, the *latent*. Keep the
//! latent, and whatever the heads need can be made again:
//!
//! ```text
//! c = norm(W_DKV x)             the latent, [kv_lora_rank]
//! r = RoPE(W_KR x)              one rotary key for all heads, [qk_rope_head_dim]
//! k_h = [W_UK_h c | r]          [qk_nope_head_dim + qk_rope_head_dim]
//! v_h = W_UV_h c                [v_head_dim]
//! ```
//!
//! Taken by the letter that is the *explicit* form: every head's keys and values are made, and
//! those are what a cache would keep. Nothing is saved. But the score of a query is `q · W_UK c`,
//! which is also `(W_UKᵀ q) · c`: the up-projection can be *absorbed* into the query, once, instead
//! of being done for every key. Values likewise: `Σ w_i (W_UV c_i)` is `W_UV Σ w_i c_i`. In the
//! absorbed form a single head of keys `[c | r]` serves all queries, and a value is the beginning
//! of its key: multi-query attention over the latent, which everything that serves multi-query
//! attention can serve.
//!
//! This is why position sits in dimensions of its own. A RoPE turn between `W_UK` and `q` would be
//! another matrix for every distance, and nothing could be absorbed (`faults/rotated_latent.rs`
//! tries).
//!
//! | File | Holds |
//! |---|---|
//! | `config.rs` | a DeepSeek `config.json` |
//! | `compress.rs` | what both forms share: queries, latents, rotary keys |
//! | `explicit.rs`, `absorbed.rs` | the two forms |
//! | `layout.rs` | from the checkpoint's order of rows to ours |
//! | `yarn.rs` | DeepSeek's variant of YaRN |

mod absorbed;
mod compress;
mod config;
mod explicit;
mod layout;
mod yarn;

pub use absorbed::AbsorbedMla;
pub use config::MlaConfig;
pub use explicit::ExplicitMla;
pub use yarn::Stretch;

use naive_decode::{
    Block, Checkpoint, Error, FeedForward, Gated, LoadOptions, Model, NaiveAttention, Pack, Parts,
    Pass, Projection, Result, Span, Tensors, Want, dense, random_tensors,
};

// ANCHOR: bound
/// Largest difference between a logit of the two forms of one model, as a share of the largest
/// logit, with keys and values in f32.
///
/// The forms multiply the same three matrices in another order, so every score and every value is
/// rounded differently: by about the root of the longest sum (a few hundred terms) times f32's
/// 6e-8, carried through all layers. Over a few hundred tokens random weights part by 2e-6, and so
/// does the embedded model, whose attention is sharp. The rest is room for other models.
pub const FORMS_AGREE: f32 = 1e-5;
// ANCHOR_END: bound

/// Checks that the absorbed form says what the explicit one does after every token of a text.
///
/// # Errors
/// Names the logit that is furthest away, if by more than [`FORMS_AGREE`]; or whatever the models
/// refuse.
pub fn forms_agree(absorbed: &Model, explicit: &Model, tokens: &[u32]) -> Result<()> {
    let logits = |model: &Model| {
        let pass = Pass::one(Span::new(0, 0, tokens, Want::All));
        model.forward(&pass, &mut NaiveAttention::new(model.isa))
    };
    let (found, expected) = (logits(absorbed)?, logits(explicit)?);
    let largest = expected.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
    let apart = found.indexed_iter().map(|(at, logit)| (at, (logit - expected[at]).abs()));
    let furthest = apart.max_by(|(_, a), (_, b)| a.total_cmp(b));
    match furthest {
        Some((at, apart)) if apart.is_nan() || apart > FORMS_AGREE * largest => {
            Err(Error::invalid(
                format!("logit of token {} after position {}", at.1, at.0),
                format!("{:.6}", found[at]),
                format!("{:.6}, as the explicit form has it", expected[at]),
            ))
        }
        _ => Ok(()),
    }
}

/// Which of the two ways to compute latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Keys and values of every head are made from the latent, and kept.
    Explicit,
    /// Up-projections are absorbed into queries and answers; the latent alone is kept.
    Absorbed,
}

/// Loads a model whose files are part of the program; `name` is what errors call it.
///
/// # Errors
/// Whatever is missing, malformed or contradictory, by file and field or tensor.
pub fn embedded(
    name: &str,
    config: &[u8],
    weights: &'static [u8],
    form: Form,
    options: LoadOptions,
) -> Result<Model> {
    let config = MlaConfig::from_json(&format!("{name}/config.json"), config)?;
    let checkpoint = Checkpoint::embedded(&format!("{name}/model.safetensors"), weights)?;
    let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
    assemble(&config, form, options, &tensors, &dense(options.isa))
}

/// A model of any shape with weights drawn at random, the same ones for either form.
///
/// # Errors
/// If `config` contradicts itself.
pub fn random(config: &MlaConfig, seed: u64, form: Form, options: LoadOptions) -> Result<Model> {
    assemble(config, form, options, &random_tensors(seed), &dense(options.isa))
}

/// Puts a model together from tensors named as in Hugging Face's DeepSeek-V2, each matrix stored as
/// `pack` decides.
///
/// # Errors
/// If `config` contradicts itself, or whatever `tensors` or `pack` refuses.
pub fn assemble(
    config: &MlaConfig,
    form: Form,
    options: LoadOptions,
    tensors: Tensors,
    pack: Pack,
) -> Result<Model> {
    config.check()?;
    let block = |parts: &Parts, layer: usize| block(config, form, parts, layer);
    let mut model = Model::assemble_blocks(config.carried(form), options, tensors, pack, &block)?;
    if let Some(stretch) = &config.stretch {
        model.rope = stretch.rope.rope(&model.config, model.context());
    }
    Ok(model)
}

fn block(config: &MlaConfig, form: Form, parts: &Parts, layer: usize) -> Result<Block> {
    let name = |part: &str| format!("model.layers.{layer}.{part}");
    let projection: Box<dyn Projection> = match form {
        Form::Explicit => Box::new(ExplicitMla::read(config, parts, &name("self_attn"))?),
        Form::Absorbed => Box::new(AbsorbedMla::read(config, parts, &name("self_attn"))?),
    };
    let mlp = name("mlp");
    let feed_forward: Box<dyn FeedForward> = match config.experts_of(layer) {
        Some(experts) => Box::new(experts.read(parts, &mlp)?),
        None => parts.feed_forward(&Gated::silu(mlp, config.model.intermediate_size))?,
    };
    Ok(Block { scale: config.scale(), ..parts.block_of(layer, projection, feed_forward)? })
}
