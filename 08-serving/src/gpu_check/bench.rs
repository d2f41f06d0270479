//! Kernels, timed.
//!
//! A sample is the time of one launch, or of one pair: so many are played that together they take a fiftieth of a second,
//! the device is waited for, and the time is divided. They are recorded once and played again, so that no launch is waited
//! for. What is read from memory in a model is read from memory here: weights, keys and values lie there so many times that
//! going through all of them in turn leaves nothing in the device's cache. Inputs are random, since a GPU is slower at some
//! numbers than at others (zeros take less power).
//!
//! | File | Holds |
//! |---|---|
//! | `shapes.rs` | what is timed: kinds of work at their sizes |
//! | `work.rs` | a shape's arrays on a device, and the launches of each kernel that is for it |

mod shapes;
mod work;

pub use shapes::{Shape, Shapes};

use crate::say::say;
use anyhow::{Result, anyhow};
use cuda_kernels::check::Bench;
use cuda_kernels::{DeviceResult, Gpu};
use serde::Serialize;
use std::time::{Duration, Instant};
use work::{What, Work, works};

/// What a sample ought to take, so that the clock and the launches do not matter.
const SAMPLE: Duration = Duration::from_millis(20);

/// One kernel at one shape.
#[derive(Debug, Serialize)]
pub struct Timed {
    /// What was done.
    pub name: &'static str,
    /// The shape, as the peers have it too.
    pub shape: Shape,
    /// Operations of a launch, two to a multiplication with an addition; half of all scores where it is causal.
    pub flops: f64,
    /// Bytes that it must read and write.
    pub bytes: f64,
    /// Seconds, of each sample.
    pub seconds: Vec<f64>,
}

/// Times all shapes with all kernels that are for them, each on a device of its own.
///
/// # Errors
/// If a device cannot be had, refuses or fails.
pub fn all<G: Gpu>(open: &mut dyn FnMut() -> Result<G>, shapes: &Shapes) -> Result<Vec<Timed>> {
    let mut all = Vec::new();
    for &shape in &shapes.shapes {
        let mut device = open()?;
        let mut gpu = Bench::new(&mut device);
        let copies = shapes.copies(shape);
        for work in works(&mut gpu, shape, copies)? {
            let (name, seconds) = (work.name, samples(&mut device, &work, shapes.samples)?);
            let timed = Timed { name, shape, flops: shape.flops(), bytes: shape.bytes(), seconds };
            say!("  {}", said(&timed))?;
            all.push(timed);
            // The borrow ends with each: the arrays stay where they are.
        }
    }
    Ok(all)
}

/// A line about it, with the median.
fn said(timed: &Timed) -> String {
    let seconds = naive_decode::measurement::median(&timed.seconds);
    let mut said = format!("{} {:?}: {:.1} us", timed.name, timed.shape, seconds * 1e6);
    if timed.flops > 0.0 {
        said += &format!(", {:.1} TFLOP/s", timed.flops / seconds / 1e12);
    }
    said + &format!(", {:.0} GB/s", timed.bytes / seconds / 1e9)
}

/// Seconds of one go, so many times.
fn samples(device: &mut dyn Gpu, work: &Work, count: usize) -> Result<Vec<f64>> {
    let failed = |error| anyhow!("{}: {error}", work.name);
    type Go = Box<dyn Fn(&mut dyn Gpu) -> DeviceResult<()>>;
    let (go, goes): (Go, usize) = match &work.what {
        What::Launches { launches, copies } => {
            let recording = device.record(launches).map_err(failed)?;
            (Box::new(move |device| device.replay(recording)), *copies)
        }
        &What::Copy(rows) => (Box::new(move |device| device.copy(rows)), 1),
    };
    let mut play = |times: usize| -> Result<f64> {
        let began = Instant::now();
        for _ in 0..times {
            go(device).map_err(failed)?;
        }
        device.finish().map_err(failed)?;
        Ok(began.elapsed().as_secs_f64())
    };
    // The first is not as the others; the second says how many make a sample.
    play(1)?;
    let once = play(1)?;
    let times = ((SAMPLE.as_secs_f64() / once) as usize).clamp(1, 2000);
    play(times)?;
    (0..count).map(|_| Ok(play(times)? / (times * goes) as f64)).collect()
}
