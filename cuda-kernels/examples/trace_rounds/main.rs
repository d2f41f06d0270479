//! What goes on beside what in steps 3, 4 and 6: for a stepper of the book's chapter 4.
//!
//!     cargo run --release -p cuda-kernels --example trace_rounds > cuda-kernels/traces/rounds.json
//!
//! What each warp does, in which order, and at which barriers it waits, is what the interpreter saw in the committed
//! kernels. The interpreter has no clock. So the acts are laid out in rounds: each takes one, and begins as soon as the
//! kernel's own barriers let it. What is seen is who *can* work beside whom, and not for how long.

mod acts;
mod rounds;

use acts::Acts;
use cuda_kernels::Launch;
use cuda_kernels::small::attention;
use cuda_kernels::steps::Step;
use ptx_interpreter::{Device, Error, Module, run_traced};
use rounds::Row;
use serde::Serialize;

#[derive(Serialize)]
struct Kept {
    kind: &'static str,
    command: &'static str,
    ways: Vec<Way>,
}

/// One kernel.
#[derive(Serialize)]
struct Way {
    name: &'static str,
    rounds: usize,
    rows: Vec<Row>,
}

#[allow(dead_code, reason = "the test of the kept trace uses the rest of this folder")]
fn main() -> Result<(), Error> {
    print!("{}", trace()?);
    Ok(())
}

/// What some warps of the block with the last queries do: the last block, or the first where those are begun first.
fn acts(
    warps: &[u32],
    is_last: bool,
    prepare: impl Fn(&mut Device) -> Launch,
) -> Result<Vec<Acts>, Error> {
    let mut device = Device::new();
    let launch = prepare(&mut device);
    let module = Module::parse(launch.ptx)?;
    let block = launch.grid.map(|blocks| if is_last { blocks - 1 } else { 0 });
    let mut seen = acts::Seen::new(warps, block);
    run_traced(module.kernel(launch.entry)?, &mut device, &launch.interpreted(), &mut seen)?;
    Ok(seen.acts)
}

/// The whole trace as JSON.
pub(crate) fn trace() -> Result<String, Error> {
    let step = |which| move |device: &mut Device| attention::step(device, which, 128, 1);
    let way = |name, (rounds, rows)| Way { name, rounds, rows };
    let ways = vec![
        way(
            "Step 3: all warps fetch, then all work",
            rounds::one_kind(&acts(&[0], true, step(Step::Swizzled))?[0]),
        ),
        way(
            "Step 4: the next tile is on its way while one is worked with",
            rounds::one_kind(&acts(&[0], true, step(Step::Pipelined))?[0]),
        ),
        way(
            "Step 6: one warp fetches, two groups of four warps multiply in turns",
            rounds::specialised(&acts(&[0, 4, 8], false, |device| {
                attention::hopper(device, 384, 1)
            })?),
        ),
    ];
    let command = "cargo run --release -p cuda-kernels --example trace_rounds";
    let kept = Kept { kind: "rounds", command, ways };
    Ok(serde_json::to_string_pretty(&kept).expect("plain data") + "\n")
}
