//! Quantised keys and values: each codec by itself, against the format's or the paper's own figures and bounds that hold
//! always; and the caches that are made of them.

mod bytes;
mod codec;
mod codes;
mod fp8;
mod int8;
mod kivi;
mod sequences;
mod turbo;
mod world;
