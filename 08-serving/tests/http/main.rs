//! The server over HTTP: a real engine behind a real socket, and a plain client.

mod answers;

mod anthropic;
mod auth;
mod clients;
mod continued;
mod embeddings;
mod ending;
mod forms;
mod kv_events;
mod origins;
mod prefill;
mod prompt_logprobs;
mod refusals;
mod responses;
mod rules;
mod server;
mod small;
mod streams;
mod thoughts;
mod tools;
mod truncation;
