//! Small hand-written kernels, each held to what the PTX ISA says of its instructions, and to what the interpreter
//! promises to catch.

mod arithmetic;
mod barriers;
mod convert;
mod copies;
mod counts;
mod flow;
mod hopper;
mod kernel;
mod matrix;
mod memory;
mod parse;
mod shared;
mod trace;
mod warp;
