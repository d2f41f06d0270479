//! Other people's files: read right, or refused in one sentence.

mod architectures;
mod chat;
mod conversation;
mod damage;
mod directory;
mod gguf_damage;
mod gguf_model;
mod gguf_parts;
mod gguf_tokenizer;
mod hub;
mod hub_names;
mod loading;
mod model_directory;
mod origin;
mod real_model;
mod writer;

use ladder_tests::watched::Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;
