//! The pool's memory, in large pages.

use bytemuck::Pod;
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Numbers, zero at first. The system gives memory for them as they are written.
///
/// A token's attention reads the blocks of a table wherever they lie. Pages of 2 MB instead of 4 KB hold several
/// blocks each, so the processor mostly knows already where in memory a block is.
pub(super) struct Memory<T> {
    map: MmapMut,
    length: usize,
    numbers: PhantomData<T>,
}

impl<T: Pod> Memory<T> {
    /// Room for so many numbers; none if the system has not so much.
    pub(super) fn new(length: usize) -> Option<Self> {
        let bytes = length.checked_mul(size_of::<T>())?;
        // The system maps no stretch of no bytes.
        let map = MmapMut::map_anon(bytes.max(1)).ok()?;
        // Only a wish: without large pages everything works, a little slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Memory { map, length, numbers: PhantomData })
    }
}

impl<T: Pod> Deref for Memory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map[..self.length * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for Memory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map[..self.length * size_of::<T>()])
    }
}
