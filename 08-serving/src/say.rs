//! What is said on standard output. Where that cannot be written, as on a full disk, it is an error like any other:
//! `println!` panics there.

use anyhow::{Context, Result};
use std::fmt::Arguments;
use std::io::{Write, stdout};

/// Writes as `println!` does, and says what is wrong if that cannot be.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}

pub(crate) use say;

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
