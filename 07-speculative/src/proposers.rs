//! Every way to propose.
//!
//! | File | Proposes |
//! |---|---|
//! | `draft_model.rs` | what a smaller model would say |
//! | `prompt_lookup.rs` | what followed the last words where they stood before, in the text or in a reference |
//! | `lookahead.rs` | what the target itself said of guesses about its future (Jacobi iteration) |
//! | `medusa.rs` | what small heads read off the target's last hidden state |
//! | `mtp.rs`, `mtp/` | what one more block says, that reads it too |
//! | `levels.rs` | how the trees of draft model and MTP block are grown |
//! | `ahead.rs` | what one says that needs nothing but the text, drafting on in another thread while the target verifies |

mod ahead;
mod draft_model;
mod levels;
mod lookahead;
mod medusa;
mod mtp;
mod prompt_lookup;

pub use ahead::Ahead;
pub use draft_model::DraftModel;
pub(crate) use levels::Levels;
pub use lookahead::Lookahead;
pub use medusa::Medusa;
pub use mtp::Mtp;
pub use prompt_lookup::PromptLookup;
