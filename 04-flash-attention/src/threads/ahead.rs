//! What a thread reads next, asked for while it waits.
//!
//! A region lasts as long as its slowest thread, and between two regions one thread has norms and attention to do. Memory has
//! nothing to do meanwhile, though it is what decoding waits for. A thread's weights of all matrices lie one after another,
//! so one that waits knows what it reads next, and asks for it into its core's own cache.

use crate::kernels::{LINE, prefetch_far};
use std::cell::Cell;

/// Most bytes that are asked for from the end of one matrix to that of the next: a part of a second cache, which has 1 MB
/// and more on processors of servers.
const MOST: usize = 256 << 10;

/// Bytes that are asked for between two looks whether the wait is over.
const AT_A_TIME: usize = 512;

/// What the calling thread may ask for.
#[derive(Clone, Copy)]
struct Ahead {
    at: *const u8,
    left: usize,
}

thread_local! {
    static AHEAD: Cell<Ahead> = const { Cell::new(Ahead { at: std::ptr::null(), left: 0 }) };
}

/// The calling thread has read its part of a matrix, and its part of the next one begins at `at`. If nothing is there,
/// nothing comes of it.
pub(crate) fn goes_on_at(at: *const u8) {
    AHEAD.set(Ahead { at, left: MOST });
}

/// Asks for a little of what the calling thread reads next; says whether there was anything left to ask for.
pub(super) fn ask() -> bool {
    let Ahead { at, left } = AHEAD.get();
    if left == 0 {
        return false;
    }
    (0..AT_A_TIME).step_by(LINE).for_each(|offset| prefetch_far(at.wrapping_add(offset)));
    AHEAD.set(Ahead { at: at.wrapping_add(AT_A_TIME), left: left - AT_A_TIME });
    true
}

/// Where the calling thread would ask next, and for how many bytes at most.
#[cfg(test)]
pub(crate) fn next() -> (*const u8, usize) {
    let Ahead { at, left } = AHEAD.get();
    (at, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_thread_asks_for_so_much_and_no_more() {
        let asked = std::thread::spawn(ask).join().unwrap();
        assert!(!asked, "a thread that has read nothing");
        let weights = [0u8; LINE];
        for _ in 0..2 {
            goes_on_at(weights.as_ptr());
            assert_eq!(next(), (weights.as_ptr(), MOST));
            let times = std::iter::repeat_with(ask).take_while(|&asked| asked).count();
            assert_eq!(times * AT_A_TIME, MOST);
            assert_eq!(next(), (weights.as_ptr().wrapping_add(MOST), 0));
        }
    }
}
