//! What the attention kernels do, counted by the interpreter, for chapters 4 and 5 of the book.
//!
//!     cargo run --release -p cuda-kernels --example count_kernels > cuda-kernels/measurements/counts.json
//!
//! Counts depend on kernels and shapes alone, so they are the same on every machine; a test keeps the file.

use cuda_kernels::Launch;
use cuda_kernels::small::attention::{Paged, hopper, step};
use cuda_kernels::steps::Step;
use ptx_interpreter::{Counts, Device, Error};
use serde_json::{Map, Value, json};

/// Tokens and query heads of the numbered steps; one head of keys and values, 64 wide.
const TOKENS: usize = 512;
const HEADS: usize = 2;

/// A decode step, heads of 64.
const DECODE: Paged = Paged { keys: 1_024, queries: 1, heads: 8, kv_heads: 2, is_int8: false };

#[allow(dead_code, reason = "the test of the kept counts uses the rest of this file")]
fn main() -> Result<(), Error> {
    print!("{}", counts()?);
    Ok(())
}

/// All of it as JSON.
pub(crate) fn counts() -> Result<String, Error> {
    let steps = [
        ("1, naive", Step::Naive),
        ("2, tiled", Step::Tiled),
        ("3, swizzled", Step::Swizzled),
        ("4, pipelined", Step::Pipelined),
        ("5, tensor cores", Step::TensorCores),
    ];
    let mut rows = Vec::new();
    for (name, which) in steps {
        rows.push(row(name, |device| step(device, which, TOKENS, HEADS))?);
    }
    rows.push(row("6, Hopper", |device| hopper(device, TOKENS, HEADS))?);
    rows.push(row("paged prefill", |device| DECODE.prefill(device))?);
    for (name, is_int8) in [("paged decode", false), ("paged decode, bytes", true)] {
        let paged = Paged { is_int8, ..DECODE };
        rows.push(row(name, |device| paged.decode(device)[0].clone())?);
        rows.push(row(&format!("{name}: join"), |device| {
            let [decode, join] = paged.decode(device);
            decode.run_interpreted(device).expect("a kernel that its tests run");
            join
        })?);
    }
    for keys in [256, 4_096] {
        let paged = Paged { keys, ..DECODE };
        rows.push(row(&format!("paged decode, {keys} keys"), |device| {
            paged.decode(device)[0].clone()
        })?);
    }
    let command = "cargo run --release -p cuda-kernels --example count_kernels";
    let kept = json!({ "command": command, "rows": rows });
    Ok(format!("{kept:#}\n"))
}

fn row(name: &str, prepare: impl Fn(&mut Device) -> Launch) -> Result<Value, Error> {
    let mut device = Device::new();
    let launch = prepare(&mut device);
    let counts: Counts = launch.run_interpreted(&mut device)?;
    let blocks = launch.grid.map(u64::from).iter().product();
    let beside = [("blocks of threads", blocks), ("bank conflicts", counts.bank_conflicts())];
    let all = beside.into_iter().chain(counts.named());
    let all: Map<String, Value> = all.map(|(name, count)| (name.into(), count.into())).collect();
    Ok(json!({ "name": name, "kernel": launch.entry, "counts": all }))
}
