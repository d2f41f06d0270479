//! How much memory is asked for: at once, and in all.
//!
//! A damaged file can say that four billion numbers follow. Whoever believes it asks for memory
//! before finding that they are not there, and on most systems such a request succeeds and nobody
//! notices. A test notices with
//!
//! ```
//! use ladder_tests::watched::{Watched, largest_while, most_held_while};
//!
//! #[global_allocator]
//! static ALLOCATOR: Watched = Watched;
//!
//! let (_, largest) = largest_while(|| vec![0_u8; 1 << 20]);
//! assert_eq!(largest, 1 << 20);
//! let (_, most) = most_held_while(|| drop((vec![0_u8; 3000], vec![0_u8; 1000])));
//! assert_eq!(most, 4000);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which remembers what each thread asked for, in bytes.
pub struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    /// Asked for and not given back. What another thread gives back is not counted here.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST_HELD: Cell<isize> = const { Cell::new(0) };
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

/// What `run` gives, and the most memory in bytes that it held at a time of what it asked for on
/// this thread. Zero if [`Watched`] is not the program's allocator.
pub fn most_held_while<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = (HELD.get(), MOST_HELD.replace(HELD.get()));
    let result = run();
    let most = MOST_HELD.get();
    MOST_HELD.set(most.max(before.1));
    (result, (most - before.0).unsigned_abs())
}

// A thread that is ending has no cells any more, and nobody who asks: hence `try_with`.

fn asked(layout: Layout) {
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
    let held = HELD.try_with(|held| {
        held.set(held.get().wrapping_add_unsigned(layout.size()));
        held.get()
    });
    let _ = MOST_HELD.try_with(|most| most.set(most.get().max(held.unwrap_or(0))));
}

fn given_back(layout: Layout) {
    let _ = HELD.try_with(|held| held.set(held.get().wrapping_sub_unsigned(layout.size())));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        asked(layout);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        given_back(layout);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        asked(layout);
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }
}
