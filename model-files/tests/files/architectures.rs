//! Families of models: the same bits from either kind of file, and one clear error for each thing
//! that can be wrong. That what they compute is right, `tests/tests/oracle` says.

mod bad_input;
pub(crate) mod checkpoint;
mod configs;
pub(crate) mod conversion;
mod gguf;
