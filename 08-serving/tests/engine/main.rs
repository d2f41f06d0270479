//! The engine: the same tokens in any company, nothing lost, nobody forgotten.
//!
//! | File | Holds |
//! |---|---|
//! | `world.rs` | a small model, requests, what each answers alone, and an engine stepped by hand |
//! | `numbers.rs` | requests and blocks as numbers, for policies |
//! | `same_tokens.rs` | alone and in any batch, bit for bit |
//! | `pressure.rs` | a pool that is too small: preemption, parking, nothing lost |
//! | `elsewhere.rs` | prompts that another engine reads |
//! | `deliveries.rs` | the same where several wait for one |
//! | `embeddings.rs` | hidden states of prompts, alone and in any batch |
//! | `kv_events.rs` | routers know what the pool knows |
//! | `forms.rs` | answers of a given form: masks, followed while the model runs |
//! | `rules.rs` | tokens that a request does not want |
//! | `leaving.rs` | cancellation at every point, deadlines, readers that stall, draining |
//! | `requests.rs` | what is refused, ends, log-probabilities |
//! | `schedule.rs` | the policies as functions |
//! | `room.rs` | the policies again: blocks that several have |
//! | `snapshot.rs` | what the engine looks like from outside |
//! | `soak.rs` | everything at once |
//! | `thread.rs` | the engine on its thread |
//! | `tiers.rs` | what leaves the pool, in memory and in a file |

mod deliveries;
mod elsewhere;
mod embeddings;
mod forms;
mod kv_events;
mod leaving;
mod numbers;
mod pressure;
mod requests;
mod room;
mod rules;
mod same_tokens;
mod schedule;
mod snapshot;
mod soak;
mod thread;
mod tiers;
mod world;
