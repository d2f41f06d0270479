//! The device itself: memory written and read in pieces, rows copied, launches recorded and played again.

use super::numbers::Random;
use super::{Bench, Problem, same};
use crate::rows::SwiGlu;
use crate::{Address, Launch, Rows, read_onto};

/// Devices copy in pieces of up to 4 MiB; two of them and a bit more.
const LONG: usize = 2 * (4 << 20) + 3;

/// Whether memory, copies and recorded launches are what the seam says.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    pieces(gpu)?;
    rows(gpu)?;
    refusals(gpu)?;
    recordings(gpu)
}

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..count.div_ceil(4)).flat_map(|_| (random.next() as u32).to_le_bytes()).take(count).collect()
}

fn read(gpu: &mut Bench, from: Address, count: usize) -> Result<Vec<u8>, Problem> {
    let mut found = Vec::new();
    read_onto(gpu.device, from, count, &mut found)?;
    Ok(found)
}

/// Long and odd writes, one over a part of another, and reads that begin in the middle.
fn pieces(gpu: &mut Bench) -> Result<(), Problem> {
    let mut right = bytes(1, LONG);
    let at = gpu.alloc::<u8>(LONG)?.address();
    let beside = gpu.upload(&bytes(2, 100))?;
    gpu.device.write(at, &right)?;
    same("a long write", &read(gpu, at, LONG)?, &right)?;
    // Over the edge between two pieces, and at odd places.
    for (from, count) in [((4 << 20) - 5, 11), (1, 257), (LONG - 3, 3), (77, 0)] {
        let part = bytes(from as u64, count);
        right[from..from + count].copy_from_slice(&part);
        gpu.device.write(at + from as u64, &part)?;
    }
    same("after writes within it", &read(gpu, at, LONG)?, &right)?;
    for (from, count) in [(1, 1), ((4 << 20) - 1, 2), (3, LONG - 3), (LONG - 1, 1)] {
        let part = read(gpu, at + from as u64, count)?;
        same("a read within it", &part, &right[from..from + count])?;
    }
    same("what lies beside it", &read(gpu, beside, 100)?, &bytes(2, 100))
}

/// Rows with gaps, without, and one alone, from odd places to odd places; the gaps stay as they are.
fn rows(gpu: &mut Bench) -> Result<(), Problem> {
    const LEN: usize = 20_000;
    let (before, source) = (bytes(3, LEN), bytes(4, LEN));
    let from = gpu.upload(&source)?;
    let to = gpu.upload(&before)?;
    let shapes =
        [(7, 96, 1000), (3, 1, 2), (5, 64, 64), (1, 4099, 4099), (2, 300, 9000), (0, 8, 8)];
    for (count, bytes, stride) in shapes {
        for (skip, over) in [(0, 0), (16, 512), (3, 129)] {
            gpu.device.write(to, &before)?;
            let rows =
                Rows { from: from + skip as u64, to: to + over as u64, count, bytes, stride };
            gpu.device.copy(rows)?;
            let mut right = before.clone();
            for row in 0..count {
                let row = row * stride;
                right[over + row..][..bytes].copy_from_slice(&source[skip + row..][..bytes]);
            }
            let what = format!("{count} rows of {bytes} bytes, {stride} apart, from {skip}");
            same(&what, &read(gpu, to, LEN)?, &right)?;
        }
    }
    same("what was copied from", &read(gpu, from, LEN)?, &source)
}

/// What is not the device's memory is refused, and the device goes on.
fn refusals(gpu: &mut Bench) -> Result<(), Problem> {
    let right = bytes(5, 256);
    let at = gpu.upload(&right)?;
    let beyond = [
        gpu.device.write(at + 200, &[0; 57]),
        gpu.device.read(at + 256, 1, &mut |_| {}),
        gpu.device.write(1, &[0]),
        gpu.device.copy(Rows { from: at, to: at + 128, count: 2, bytes: 8, stride: 128 }),
        gpu.device.replay(crate::Recording(usize::MAX)),
    ];
    if let Some(which) = beyond.iter().position(Result::is_ok) {
        let what = ["a write", "a read", "a write to nowhere", "a copy", "a recording"][which];
        return Err(Problem::Wrong(format!("{what} that is not the device's is not refused")));
    }
    same("after what was refused", &read(gpu, at, 256)?, &right)
}

/// Two launches, the second over what the first writes.
fn recordings(gpu: &mut Bench) -> Result<(), Problem> {
    const WIDTH: usize = 40;
    let zeros = vec![0u16; 2 * WIDTH];
    let x = gpu.alloc::<u16>(4 * WIDTH)?;
    let half = gpu.alloc::<u16>(2 * WIDTH)?;
    let out = gpu.alloc::<u16>(WIDTH)?;
    let first = SwiGlu { out: half.address(), x: x.address(), rows: 1, width: 2 * WIDTH };
    let second = SwiGlu { out: out.address(), x: half.address(), rows: 1, width: WIDTH };
    let both: [Launch; 2] = [first.launch()?, second.launch()?];
    let mut next = {
        let mut random = Random(6);
        move || {
            let numbers = random.bf16s(4 * WIDTH, 3.0);
            numbers.into_iter().map(super::numbers::to_bf16).collect::<Vec<u16>>()
        }
    };
    let clear = |gpu: &mut Bench| {
        gpu.write(half, &zeros)?;
        gpu.write(out, &zeros[..WIDTH])
    };
    // What they should write is what they write when they are launched one by one.
    let inputs = [next(), next(), next()];
    let mut right = Vec::new();
    for input in &inputs {
        gpu.write(x, input)?;
        gpu.run(&both)?;
        right.push((gpu.download(half)?, gpu.download(out)?));
    }
    clear(gpu)?;
    gpu.write(x, &inputs[0])?;
    let pair = gpu.device.record(&both)?;
    let alone = gpu.device.record(&both[..1])?;
    same("recording runs nothing", &gpu.download(half)?, &zeros)?;
    // Twice with other memory, with the other recording and a plain launch between.
    for (input, (right_half, right_out)) in inputs.iter().zip(&right).take(2) {
        clear(gpu)?;
        gpu.write(x, input)?;
        gpu.device.replay(pair)?;
        same("the first of two that were recorded", &gpu.download(half)?, right_half)?;
        same("the second, over the first's", &gpu.download(out)?, right_out)?;
    }
    clear(gpu)?;
    gpu.write(x, &inputs[2])?;
    gpu.device.replay(alone)?;
    same("another recording", &gpu.download(half)?, &right[2].0)?;
    same("what it does not write", &gpu.download(out)?, &zeros[..WIDTH])?;
    gpu.run(&both[1..])?;
    same("a launch after a recording", &gpu.download(out)?, &right[2].1)?;
    // Played after each other without a wait between.
    clear(gpu)?;
    (0..3).try_for_each(|_| gpu.device.replay(pair))?;
    gpu.device.finish()?;
    same("three times in a row", &gpu.download(out)?, &right[2].1)
}
