//! Names of tensors: Hugging Face's, and those that llama.cpp's conversion gives them.

/// Hugging Face's name and GGUF's, both without what numbers the block.
pub(super) type Names = (&'static str, &'static str);

/// Outside the blocks.
pub(super) const OUTER: &[Names] =
    &[("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// In every block of every family.
pub(super) const SHARED: &[Names] =
    &[("self_attn.o_proj", "attn_output"), ("mlp.down_proj", "ffn_down")];

/// A matrix each.
pub(super) const SEPARATE: &[Names] = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
];

/// Several in one.
pub(super) const FUSED: &[Names] =
    &[("self_attn.qkv_proj", "attn_qkv"), ("mlp.gate_up_proj", "ffn_up")];

/// Norms before both halves. Hugging Face names the second after what it follows.
pub(super) const LLAMA_NORMS: &[Names] =
    &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")];

/// Norms before both halves in families that have some behind them, too.
pub(super) const NORMS_BEFORE: &[Names] =
    &[("input_layernorm", "attn_norm"), ("pre_feedforward_layernorm", "ffn_norm")];

/// Norms behind both halves.
pub(super) const NORMS_BEHIND: &[Names] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Norms of queries and keys.
pub(super) const QK_NORMS: &[Names] =
    &[("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm")];

/// What has biases where queries, keys and values have some.
pub(super) const QKV_BIASES: &[&str] = &["attn_q", "attn_k", "attn_v"];

/// What has biases where routers do: the stem of [`CORRECTION`].
pub(super) const ROUTER_BIASES: &[&str] = &["exp_probs_b"];

/// Latent attention. Those with a star for a name, here and below, are several in one or parts of one: `experts.rs` takes
/// them apart.
pub(super) const LATENT: &[Names] = &[
    ("self_attn.q_a_proj", "attn_q_a"),
    ("self_attn.q_a_layernorm", "attn_q_a_norm"),
    ("self_attn.q_b_proj", "attn_q_b"),
    ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
    ("self_attn.kv_b_proj", "attn_kv_b"),
    ("*", "attn_k_b"),
    ("*", "attn_v_b"),
];

/// A router and its experts.
pub(super) const EXPERTS: &[Names] = &[
    ("mlp.gate", "ffn_gate_inp"),
    ("*", "ffn_gate_exps"),
    ("*", "ffn_up_exps"),
    ("*", "ffn_down_exps"),
];

/// Experts that every row goes through.
pub(super) const SHARED_EXPERTS: &[Names] = &[
    ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
];

/// The one tensor whose last part is renamed too: what is added to the router's affinities.
pub(super) const CORRECTION: Names = ("e_score_correction_bias", "exp_probs_b.bias");
