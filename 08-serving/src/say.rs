//! What is said on standard output and standard error. Where the first cannot be written, as on a full disk, it is an error
//! like any other; what is said beside it may go unread. `println!` and `eprintln!` panic there.

use anyhow::{Context, Result};
use std::fmt::Arguments;
use std::io::{Write, stderr, stdout};
use std::sync::OnceLock;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait for whoever reads standard error. More are dropped.
const MOST_LINES: usize = 10_000;

static ASIDE: OnceLock<NonBlocking> = OnceLock::new();

/// Writes as `println!` does, and says what is wrong if that cannot be.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}

/// Writes to standard error as `eprintln!` does. Where nobody reads that any more, all goes on.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::say::aside(format_args!($($words)*))
    };
}

pub(crate) use {say, tell};

/// Writes a line.
pub(crate) fn line(words: Arguments) -> Result<()> {
    text(format_args!("{words}\n"))
}

/// Writes a part of a line, at once.
pub(crate) fn text(words: Arguments) -> Result<()> {
    let mut out = stdout().lock();
    let written = out.write_fmt(words).and_then(|()| out.flush());
    written.context("cannot write to standard output")
}

/// Writes a line beside the output.
pub(crate) fn aside(words: Arguments) {
    let line = format!("{words}\n");
    let _ = match ASIDE.get() {
        Some(aside) => aside.clone().write_all(line.as_bytes()),
        None => stderr().lock().write_all(line.as_bytes()),
    };
}

/// Standard error, for whoever must not wait until it is read: a terminal that is stopped, or a pipe that is full, would hold
/// up all answers. From here on [`tell!`] writes there, too. What waits is written before the second is dropped.
pub(crate) fn without_waiting() -> (NonBlocking, WorkerGuard) {
    let lines = NonBlockingBuilder::default().buffered_lines_limit(MOST_LINES);
    let (aside, guard) = lines.finish(stderr());
    (ASIDE.get_or_init(|| aside).clone(), guard)
}
