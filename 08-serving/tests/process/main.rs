//! `ladder serve` as a process: its options, killed and started again, with a model from a hub; and other commands.
//!
//! | File | Holds |
//! |---|---|
//! | `server.rs` | a server in a process of its own |
//! | `options.rs` | its options: all that there are, and those that cannot be |
//! | `restart.rs` | killed at any point, it goes on with what its file has |
//! | `prefill.rs` | two servers, of which one reads prompts for the other |
//! | `chat.rs` | a conversation in the terminal |
//! | `longrope.rs` | a model with frequencies of its own for long texts |
//! | `hub.rs` | a model by its name on the hub |
//! | `stdout.rs` | a standard output that cannot be written |
#![cfg(unix)]

mod chat;
mod hub;
mod longrope;
mod options;
mod prefill;
mod restart;
mod server;
mod stdout;
