//! Small hand-written kernels, each held to what the PTX ISA says of its instructions, and to what the interpreter
//! promises to catch.

mod arithmetic;
mod barriers;
mod bulk;
mod convert;
mod copies;
mod counts;
mod flow;
mod kernel;
mod matrix;
mod mbarrier;
mod memory;
mod parse;
mod shared;
mod tensors;
mod trace;
mod warp;
mod wgmma;
