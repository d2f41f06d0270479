//! Which banks eight lanes meet in, with and without exchanged chunks: for a stepper of the book's chapter 4.
//!
//!     cargo run --release -p cuda-kernels --example trace_banks > cuda-kernels/traces/banks.json
//!
//! Every access is one that the interpreter saw in the committed kernels of steps 2 and 3. Only the words are written here.

use cuda_kernels::small::attention;
use cuda_kernels::steps::Step as Kernel;
use ptx_interpreter::{Device, Error, Module, SharedAccess, Step, Trace, run_traced};
use serde::Serialize;
use std::collections::BTreeSet;

/// Bytes of a row of a tile: all 32 banks.
const ROW: u32 = 128;
/// Bytes of a tile of 32 rows.
const TILE: u32 = 32 * ROW;

#[derive(Serialize)]
struct Kept {
    kind: &'static str,
    command: &'static str,
    frames: Vec<Frame>,
}

/// Eight lanes' access of 16 bytes each, in a tile's first eight lines.
#[derive(Serialize)]
struct Frame {
    event: String,
    /// For each line and each sixteen bytes of it: which chunk of its row lies there.
    chunks: Vec<Vec<u32>>,
    /// Lane, line, and which sixteen bytes of the line.
    access: Vec<[u32; 3]>,
    /// For each wavefront and each four banks, the lane that is served.
    wavefronts: Vec<Vec<Option<u32>>>,
}

/// Warps 0 and 1's accesses of 16 bytes a lane, in order.
#[derive(Default)]
struct Seen(Vec<(u32, SharedAccess)>);

impl Trace for Seen {
    fn step(&mut self, step: &Step<'_>) {
        let wide = step.shared.iter().filter(|access| access.bytes == 16 && step.warp < 2);
        self.0.extend(wide.map(|access| (step.warp, access.clone())));
    }
}

impl Seen {
    fn of(kernel: Kernel) -> Result<Self, Error> {
        let mut device = Device::new();
        let launch = attention::step(&mut device, kernel, 32, 1);
        let module = Module::parse(launch.ptx)?;
        let mut seen = Seen::default();
        run_traced(module.kernel(launch.entry)?, &mut device, &launch.interpreted(), &mut seen)?;
        Ok(seen)
    }

    /// Warp 0's reads of keys: every lane at an address of its own.
    fn key_reads(&self) -> Vec<&SharedAccess> {
        let distinct = |access: &SharedAccess| {
            access.addresses.iter().map(|(_, at)| at).collect::<BTreeSet<_>>().len() == 32
        };
        let reads = self.0.iter().filter(|(warp, access)| *warp == 0 && !access.writes);
        reads.map(|(_, access)| access).filter(|access| distinct(access)).collect()
    }

    /// The first writes of warps 0 and 1 into a tile: rows 0 to 3, and 4 to 7.
    fn writes(&self, tile: u32) -> Vec<&SharedAccess> {
        let of = |warp: u32| {
            let mut all = self.0.iter().filter(|(who, access)| *who == warp && access.writes);
            &all.find(|(_, access)| access.addresses[0].1 / TILE == tile / TILE)
                .expect("a write of keys")
                .1
        };
        vec![of(0), of(1)]
    }
}

#[allow(dead_code, reason = "the test of the kept trace uses the rest of this file")]
fn main() -> Result<(), Error> {
    print!("{}", trace()?);
    Ok(())
}

/// The whole trace as JSON.
pub(crate) fn trace() -> Result<String, Error> {
    let mut frames = Vec::new();
    let (tiled, swizzled) = (Seen::of(Kernel::Tiled)?, Seen::of(Kernel::Swizzled)?);
    let mut tell = |seen: &Seen, written: Option<usize>, chunk: u32, takes: usize, event: &str| {
        let frame = seen.frame(written, chunk, event);
        assert_eq!(frame.wavefronts.len(), takes, "{event}");
        frames.push(frame);
    };
    tell(
        &tiled,
        Some(0),
        0,
        1,
        "Step 2, a key comes in. Lanes 0 to 7 write its eight chunks side by side: eight times four banks, all of them different. One wavefront.",
    );
    tell(
        &tiled,
        None,
        0,
        8,
        "Step 2, keys are read. Each lane wants the first chunk of a key of its own. All eight lie in banks 0 to 3, one under the other. Eight wavefronts.",
    );
    tell(
        &tiled,
        None,
        5,
        8,
        "And the sixth chunk of each: other banks, the same queue. This goes on for all eight chunks, in each of the four groups of eight lanes.",
    );
    tell(
        &swizzled,
        Some(1),
        0,
        1,
        "Step 3, key 1 comes in. Its chunks change places in pairs: chunk c goes to place c XOR 1. Still one wavefront.",
    );
    tell(
        &swizzled,
        None,
        0,
        1,
        "Step 3, keys are read. Eight first chunks again, now on a diagonal. No two share a bank. One wavefront.",
    );
    tell(
        &swizzled,
        None,
        5,
        1,
        "The sixth chunks lie on another pattern, with one to each column as well. So it is for every chunk.",
    );
    let command = "cargo run --release -p cuda-kernels --example trace_banks";
    let kept = Kept { kind: "banks", command, frames };
    Ok(serde_json::to_string_pretty(&kept).expect("plain data") + "\n")
}

impl Seen {
    /// The write of row `written` in its warp's first access; or, if there is none, the read of `chunk` of rows 0 to 7.
    fn frame(&self, written: Option<usize>, chunk: u32, event: &str) -> Frame {
        let reads = self.key_reads();
        let base = reads.iter().map(|read| read.addresses[0].1).min().expect("reads of keys")
            / TILE
            * TILE;
        let place = |address: u32| [(address - base) / ROW, (address - base) % ROW / 16];
        // A thread writes chunk number thread % 8 of row thread / 8.
        let mut chunks = vec![vec![0; 8]; 8];
        for (warp, write) in self.writes(base).iter().enumerate() {
            for (lane, address) in &write.addresses {
                let [line, column] = place(*address);
                assert_eq!(line, warp as u32 * 4 + lane / 8, "rows lie in order");
                chunks[line as usize][column as usize] = lane % 8;
            }
        }
        let (access, request) = match written {
            Some(row) => (self.writes(base)[0], row),
            None => {
                let of_chunk = |read: &&&SharedAccess| {
                    let [line, column] = place(read.addresses[0].1);
                    chunks[line as usize][column as usize] == chunk
                };
                (*reads.iter().find(of_chunk).expect("a read of this chunk"), 0)
            }
        };
        let eight = 8 * request as u32..8 * request as u32 + 8;
        let lanes = access.addresses.iter().filter(|(lane, _)| eight.contains(lane));
        let by_four =
            |wavefront: &[Option<u32>; 32]| wavefront.iter().step_by(4).copied().collect();
        Frame {
            event: event.into(),
            access: lanes.map(|(lane, at)| [*lane, place(*at)[0], place(*at)[1]]).collect(),
            wavefronts: access.by_bank()[request].iter().map(by_four).collect(),
            chunks,
        }
    }
}
