//! What is said on standard output and standard error. Where the first cannot be written, as on a full disk, it is an error
//! like any other; what is said beside it may go unread. `println!` and `eprintln!` panic there.

use anyhow::{Context, Result};
use std::fmt::Arguments;
use std::io::{Write, stderr, stdout};

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
    let _ = stderr().lock().write_fmt(format_args!("{words}\n"));
}
