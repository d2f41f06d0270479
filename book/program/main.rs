//! Builds, checks and serves the book.
fn main() {}
