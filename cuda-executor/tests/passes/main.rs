//! Whole models on the interpreter: what the processor says, and the same bits however the work is cut.

mod devices;
mod logits;
mod room;
mod sequences;
mod steps;
mod world;
