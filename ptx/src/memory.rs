//! The device's global memory, and where the other state spaces lie among the generic addresses.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::Pod;

use crate::Error;

/// Generic addresses of shared memory begin here. The lower half is zero, so that the lower half of a generic address is
/// the address in shared memory, as it is on devices.
pub(crate) const SHARED_WINDOW: u64 = 0x1000_0000_0000;
/// Generic addresses of a thread's local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x2000_0000_0000;
/// Generic addresses of the kernel's parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x3000_0000_0000;
/// Addresses of a module's variables in global and constant memory.
pub(crate) const MODULE_WINDOW: u64 = 0x4000_0000_0000;
/// How many addresses each window has.
pub(crate) const WINDOW: u64 = 1 << 32;
/// Buffers begin here.
const FIRST: u64 = 0x7_0000_0000;
/// Nothing lies between two buffers for at least so many bytes: who runs past the end is caught.
const GAP: u64 = 4096;

/// A typed piece of device memory.
#[derive(Debug)]
pub struct Buffer<T> {
    address: u64,
    len: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Buffer<T> {}

impl<T> Buffer<T> {
    /// The device address of its first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// Words, and not bytes, so that blocks may run side by side: each access is one atomic operation and no lock.
    words: Box<[AtomicU32]>,
}

/// The global memory of a device.
#[derive(Debug)]
pub struct Device {
    allocations: Vec<Allocation>,
    next: u64,
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
}

impl Device {
    /// A device with nothing allocated.
    pub fn new() -> Self {
        Self { allocations: Vec::new(), next: FIRST }
    }

    /// Memory for `len` elements. Every byte is 0xFF, which is NaN in each floating-point format: memory that was not
    /// written does not look like zero.
    pub fn alloc<T: Pod>(&mut self, len: usize) -> Buffer<T> {
        let bytes = size_of::<T>() * len;
        let words = (0..bytes.div_ceil(4)).map(|_| AtomicU32::new(u32::MAX)).collect();
        let base = self.next;
        self.next = (base + bytes as u64 + GAP).next_multiple_of(GAP);
        self.allocations.push(Allocation { base, bytes: bytes as u64, words });
        Buffer { address: base, len, of: PhantomData }
    }

    /// Memory with the same contents as `data`.
    pub fn upload<T: Pod>(&mut self, data: &[T]) -> Buffer<T> {
        let buffer = self.alloc(data.len());
        if let Some(allocation) = self.allocations.last_mut() {
            allocation.fill(bytemuck::cast_slice(data));
        }
        buffer
    }

    /// Overwrites a buffer.
    ///
    /// # Errors
    /// [`Error::Memory`] if the lengths differ, or the buffer is not of this device.
    pub fn write<T: Pod>(&mut self, buffer: Buffer<T>, data: &[T]) -> Result<(), Error> {
        if data.len() != buffer.len {
            return Err(Error::Memory(format!(
                "{} elements for a buffer of {}",
                data.len(),
                buffer.len
            )));
        }
        let found =
            self.allocations.iter_mut().find(|allocation| allocation.base == buffer.address);
        found.ok_or_else(|| unknown(buffer.address))?.fill(bytemuck::cast_slice(data));
        Ok(())
    }

    /// What a buffer holds.
    ///
    /// # Errors
    /// [`Error::Memory`] if the buffer is not of this device.
    pub fn download<T: Pod>(&self, buffer: Buffer<T>) -> Result<Vec<T>, Error> {
        let bytes = (buffer.len * size_of::<T>()) as u64;
        let (allocation, _) =
            self.find(buffer.address, bytes).ok_or_else(|| unknown(buffer.address))?;
        let mut found = vec![T::zeroed(); buffer.len];
        let target: &mut [u8] = bytemuck::cast_slice_mut(&mut found);
        for (chunk, word) in target.chunks_mut(4).zip(&allocation.words) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..chunk.len()]);
        }
        Ok(found)
    }

    /// The allocation that holds all of these bytes, and where in it they begin.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<(&Allocation, u64)> {
        let after = self.allocations.partition_point(|allocation| allocation.base <= address);
        let allocation = self.allocations.get(after.checked_sub(1)?)?;
        let offset = address - allocation.base;
        (offset.checked_add(bytes)? <= allocation.bytes).then_some((allocation, offset))
    }

    /// What lies around an address that nothing holds, in words for an error.
    pub(crate) fn around(&self, address: u64) -> String {
        let after = self.allocations.partition_point(|allocation| allocation.base <= address);
        let Some(allocation) = after.checked_sub(1).and_then(|at| self.allocations.get(at)) else {
            return "it is below every buffer".into();
        };
        let end = allocation.base + allocation.bytes;
        format!(
            "the nearest buffer below has {} bytes from {:#x} and ends at {end:#x}",
            allocation.bytes, allocation.base
        )
    }
}

fn unknown(address: u64) -> Error {
    Error::Memory(format!("no buffer of this device begins at {address:#x}"))
}

impl Allocation {
    fn fill(&mut self, data: &[u8]) {
        for (word, chunk) in self.words.iter_mut().zip(data.chunks(4)) {
            let mut bytes = word.get_mut().to_le_bytes();
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word.get_mut() = u32::from_le_bytes(bytes);
        }
    }

    /// A value of 1, 2, 4 or 8 bytes at an offset that is a multiple of its size and lies inside.
    pub(crate) fn load(&self, offset: u64, bytes: u32) -> u64 {
        let word = |at: u64| u64::from(self.words[at as usize].load(Ordering::Relaxed));
        let (at, shift) = (offset / 4, offset % 4 * 8);
        match bytes {
            8 => word(at) | word(at + 1) << 32,
            4 => word(at),
            _ => word(at) >> shift & (u64::MAX >> (64 - 8 * bytes)),
        }
    }

    /// The counterpart of [`Self::load`].
    pub(crate) fn store(&self, offset: u64, bytes: u32, value: u64) {
        let at = (offset / 4) as usize;
        match bytes {
            8 => {
                self.words[at].store(value as u32, Ordering::Relaxed);
                self.words[at + 1].store((value >> 32) as u32, Ordering::Relaxed);
            }
            4 => self.words[at].store(value as u32, Ordering::Relaxed),
            // A block beside this one may write the word's other half.
            _ => {
                let shift = (offset % 4 * 8) as u32;
                let mask = (u32::MAX >> (32 - 8 * bytes)) << shift;
                let insert = |old: u32| Some(old & !mask | (value as u32) << shift & mask);
                let _ = self.words[at].fetch_update(Ordering::Relaxed, Ordering::Relaxed, insert);
            }
        }
    }

    /// Bytes from an offset that is a multiple of 4.
    pub(crate) fn read_bytes(&self, offset: u64, to: &mut [u8]) {
        for (index, chunk) in to.chunks_mut(4).enumerate() {
            let word = self.load(offset + 4 * index as u64, 4) as u32;
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }

    /// The counterpart of [`Self::read_bytes`].
    pub(crate) fn write_bytes(&self, offset: u64, from: &[u8]) {
        for (index, byte) in from.iter().enumerate() {
            self.store(offset + index as u64, 1, u64::from(*byte));
        }
    }
}
