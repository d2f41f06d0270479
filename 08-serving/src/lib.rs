//! The ladder: every rung, one after another, on one model and one prompt.
//!
//! | File | Holds |
//! |---|---|
//! | `api.rs` | what goes over the wire: requests, answers, errors |
//! | `bench.rs` | `ladder bench`: tokens a second beside the memory's bandwidth |
//! | `break_its.rs` | `ladder break`: list the break-its, run one |
//! | `capacity.rs` | how much is served at once, as arguments |
//! | `chat.rs` | `ladder chat`: a conversation in the terminal |
//! | `climb.rs` | `ladder climb`: run every rung, compare, print the table |
//! | `device.rs` | where passes run: on the processor, or on a GPU |
//! | `engine.rs`, `engine/` | rung 08: many requests, one model, one pool |
//! | `faults.rs`, `faults/` | what goes wrong between requests, on purpose |
//! | `generate.rs` | `ladder generate`: continue a text |
//! | `gpu_check.rs`, `gpu_check/` | `ladder gpu-check`: a GPU held to the processor, and timed |
//! | `gpu_step.rs`, `gpu_step/` | `ladder gpu-step`: a GPU's kernel, instruction by instruction |
//! | `http.rs` | the server's front: routes, streams, keys, metrics |
//! | `load.rs` | requests as they might come to a server, seeded |
//! | `models.rs` | `ladder models`: what can be run, and what it costs |
//! | `packed.rs` | a model's files, packed for rung 04's kernels, and kept packed for the next start |
//! | `say.rs` | what is said on standard output |
//! | `serve.rs` | `ladder serve`: the server |
//! | `served.rs` | a model behind an engine |
//! | `shapes.rs` | models of other shapes, which rung 03 is shown on |
//! | `simulate.rs`, `simulate/` | `ladder simulate`: asks, measures this machine, prints |
//! | `simulator/` | a deployment that need not be there |
//! | `sizes.rs` | bytes, and numbers of things, as they are written on a command line |
//! | `source.rs` | where the model comes from |
//! | `text.rs` | from an answer's tokens to what a client reads |
//! | `trace.rs` | `ladder trace`: a load through the engine, pass by pass |

pub mod api;
pub mod bench;
pub mod break_its;
pub mod capacity;
pub mod chat;
pub mod climb;
pub mod device;
pub mod engine;
pub mod faults;
pub mod generate;
pub mod gpu_check;
pub mod gpu_step;
pub mod http;
pub mod load;
pub mod models;
pub mod packed;
mod say;
pub mod serve;
pub mod served;
pub mod shapes;
pub mod simulate;
pub mod simulator;
mod sizes;
pub mod source;
pub mod text;
pub mod trace;

use naive_decode::Rung;

/// Every rung there is, in climbing order.
pub fn rungs() -> Vec<Rung> {
    vec![
        naive_decode::NAIVE,
        kv_cache::LISTS,
        kv_cache::CONTIGUOUS,
        gqa_mla::hybrid::RING,
        flash_attention::TILES,
        paged_cache::PAGED,
        prefix_radix::SHARED,
        speculative::GUESSING,
    ]
}
