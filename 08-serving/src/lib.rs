//! The ladder: every rung, one after another, on one model and one prompt.
//!
//! | File | Holds |
//! |---|---|
//! | `break_its.rs` | `ladder break`: list the break-its, run one |
//! | `climb.rs` | `ladder climb`: run every rung, compare, print the table |
//! | `generate.rs` | `ladder generate`: continue a text |
//! | `models.rs` | `ladder models`: what can be run, and what it costs |
//! | `shapes.rs` | models of other shapes, which rung 03 is shown on |
//! | `source.rs` | where the model comes from |

pub mod break_its;
pub mod climb;
pub mod generate;
pub mod models;
pub mod shapes;
pub mod source;

use naive_decode::Rung;

/// Every rung there is, in climbing order.
pub fn rungs() -> Vec<Rung> {
    vec![
        naive_decode::NAIVE,
        kv_cache::LISTS,
        kv_cache::CONTIGUOUS,
        gqa_mla::hybrid::RING,
        flash_attention::TILES,
    ]
}
