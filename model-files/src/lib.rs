//! Other people's models: from a name on the command line to configuration, tokenizer, chat
//! template and weights.
//!
//! Rung 01 reads one layout, that of the embedded models. This crate reads what people have: a
//! directory from Hugging Face with one weights file or many, or a GGUF file with everything in it.
//! All of it becomes the types of rung 01, so no rung knows where its model came from.
//!
//! | File | Holds |
//! |---|---|
//! | `source.rs` | what `--model WHAT` means |
//! | `arguments.rs` | `--model` as an argument of programs |
//! | `source/hub.rs` | the Hugging Face hub and its cache |
//! | `source/hub/cached.rs` | what that cache has |
//! | `source/hub/knock.rs`, `download.rs` | whether the hub is there; one file from it into the cache |
//! | `source/hub/refusal.rs` | what to say when it does not give what was asked for |
//! | `architectures.rs` | families of models beyond Llama, and which one a config names |
//! | `summary.rs` | what a model is, from the beginnings of its files |
//! | `files.rs` | a model's files, opened: config, tokenizer, template, weights |
//! | `sampling.rs` | how the makers of a model want its tokens chosen |
//! | `plain_llama.rs` | a Llama for whoever runs it by other means |
//! | `origin.rs` | what tells its files from others, and from themselves before a change |
//! | `gguf.rs` | a GGUF file |
//! | `gguf/cursor.rs`, `header.rs` | its header, every number doubted |
//! | `gguf/parts.rs` | the several files of a large model |
//! | `gguf/value.rs`, `metadata.rs` | its metadata |
//! | `gguf/dialect.rs`, `config.rs` | its names and sizes as Hugging Face has them |
//! | `gguf/experts.rs` | what experts' and DeepSeek's tensors were before conversion |
//! | `gguf/rope_factors.rs` | Llama 3's stretched RoPE, found again |
//! | `gguf/tokenizer.rs` | its vocabulary as a tokenizer: byte-level BPE, SentencePiece |
//! | `safetensors.rs` | one safetensors file, or several with an index |
//! | `blocks.rs` | how weights are stored, quantised or not, and back to f32 |
//! | `text_file.rs` | the small files around the weights, doubted before they are read |
//! | `tokenizer_file.rs`, `tokenizer_file/doubted.rs` | `tokenizer.json`, doubted before the `tokenizers` crate reads it |
//! | `chat.rs` | chat templates, run as Hugging Face runs them |
//! | `chat/encode.rs` | from a conversation to tokens, special ones the template's own |
//! | `chat/environment.rs`, `chat/functions.rs` | what templates are run in; what Hugging Face gives them |

mod architectures;
mod arguments;
mod blocks;
mod chat;
mod files;
mod gguf;
mod origin;
mod plain_llama;
mod safetensors;
mod sampling;
mod source;
mod summary;
mod text_file;
mod tokenizer_file;

pub use architectures::{Architecture, LayerKv};
pub use arguments::ModelArgs;
pub use blocks::{BlockType, RawTensor, dequantise};
pub use chat::{ChatTemplate, Ends, Extras, Message};
pub use files::ModelFiles;
pub use gguf::{Gguf, Metadata};
pub use origin::Origin;
pub use plain_llama::PlainLlama;
pub use safetensors::Safetensors;
pub use sampling::SamplingDefaults;
pub use source::{CachedModel, Hub, HubName, Wanted, is_gguf_model, open};
pub use summary::ModelSummary;
