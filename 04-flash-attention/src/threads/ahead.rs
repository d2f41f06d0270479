//! What a thread reads next, asked for while it waits or multiplies.
//!
//! A region lasts as long as its slowest thread, and between two regions one thread has norms and attention to do. Memory has
//! nothing to do meanwhile, though it is what decoding waits for. A thread's weights of all matrices lie one after another,
//! so one that waits knows what it reads next, and asks for it into its core's own cache.
//!
//! Where many texts are decoded together it is the other way round: weights are multiplied for longer than memory takes to send
//! them, and then attention waits for every text's keys and values. So attention of one layer leaves word of what that of the
//! next will read, and kernels ask for it little by little while they multiply.

use crate::kernels::Stretch;
use std::cell::{Cell, RefCell};

/// Most bytes that are asked for from the end of one matrix to that of the next: a part of a second cache, which has 1 MB
/// and more on processors of servers.
const MOST: usize = 256 << 10;

thread_local! {
    /// Weights that the calling thread may ask for.
    static AHEAD: Cell<Stretch> = const { Cell::new(Stretch::NOTHING) };
}

/// The calling thread has read its part of a matrix, and its part of the next one begins at `at`. If nothing is there,
/// nothing comes of it.
pub(crate) fn goes_on_at(at: *const u8) {
    AHEAD.set(Stretch::from(at, MOST));
}

/// Does another thread's part. What the calling thread may ask for stays what it reads next itself.
pub(super) fn in_place_of_another<T>(part: impl FnOnce() -> T) -> T {
    let own = AHEAD.get();
    let done = part();
    AHEAD.set(own);
    done
}

/// Asks for a little of what the calling thread reads next; says whether there was anything left to ask for.
pub(super) fn ask() -> bool {
    let mut ahead = AHEAD.get();
    let anything = ahead.ask();
    AHEAD.set(ahead);
    anything
}

/// Most bytes of a stretch: a kernel's call takes one, and should be able to ask for all of it.
const STRETCH: usize = 16 << 10;

/// Most stretches that a thread keeps in mind: they should have room in the last cache until they are read.
const MOST_STRETCHES: usize = 256;

/// What the calling thread knows of the next layer.
struct Soon {
    /// The layer that it was left by.
    layer: usize,
    stretches: Vec<Stretch>,
}

thread_local! {
    static SOON: RefCell<Soon> = const { RefCell::new(Soon { layer: 0, stretches: Vec::new() }) };
}

/// After attention of layer `layer`, these bytes will be read by that of the next. What an earlier layer left is forgotten.
pub(crate) fn reads_soon(layer: usize, bytes: &[u8]) {
    SOON.with_borrow_mut(|soon| {
        if soon.layer != layer {
            soon.layer = layer;
            soon.stretches.clear();
        }
        for stretch in bytes.chunks(STRETCH) {
            if soon.stretches.len() < MOST_STRETCHES {
                soon.stretches.push(Stretch::of(stretch));
            }
        }
    });
}

/// Some of what the calling thread has been told of: whoever takes it asks for it.
pub(crate) fn stretch() -> Stretch {
    SOON.with_borrow_mut(|soon| soon.stretches.pop().unwrap_or(Stretch::NOTHING))
}

/// Where the calling thread would ask next, and for how many bytes at most.
#[cfg(test)]
pub(crate) fn next() -> (*const u8, usize) {
    AHEAD.get().rest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{AT_A_TIME, LINE};

    #[test]
    fn one_layer_is_kept_in_mind_and_only_so_much_of_it() {
        let all = || -> Vec<Stretch> {
            std::iter::repeat_with(stretch).take_while(|it| *it != Stretch::NOTHING).collect()
        };
        let bytes = vec![0u8; 2 * STRETCH + 5];
        reads_soon(3, &bytes[..9]);
        reads_soon(4, &bytes);
        assert_eq!(all(), bytes.chunks(STRETCH).rev().map(Stretch::of).collect::<Vec<_>>());
        (0..MOST_STRETCHES).for_each(|_| reads_soon(4, &bytes));
        assert_eq!(all().len(), MOST_STRETCHES);
    }

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
