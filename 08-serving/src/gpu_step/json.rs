//! A recording as JSON.

use super::recording::{Moment, Recording};
use cuda_kernels::small::{ALL, Small};
use ptx_interpreter::{Pending, SharedAccess};
use serde_json::{Value, json};

/// The kernels that there are.
pub(super) fn list() -> Value {
    let one = |small: &Small| json!({ "kernel": small.name, "about": small.about });
    ALL.iter().map(one).collect()
}

/// The launch, what it did, and its first `most` instructions. Bits of registers are hexadecimal: they have up to 64.
pub(super) fn recording(recording: &Recording, most: usize) -> Value {
    let Recording { small, launch, block, moments, counts, .. } = recording;
    let counts = counts.named().into_iter().map(|(name, count)| (name.to_string(), count.into()));
    json!({
        "kernel": small.name,
        "about": small.about,
        "grid": launch.grid,
        "threads": launch.threads,
        "shared_bytes": launch.shared_bytes,
        "block": block,
        "counts": counts.collect::<serde_json::Map<String, Value>>(),
        "instructions": moments.len(),
        "steps": moments.iter().take(most).map(|moment| step(recording, moment)).collect::<Vec<_>>(),
    })
}

fn step(recording: &Recording, moment: &Moment) -> Value {
    let hex = |lanes: &[u64; 32]| lanes.map(|bits| format!("{bits:#x}")).to_vec();
    let registers =
        recording.registers(moment).map(|(name, lanes)| (name.to_string(), hex(lanes).into()));
    let predicates =
        recording.predicates(moment).map(|(name, bits)| (name.to_string(), bits.into()));
    json!({
        "warp": moment.warp,
        "pc": moment.pc,
        "line": moment.line,
        "text": recording.text(moment),
        "active": moment.active,
        "executing": moment.executing,
        "registers": registers.collect::<serde_json::Map<String, Value>>(),
        "predicates": predicates.collect::<serde_json::Map<String, Value>>(),
        "shared": moment.shared.iter().map(shared).collect::<Vec<_>>(),
        "pending": pending(&moment.pending),
    })
}

fn shared(access: &SharedAccess) -> Value {
    json!({
        "writes": access.writes,
        "bytes": access.bytes,
        "addresses": access.addresses,
        "requests": access.requests,
        "wavefronts": access.wavefronts,
    })
}

fn pending(pending: &Pending) -> Value {
    let Pending { barriers, mbarriers, bulk_bytes, copies, products } = pending;
    let barriers = barriers.iter().map(|barrier| {
        json!({
            "id": barrier.id,
            "arrived": barrier.arrived,
            "expected": barrier.expected,
            "waiting": barrier.waiting,
        })
    });
    let mbarriers = mbarriers.iter().map(|mbarrier| {
        json!({
            "address": mbarrier.address,
            "phase": mbarrier.phase,
            "arrivals": mbarrier.arrivals,
            "bytes": mbarrier.bytes,
        })
    });
    json!({
        "barriers": barriers.collect::<Vec<_>>(),
        "mbarriers": mbarriers.collect::<Vec<_>>(),
        "bulk_bytes": bulk_bytes,
        "copies": copies,
        "products": products,
    })
}
