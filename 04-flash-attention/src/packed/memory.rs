//! Where packed weights lie: in large pages, a stretch for each thread.
//!
//! A model's matrices are packed in the order in which a token meets them. Each thread's panels of all
//! of them then follow one another, so what it asks for ahead of time at the end of one matrix is the
//! beginning of its next. Pages of 2 MB instead of 4 KB spare the processor most of the work of finding
//! out where in memory a page is.
//!
//! Weights that were packed before lie in a file in the same order. They are used where they are mapped; on Linux, until they
//! have been copied into large pages, too.

use crate::kernels::LINE;
use crate::large_pages;
use memmap2::{Mmap, MmapRaw};
use naive_decode::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Address space that is set aside at a time. It becomes memory only as it is written.
const CHUNK: usize = 64 << 20;

/// A large page.
const PAGE: usize = 2 << 20;

/// Memory for the weights of one model, in as many stretches as there are threads.
pub struct Memory {
    stretches: Vec<Mutex<Stretch>>,
    /// Bytes of all blocks so far.
    given: Arc<AtomicUsize>,
}

/// What one thread's blocks are cut from.
#[derive(Default)]
struct Stretch {
    chunk: Option<Arc<Pages>>,
    /// Bytes of the chunk that are given away.
    used: usize,
}

/// Where a block's bytes are.
enum Pages {
    /// Memory of one's own, to be written once, and the bytes of all blocks of the same [`Memory`].
    Own(MmapRaw, Arc<AtomicUsize>),
    /// A file, read-only.
    File(Arc<Mmap>),
}

/// Some of it, which belongs to whoever holds this.
pub(super) struct Block {
    pages: Arc<Pages>,
    /// From the beginning of the map.
    start: usize,
    length: usize,
    /// The same bytes in memory of one's own, once they are there.
    copy: OnceLock<Box<Block>>,
}

impl Memory {
    /// No memory yet, for so many threads.
    pub fn new(threads: usize) -> Self {
        let stretches = std::iter::repeat_with(Default::default).take(threads).collect();
        Memory { stretches, given: Arc::default() }
    }

    /// `length` bytes of zeros, after those that the thread was given before.
    ///
    /// # Errors
    /// If the system has no more.
    pub(super) fn take(&self, thread: usize, length: usize) -> Result<Block> {
        let mut stretch = self.stretches[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let start = stretch.used.next_multiple_of(LINE);
        let pages = match &stretch.chunk {
            Some(pages) if start + length <= pages.length() => pages.clone(),
            _ => {
                let (pages, first) = self.own(length)?;
                let pages = Arc::new(pages);
                stretch.used = first;
                stretch.chunk = Some(pages.clone());
                pages
            }
        };
        let start = stretch.used.next_multiple_of(LINE);
        stretch.used = start + length;
        self.given.fetch_add(length, Ordering::Relaxed);
        Ok(Block { pages, start, length, copy: OnceLock::new() })
    }

    /// New address space, and where in it the first large page begins.
    fn own(&self, at_least: usize) -> Result<(Pages, usize)> {
        let length = CHUNK.max(at_least.next_multiple_of(PAGE)) + PAGE;
        let map = large_pages::map(length).map_err(|refused| {
            Error::invalid("memory for weights", format!("{length} bytes"), refused.to_string())
        })?;
        let first = map.as_ptr().addr().next_multiple_of(PAGE) - map.as_ptr().addr();
        Ok((Pages::Own(MmapRaw::from(map), self.given.clone()), first))
    }
}

impl Pages {
    fn length(&self) -> usize {
        match self {
            Pages::Own(map, _) => map.len(),
            Pages::File(map) => map.len(),
        }
    }

    fn start(&self) -> *const u8 {
        match self {
            Pages::Own(map, _) => map.as_ptr(),
            Pages::File(map) => map.as_ptr(),
        }
    }
}

impl Block {
    /// A part of a mapped file.
    ///
    /// # Panics
    /// If the file ends before.
    pub(super) fn mapped(map: &Arc<Mmap>, start: usize, length: usize) -> Self {
        assert!(start.checked_add(length).is_some_and(|end| end <= map.len()), "in the file");
        Block { pages: Arc::new(Pages::File(map.clone())), start, length, copy: OnceLock::new() }
    }

    /// Fills memory of one's own by `read`, which is told where in the file the bytes begin. From then on they are read there,
    /// and the system may have the map's pages back. None if they cannot be read, or there is no address space; then everything
    /// is as it was.
    #[cfg(target_os = "linux")]
    pub(super) fn copy(
        &self,
        (memory, thread): (&Memory, usize),
        read: impl FnOnce(&mut [u8], u64) -> std::io::Result<()>,
    ) -> Option<()> {
        let Pages::File(map) = &*self.pages else { return None };
        let mut copy = memory.take(thread, self.length).ok()?;
        read(copy.bytes_mut(), self.start as u64).ok()?;
        self.copy.set(Box::new(copy)).ok()?;
        let advice = memmap2::UncheckedAdvice::DontNeed;
        // SAFETY: the map is read-only and shared with its file, so no page has anything that the file does not: whoever
        // still reads there finds the same bytes.
        let _ = unsafe { map.unchecked_advise_range(advice, self.start, self.length) };
        Some(())
    }

    /// Bytes of all blocks of the same memory, or of the file: a model's weights, once it is packed.
    pub(super) fn together(&self) -> usize {
        match &*self.pages {
            Pages::Own(_, given) => given.load(Ordering::Relaxed),
            Pages::File(map) => map.len(),
        }
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        if let Some(copy) = self.copy.get() {
            return copy.bytes();
        }
        // SAFETY: the block lies in the map, which lives as long as it. In memory of one's own no other
        // block has the same bytes: `Memory::take` gives each away once. A file is only read.
        unsafe { std::slice::from_raw_parts(self.pages.start().add(self.start), self.length) }
    }

    /// Its bytes, to write.
    ///
    /// # Panics
    /// If they are a file's.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let Pages::Own(map, _) = &*self.pages else { panic!("a mapped file is only read") };
        // SAFETY: as above, and the block is borrowed whole.
        unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr().add(self.start), self.length) }
    }
}
