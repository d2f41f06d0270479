//! From an answer's tokens to what a client reads.
//!
//! | File | Holds |
//! |---|---|
//! | `text/stops.rs` | strings that end an answer, found however tokens cut them |
//! | `text/writer.rs` | one answer: tokens in, pieces of text out, with the tokens that made them |
//! | `text/answer.rs` | the same from the engine's events, with why it ended and what it came to |
//! | `text/thoughts.rs` | what a model thinks, told from what it answers |
//! | `text/calls.rs` | calls of functions, found in what a model says |
//! | `text/calls/open.rs`, `json.rs` | a call that is told while it comes; where its closing mark is none of a string |
//! | `text/spoken.rs` | text and calls, in their order |

mod answer;
mod calls;
mod spoken;
mod stops;
mod thoughts;
mod writer;

pub use answer::{Answer, Ending, Piece, Reason, Stopper};
pub use calls::{CallFinder, MARKED, Marked, OneCall};
pub use spoken::{Found, Spoken};
pub use stops::{Cut, Stops, overlap};
pub use thoughts::{THOUGHTS, Thinking, Thought, ThoughtFinder};
pub use writer::{Style, Told, Writer, Written};
