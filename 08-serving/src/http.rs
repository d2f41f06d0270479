//! The server's front: from a connection to the engine and back.
//!
//! One task a connection, and for each answer one task that turns the engine's events into pieces of text. All
//! queues between them are bounded, so a client that reads slowly slows down its own answer and nothing else; a
//! client that is gone takes its tasks with it, and the engine's blocks.
//!
//! | File | Holds |
//! |---|---|
//! | `http/app.rs` | what is served, and to whom |
//! | `http/routes.rs` | paths and what answers them |
//! | `http/runtime.rs` | the threads of all this |
//! | `http/listen.rs` | connections, and how the server ends |
//! | `http/places.rs` | places for connections, and who loses theirs |
//! | `http/patient.rs` | a connection that is not kept for ever by somebody who hardly reads |
//! | `http/in_process.rs` | a server inside a program |
//! | `http/auth.rs` | API keys |
//! | `http/hosts.rs` | names that a server is called by |
//! | `http/request_id.rs` | what a request is called, in the log and in its answer |
//! | `http/origins.rs` | pages of others, and what their browsers let them ask |
//! | `http/bodies.rs` | bodies of requests, as they are read |
//! | `http/prepare.rs` | from a request to what the engine is asked |
//! | `http/pieces.rs` | answers under way, as pieces of text |
//! | `http/aside.rs` | work that would hold up others |
//! | `http/answer.rs` | what all ways of asking for text have in common |
//! | `http/talk.rs`, `talk/turn.rs` | an answer in a conversation: how it is asked for, and read |
//! | `http/chat.rs` | `POST /v1/chat/completions` |
//! | `http/responses.rs`, `responses/` | `POST /v1/responses` |
//! | `http/anthropic.rs`, `anthropic/` | `POST /v1/messages`, and `POST /v1/messages/count_tokens` |
//! | `http/conversation.rs` | a conversation, written down as the model wants it |
//! | `http/conversation/telling.rs` | functions and calls, where its template has no place for any |
//! | `http/completions.rs` | `POST /v1/completions` |
//! | `http/embeddings.rs` | `POST /v1/embeddings` |
//! | `http/share.rs` | embeddings' share of the engine |
//! | `http/prefill.rs`, `prefill/` | prompts that one server reads for another |
//! | `http/events.rs` | server-sent events |
//! | `http/small.rs` | models, tokens, health, version |
//! | `http/dialect.rs`, `dialect/calls.rs` | how a model writes calls and thoughts, as its template shows |
//! | `http/dialect/room.rs` | forms that leave it room for them |
//! | `http/grammars.rs` | forms that answers are held to, compiled once |
//! | `http/grammars/steps.rs` | the time that a step of following one may take |
//! | `http/metrics.rs` | `GET /metrics`, by vLLM's names |
//! | `http/kv_events.rs` | `GET /kv-events`: which blocks are known, for routers |
//! | `http/watch.rs` | `GET /state`: the engine as it runs |
//! | `http/openapi.rs` | the OpenAPI document |
//! | `http/page.rs` | the web page |

mod answer;
mod anthropic;
mod app;
mod aside;
mod auth;
mod bodies;
mod chat;
mod completions;
mod conversation;
mod dialect;
mod embeddings;
mod events;
mod grammars;
mod hosts;
mod in_process;
mod kv_events;
mod listen;
mod metrics;
mod openapi;
mod origins;
mod page;
mod patient;
mod pieces;
mod places;
mod prefill;
mod prepare;
mod request_id;
mod responses;
mod routes;
mod runtime;
mod share;
mod small;
mod talk;
mod watch;

pub use app::{App, DRAIN_IN};
pub use auth::{Keys, in_header};
pub use grammars::Grammars;
pub use hosts::Hosts;
pub use in_process::InProcess;
pub use listen::{Listening, bind, listen};
pub use metrics::Metrics;
pub use origins::Origin;
pub use prefill::{PrefillWorkers, WorkerAddress};
pub use routes::router;
pub use runtime::runtime;
