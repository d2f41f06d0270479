//! The deployment simulator behind a page of the book.
//!
//! Built from the very files of rungs 01, 07 and 08 that `ladder simulate` is built from: what a reader moves on the
//! page runs the engine's own scheduler. The rungs themselves need threads, files and sockets, which a page does not
//! have; the files that are taken here need none.
//!
//! | File | Holds |
//! |---|---|
//! | `settings.rs` | what the page's controls say, and the deployment that it means |
//! | `controls.rs` | what a reader can choose |
//! | `answer.rs` | what the page shows |
//! | `page.rs` | what the page calls |
//! | `engine.rs`, `load.rs`, `roofline.rs` | where the rungs' files are |

// The rungs' files call each other by the names of the rungs.
extern crate self as naive_decode;
extern crate self as speculative;

#[path = "../../../../07-speculative/src/acceptance.rs"]
pub mod acceptance;
mod answer;
mod controls;
pub mod engine;
#[path = "../../../../01-naive-decode/src/error.rs"]
pub mod error;
#[path = "../../../../07-speculative/src/expected.rs"]
pub mod expected;
pub mod load;
pub mod page;
#[path = "../../../../07-speculative/src/pass_times.rs"]
pub mod pass_times;
pub mod roofline;
mod settings;
#[path = "../../../../08-serving/src/simulator/mod.rs"]
pub mod simulator;
#[path = "../../../../07-speculative/src/usual.rs"]
pub mod usual;

pub use acceptance::Acceptance;
pub use answer::{Answer, answer};
pub use controls::{Control, controls};
pub use error::{Error, Result};
pub use pass_times::PassTimes;
pub use settings::Settings;
