//! Break-its: a fault put in on purpose, what it does, and what catches it.
//!
//! Correct code has no broken branch. A fault is a decorator over one of the seams ([`crate::Executor`],
//! [`crate::Attention`], a cache's store), so the code it breaks is the code that everyone runs.
//! Each break-it runs twice, clean and broken, on the same prompt, and compares:
//!
//! | File | Holds |
//! |---|---|
//! | `bench.rs` | the model, the tokenizer and the prompt that every break-it runs on |
//! | `trial.rs` | the two runs: text, first difference, surprise, guard, weaker test |
//! | `written.rs` | the same for two texts that came about elsewhere |
//! | `report.rs` | what came out, for the book (`--json`) |
//! | `print.rs`, `page.rs` | the same for a reader at a terminal |
//! | `checks.rs` | guards and weaker tests that several faults share |
//! | `edit.rs` | executors that change or inspect a pass on its way |

mod bench;
mod checks;
mod edit;
mod page;
mod print;
mod report;
mod trial;
mod written;

pub use bench::{Bench, World, noise};
pub use checks::{causal, finite, one_call_equals_two, positions_are_slots, same_logits};
pub use edit::{Checked, Edited};
pub use print::{print, shown};
pub use report::{Check, Recall, Report, Score, Surprise, Text};
pub use trial::{Side, Trial};
pub use written::Written;

use crate::error::{Error, Result};

/// One named fault, ready to run.
#[derive(Clone, Copy)]
pub struct BreakIt {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Crate that it breaks.
    pub package: &'static str,
    /// Where the same thing went wrong: a public issue as owner/repository#number, or a text.
    pub cites: &'static [&'static str],
    /// What to watch for.
    pub symptom: &'static str,
    /// The check that catches it.
    pub guard: &'static str,
    /// A test that one might well have written instead, and that does not see it.
    pub weaker_test: Option<&'static str>,
    /// Runs it, clean and broken.
    pub run: fn(&Bench) -> Result<Report>,
}

/// What a `break_*` example does: runs one break-it on the embedded model and prints the report, as
/// JSON if the only argument is `--json`.
///
/// # Errors
/// Any other argument, or what the break-it itself cannot do.
pub fn main(about: &BreakIt) -> Result<()> {
    // A reader who closes the pipe, as `head` does, has seen enough.
    sigpipe::reset();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = match arguments.as_slice() {
        [] => false,
        [only] if only == "--json" => true,
        other => {
            let expected = "--json or none; `ladder break NAME --model WHAT` takes other models";
            return Err(Error::invalid("arguments", other.join(" "), expected));
        }
    };
    let report = (about.run)(&Bench::embedded()?)?;
    match json {
        true => println!("{}", report.to_json()),
        false => print(&report),
    }
    Ok(())
}
