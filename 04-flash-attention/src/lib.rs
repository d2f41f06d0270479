//! Rung 04: fewer bytes moved.
//!
//! A processor multiplies faster than memory delivers. Everything here makes one token cost fewer bytes:
//! attention that never writes its scores down, weights that are stored narrow and multiplied as they are,
//! sweeps over memory that are merged into one.
//!
//! | File | Holds |
//! |---|---|
//! | `traffic.rs` | bytes between slow and fast memory, counted and from formulas |
//! | `head.rs` | what the textbook forms of attention are given |
//! | `tiles.rs`, `online.rs` | what they are built of: a tile of scores, the online softmax |
//! | `standard.rs` | attention that writes its scores down |
//! | `flash_v1.rs`, `flash_v2.rs` | FlashAttention, in both loop orders |
//! | `flash_decoding.rs` | a long past shared out by split; the unified maximum |
//! | `textbook.rs` | these forms as attention of a model |
//! | `tile_attention.rs` | the attention that serves: kernels over keys and values in tiles, wherever those lie |
//! | `flash_cache.rs` | a cache in such tiles |
//! | `large_pages.rs` | memory for it, and for packed weights |
//! | `fusion.rs` | operations joined by rules over their graph |
//! | `threads.rs` | a pool of threads for regions of microseconds |
//! | `packed.rs` | weights stored narrow, and multiplied as they are stored |
//! | `kernels.rs` | the inner loops of packed weights, for each instruction set |
//! | `faults.rs` | what goes wrong with tiles, splits and scales, on purpose |

#[cfg(target_endian = "big")]
compile_error!(
    "expected a processor that reads the lowest byte of a number first: weights are so stored"
);

pub mod faults;
mod flash_cache;
mod flash_decoding;
mod flash_v1;
mod flash_v2;
pub mod fusion;
mod head;
pub mod kernels;
mod large_pages;
mod online;
pub mod packed;
mod standard;
mod textbook;
pub mod threads;
pub mod tile_attention;
mod tiles;
pub mod traffic;

pub use flash_cache::{FlashCache, TILES};
pub use flash_decoding::{UNIFIED_RANGE, flash_decoding, unified_maximum};
pub use flash_v1::flash_v1;
pub use flash_v2::flash_v2;
pub use head::{Head, Method, Tiling, attend_heads};
pub use large_pages::LargePages;
pub use online::Online;
pub use standard::standard;
pub use textbook::Textbook;
