//! Memory in large pages: for keys and values, and for packed weights.

use bytemuck::Pod;
use memmap2::{MmapMut, MmapRaw};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Bytes of zeros, in large pages where the system has some.
///
/// # Errors
/// If it has no more memory.
pub(crate) fn map(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)?;
    // Only a wish: without large pages everything works, a little slower.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}

/// Numbers, zero at first. The system gives memory for them as they are written, unless it was told to give it before.
///
/// A token's attention reads far more than the processor remembers pages of. With pages of 2 MB instead of 4 KB it mostly knows
/// already where in memory a tile is, wherever a table says that the next one lies.
pub struct LargePages<T> {
    /// Nobody else reads or writes it: the other holder only gives the system advice about it.
    map: Arc<MmapRaw>,
    length: usize,
    numbers: PhantomData<T>,
}

impl<T: Pod> LargePages<T> {
    /// Room for this many numbers; none if the system does not have that much.
    pub fn new(length: usize) -> Option<Self> {
        let bytes = length.checked_mul(size_of::<T>())?;
        // The system maps no stretch of no bytes.
        let map = map(bytes.max(1)).ok()?;
        Some(LargePages { map: Arc::new(MmapRaw::from(map)), length, numbers: PhantomData })
    }

    /// Has the system give all of it, in another thread, as long as this lives. To clear a large page takes as long as
    /// several tokens; whoever is waiting for one should not wait for that too.
    #[cfg(target_os = "linux")]
    pub fn claim(&self) {
        /// Claimed at a time.
        const STEP: usize = 8 << 20;
        let (map, bytes) = (Arc::downgrade(&self.map), self.length * size_of::<T>());
        let claim = move || {
            for start in (0..bytes).step_by(STEP) {
                // An older system does not know how, and gives what is written when it is written.
                let populate = |map: Arc<MmapRaw>| {
                    let step = STEP.min(bytes - start);
                    map.advise_range(memmap2::Advice::PopulateWrite, start, step).ok()
                };
                if map.upgrade().and_then(populate).is_none() {
                    return;
                }
            }
        };
        let _ = std::thread::Builder::new().name("claim".into()).spawn(claim);
    }

    /// As above; other systems give what is written when it is written.
    #[cfg(not(target_os = "linux"))]
    pub fn claim(&self) {}
}

impl<T: Pod> Deref for LargePages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the map is as long and as aligned, whatever bits are in it are numbers, and whoever may write it holds
        // this type mutably.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.length) }
    }
}

impl<T: Pod> DerefMut for LargePages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and this is held mutably.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_stays_while_the_rest_is_claimed() {
        // A few steps, and a part of one.
        let mut memory = LargePages::<u32>::new((20 << 20) / 4 + 5).expect("there is so much");
        memory.claim();
        let places = || (0..memory.length).step_by(1000);
        assert!(places().all(|place| memory[place] == 0));
        for place in (0..memory.length).step_by(1000) {
            memory[place] = place as u32 + 1;
        }
        assert!((0..memory.length).all(|place| {
            memory[place] == if place % 1000 == 0 { place as u32 + 1 } else { 0 }
        }));
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(LargePages::<u32>::new(usize::MAX / 2).is_none());
        assert!(LargePages::<u8>::new(1 << 60).is_none());
        assert!(LargePages::<u8>::new(0).expect("nothing").is_empty());
    }
}
