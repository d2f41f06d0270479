//! Somebody else's implementations on the same files: candle-transformers, in f32 on the processor.
//!
//! The equality matrix says that all rungs agree; this says that what they agree on is a Llama, a
//! Qwen, a Gemma. The two do not agree to the bit and need not: candle adds in another order and
//! takes softmax in base e. Each file states its bound and what was measured.
//!
//! | File | Compares |
//! |---|---|
//! | `llama.rs` | the embedded target, and a checkpoint with a head of its own |
//! | `smollm3.rs` | layers that do not turn |
//! | `qwen2.rs` | biases |
//! | `qwen3_moe.rs` | Qwen3's experts |
//! | `qwen3_mistral.rs` | QK norm; windows |
//! | `phi3.rs` | matrices that are several in one, heads turned in part |
//! | `granite.rs` | numbers on embeddings, halves of blocks, scores and logits |
//! | `olmo.rs` | norms behind the halves of blocks alone, and over all heads |
//! | `gemma.rs` | norms on both sides, GELU, caps, two bases of RoPE |
//! | `deepseek.rs` | latent attention and experts |
//! | `gguf_types.rs` | every quantisation type that candle has, bit for bit |
//! | `recoded.rs` | codes that are kept when K-quants are packed |
//! | `compare.rs` | logits of both, and how far apart they are |
//! | `checkpoint` | (checkpoints of every family, as `model-files` tests them) |

#[path = "../../../model-files/tests/files/architectures/checkpoint.rs"]
mod checkpoint;
mod compare;
mod deepseek;
mod gemma;
mod gguf_types;
mod granite;
mod llama;
mod olmo;
mod phi3;
mod qwen2;
mod qwen3_mistral;
mod qwen3_moe;
mod recoded;
mod smollm3;
