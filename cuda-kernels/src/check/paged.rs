//! Requests whose keys and values lie in a paged cache, and what attention should give.
//!
//! | File | Holds |
//! |---|---|
//! | `request.rs` | requests of a batch, and what each of their queries sees |
//! | `case.rs` | queries, and the pool in which their keys and values lie |
//! | `textbook.rs` | what is right, in f64 |

mod case;
mod request;
mod textbook;

pub use case::{Case, Heads};
pub use request::{Request, upload_batch};
pub use textbook::textbook;

use super::{Bench, Problem};

/// The kernels for attention over the paged cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// For many queries.
    Prefill,
    /// For few, and the one that joins its splits.
    Decode,
    /// For many, with Hopper's instructions.
    Hopper,
}

/// Two query heads to a kv head.
pub const NARROW: Heads = Heads { heads: 4, kv_heads: 2, head_dim: 64 };
/// Three: tiles of 16 and of 64 rows end inside of a token.
pub const WIDE: Heads = Heads { heads: 3, kv_heads: 1, head_dim: 128 };

/// Ragged lengths: a first token, a decoding step, pieces of prompts at and beside the edges of blocks, tiles and splits.
pub fn ragged() -> Vec<Request> {
    vec![
        Request::text(1, 1),
        Request::text(300, 1),
        Request::text(70, 70),
        Request::text(256, 3),
        Request::text(321, 40),
        Request::text(65, 2),
    ]
}

/// Trees behind texts: one with two branches, one whose nodes cross the edge of a split.
pub fn trees() -> Vec<Request> {
    let branches = [None, Some(0), Some(0), Some(1), Some(2), Some(2), None, Some(6)];
    vec![
        Request::tree(40, &branches),
        Request::text(90, 3),
        Request::tree(260, &branches),
        Request::tree(9, &[None]),
    ]
}

/// Every kind of request, of head and of number.
pub fn cases() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for (name, requests) in [("ragged", ragged()), ("trees", trees())] {
        for heads in [NARROW, WIDE] {
            let mut add = |numbers: &str, case: Case| {
                cases.push((format!("{name}, heads of {}, {numbers}", heads.head_dim), case));
            };
            add("bf16", Case::new(heads, &requests, false, 1));
            add("int8", Case::new(heads, &requests, true, 2));
            add("fp8", Case::fp8(heads, &requests, 3));
        }
    }
    cases
}

/// Whether both kernels are right, and give the same bits.
///
/// # Errors
/// Says what is not.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    for (name, case) in cases() {
        let prefill = case.run(gpu, Kernel::Prefill)?;
        case.compare(&format!("prefill, {name}"), &prefill)?;
        if case.run(gpu, Kernel::Decode)? != prefill {
            return Err(Problem::Wrong(format!("decode and prefill differ, {name}")));
        }
    }
    Ok(())
}

/// Whether the kernel with Hopper's instructions is right. Whether it gives the others' bits is another question:
/// [`hopper_gives_the_same_bits`].
///
/// # Errors
/// Says what is not.
pub(super) fn check_hopper(gpu: &mut Bench) -> Result<(), Problem> {
    for (name, case) in cases().into_iter().filter(|(_, case)| case.is_bf16()) {
        let hopper = case.run(gpu, Kernel::Hopper)?;
        case.compare(&format!("Hopper's prefill, {name}"), &hopper)?;
    }
    Ok(())
}

/// Whether this device gives the same bits for a small case from the kernel with Hopper's instructions and from the other.
/// Both add the same products in the same order; whether `wgmma` rounds the sums as `mma` does, only a device can say.
///
/// # Errors
/// If the device refuses or fails.
pub fn hopper_gives_the_same_bits(gpu: &mut Bench, heads: Heads) -> Result<bool, Problem> {
    let branches = [None, Some(0), Some(0), Some(1)];
    let requests = [Request::text(150, 70), Request::text(300, 1), Request::tree(90, &branches)];
    let case = Case::new(heads, &requests, false, 4);
    Ok(case.run(gpu, Kernel::Hopper)? == case.run(gpu, Kernel::Prefill)?)
}
