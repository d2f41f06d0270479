//! The embedded models, and the text they learned from.
//!
//! A family small enough to live inside the program, so that every rung, test and break-it runs
//! without a download: [`TARGET`] answers, [`DRAFT`] and [`HEADS`] guess what it will say, [`MLA`] and
//! [`HYBRID`] remember less for each token, and [`NAMES`] is microGPT, the smallest of all. The weights were
//! made by the recipe in `models/recipe`; each has a card beside it in `models/weights`.
//!
//! | File | Holds |
//! |---|---|
//! | `embedded.rs` | the models' files as bytes |
//! | `recall.rs` | worlds of facts and questions that hang on one token each |
//! | `notes.rs` | worlds told in blocks, with notes after each |
//! | `tales.rs` | tales and chats about people, places and things |
//! | `names.rs` | the list of given names |
//! | `words.rs` | the vocabulary of the generated text |
//! | `dice.rs` | seeded choices, the same on every machine |
//! | `document.rs` | a training text with its answers marked |

pub mod dice;
mod document;
mod embedded;
pub mod names;
pub mod notes;
pub mod recall;
pub mod tales;
pub mod words;

pub use document::Document;
pub use embedded::{
    DRAFT, EmbeddedHeads, EmbeddedModel, HEADS, HYBRID, MLA, NAMES, NamesModel, TARGET, all,
};
