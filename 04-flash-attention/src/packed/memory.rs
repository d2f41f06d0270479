//! Where packed weights lie: in large pages, a stretch for each thread.
//!
//! A model's matrices are packed in the order in which a token meets them. Each thread's panels of all
//! of them then follow one another, so what it asks for ahead of time at the end of one matrix is the
//! beginning of its next. Pages of 2 MB instead of 4 KB spare the processor most of the work of finding
//! out where in memory a page is.

use memmap2::{MmapMut, MmapRaw};
use naive_decode::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// Address space that is set aside at a time. It becomes memory only as it is written.
const CHUNK: usize = 64 << 20;

/// A large page.
const PAGE: usize = 2 << 20;

/// Every block begins on a cache line.
const LINE: usize = 64;

/// Memory for the weights of one model, in as many stretches as there are threads.
pub struct Memory {
    stretches: Vec<Mutex<Stretch>>,
}

/// What one thread's blocks are cut from.
#[derive(Default)]
struct Stretch {
    chunk: Option<Arc<Chunk>>,
    /// Bytes of the chunk that are given away.
    used: usize,
}

/// Some address space, and where in it the first large page begins.
struct Chunk {
    map: MmapRaw,
    first: usize,
}

/// Some of it, which belongs to whoever holds this.
pub(super) struct Block {
    chunk: Arc<Chunk>,
    /// From the beginning of the map.
    start: usize,
    length: usize,
}

impl Memory {
    /// No memory yet, for so many threads.
    pub fn new(threads: usize) -> Self {
        Memory { stretches: std::iter::repeat_with(Default::default).take(threads).collect() }
    }

    /// `length` bytes of zeros, after those that the thread was given before.
    ///
    /// # Errors
    /// If the system has no more.
    pub(super) fn take(&self, thread: usize, length: usize) -> Result<Block> {
        let mut stretch = self.stretches[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let start = stretch.used.next_multiple_of(LINE);
        let chunk = match &stretch.chunk {
            Some(chunk) if start + length <= chunk.map.len() => chunk.clone(),
            _ => {
                let chunk = Arc::new(Chunk::new(length)?);
                stretch.used = chunk.first;
                stretch.chunk = Some(chunk.clone());
                chunk
            }
        };
        let start = stretch.used.next_multiple_of(LINE);
        stretch.used = start + length;
        Ok(Block { chunk, start, length })
    }
}

impl Chunk {
    fn new(at_least: usize) -> Result<Self> {
        let length = CHUNK.max(at_least.next_multiple_of(PAGE)) + PAGE;
        let map = MmapMut::map_anon(length).map_err(|refused| {
            Error::invalid("memory for weights", format!("{length} bytes"), refused.to_string())
        })?;
        // Only a wish: without large pages everything works, a little slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let first = map.as_ptr().addr().next_multiple_of(PAGE) - map.as_ptr().addr();
        Ok(Chunk { map: MmapRaw::from(map), first })
    }
}

impl Block {
    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the block lies in the map, which lives as long as it, and no other block has the same
        // bytes: `Memory::take` gives each away once.
        unsafe { std::slice::from_raw_parts(self.chunk.map.as_ptr().add(self.start), self.length) }
    }

    /// Its bytes, to write.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the block is borrowed whole.
        unsafe {
            std::slice::from_raw_parts_mut(self.chunk.map.as_mut_ptr().add(self.start), self.length)
        }
    }
}
