//! What a device gives in pieces, as numbers in a row.

use crate::{Address, DeviceError, DeviceResult, Gpu};
use bytemuck::Pod;
use rayon::prelude::*;

/// Bytes of a piece from which on several threads copy it: the bus brings it faster than one thread copies.
const SHARED: usize = 1 << 20;
/// Bytes that a thread has of it at least.
const SHARE: usize = 128 << 10;

/// Reads so many numbers from a device to the end of a `Vec`. They are written once: nothing is cleared for them first.
/// All of them are there then, or none.
///
/// # Errors
/// As [`Gpu::read`]; or if the device gave fewer or more than it was asked for and called it success.
pub fn read_onto<T: Pod + Send + Sync>(
    gpu: &mut (impl Gpu + ?Sized),
    from: Address,
    count: usize,
    to: &mut Vec<T>,
) -> DeviceResult<()> {
    let start = to.len();
    to.reserve(count);
    let read = gpu.read(from, count * size_of::<T>(), &mut |piece| {
        let numbers: &[T] = bytemuck::cast_slice(piece);
        match piece.len() >= SHARED {
            true => to.par_extend(numbers.par_iter().with_min_len(SHARE / size_of::<T>()).copied()),
            false => to.extend_from_slice(numbers),
        }
    });
    let given = to.len() - start;
    let whole = read.and_then(|()| match given == count {
        true => Ok(()),
        false => Err(DeviceError(format!("cannot read: {given} numbers came, not {count}"))),
    });
    if whole.is_err() {
        to.truncate(start);
    }
    whole
}
