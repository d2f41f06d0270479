//! The given names that the names model learns from.

/// The list, one lower-case name of the letters a to z on a line, in alphabetical order. Compiled by
/// this project from memory of many languages' everyday names; first names are facts, and nobody's.
pub const TEXT: &str = include_str!("../data/names.txt");

/// The names, one by one.
pub fn iter() -> impl Iterator<Item = &'static str> {
    TEXT.lines()
}
