//! Waiting for another thread: look, then sleep.

use super::ahead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a waiting thread looks, and asks for what it reads next. The gap between two tokens is shorter.
///
/// It does not yield the core in between. Systems give who yields no turn until all others have had theirs, which is
/// milliseconds each, and whoever waits for this thread then waits as long.
const LOOK: Duration = Duration::from_micros(200);

/// Looks between two looks at the clock.
const LOOKS: usize = 32;

/// A number that is raised, by one thread at a time, and that one thread waits for. In a cache line (two, as processors fetch
/// them) of its own, so that waiting for one counter does not slow another down.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counter {
    value: AtomicU64,
    /// Whether somebody sleeps until the number is raised.
    asleep: AtomicBool,
    sleeper: Mutex<Option<Thread>>,
}

impl Counter {
    /// Raises the number. All that this thread wrote before is seen by whoever waited for it.
    pub(super) fn raise(&self, value: u64) {
        // Store, then look for a sleeper; who goes to sleep says so, then looks at the value. In one
        // total order (SeqCst) at least one of the two sees the other, so nobody sleeps through it.
        self.value.store(value, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst)
            && let Some(sleeper) = &*self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
        {
            sleeper.unpark();
        }
    }

    /// Returns once the number is `value` or more, with what it is then. Calls `looks` while it looks, now and then, and
    /// `sleeps` before it sleeps.
    pub(super) fn wait_for(&self, value: u64, looks: impl Fn(), sleeps: impl FnOnce()) -> u64 {
        if !self.comes_soon(value, looks) {
            sleeps();
            self.sleep_until(value);
        }
        self.value.load(Ordering::Acquire)
    }

    /// Whether the number is `value` or more.
    pub(super) fn is(&self, value: u64) -> bool {
        self.value.load(Ordering::Acquire) >= value
    }

    // ANCHOR: comes_soon
    /// Looks for a while.
    fn comes_soon(&self, value: u64, looks: impl Fn()) -> bool {
        let mut began = None;
        loop {
            for _ in 0..LOOKS {
                if self.is(value) {
                    return true;
                }
                if !ahead::ask() {
                    std::hint::spin_loop();
                }
            }
            if began.get_or_insert_with(Instant::now).elapsed() > LOOK {
                return false;
            }
            looks();
        }
    }
    // ANCHOR_END: comes_soon

    fn sleep_until(&self, value: u64) {
        *self.sleeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        self.asleep.store(true, Ordering::SeqCst);
        while self.value.load(Ordering::SeqCst) < value {
            std::thread::park();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}
