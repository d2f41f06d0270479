//! The server over HTTP: a real engine behind a real socket, and a plain client.

mod answers;
mod auth;
mod clients;
mod embeddings;
mod forms;
mod refusals;
mod server;
mod small;
mod streams;
mod tools;
