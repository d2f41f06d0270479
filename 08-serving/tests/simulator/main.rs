//! The simulator: that runs add up, that they say what the formulas say, and what it makes of published figures.

mod command;
mod engine;
mod lesson;
mod properties;
mod runs;
mod speculation;
mod world;
