//! `ladder serve` as a process: killed and started again, with a model from a hub.
//!
//! | File | Holds |
//! |---|---|
//! | `server.rs` | a server in a process of its own |
//! | `restart.rs` | killed at any point, it goes on with what its file has |
//! | `hub.rs` | a model by its name on the hub |
#![cfg(unix)]

mod hub;
mod restart;
mod server;
