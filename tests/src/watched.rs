//! How much memory is asked for at once.
//!
//! A damaged file can say that four billion numbers follow. Whoever believes it asks for memory
//! before finding that they are not there, and on most systems such a request succeeds and nobody
//! notices. A test notices with
//!
//! ```
//! use ladder_tests::watched::{Watched, largest_while};
//!
//! #[global_allocator]
//! static ALLOCATOR: Watched = Watched;
//!
//! let (_, largest) = largest_while(|| vec![0_u8; 1 << 20]);
//! assert_eq!(largest, 1 << 20);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which remembers each thread's largest request in bytes.
pub struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// What `run` gives, and the largest request for memory that it made on this thread, in bytes. Zero
/// if [`Watched`] is not the program's allocator.
pub fn largest_while<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LARGEST.replace(0);
    let result = run();
    let largest = LARGEST.get();
    LARGEST.set(largest.max(before));
    (result, largest)
}

fn remember(layout: Layout) {
    // A thread that is ending has no memory of its own any more, and nobody who asks.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        remember(layout);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        remember(layout);
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }
}
