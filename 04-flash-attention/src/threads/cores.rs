//! Which cores threads are on.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread has not been seen, or the system does not say.
const NONE: u32 = u32::MAX;

/// Added to the core of a thread that sleeps.
const ASLEEP: u32 = 1 << 31;

/// How long a thread that has gone elsewhere, or has put another there, lets all be where they are. On a machine whose cores are
/// all taken there is no better place to look for.
const STAY: Duration = Duration::from_millis(10);

thread_local! {
    /// When the calling thread last went elsewhere or put another thread there.
    static MOVED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The core that each thread of a pool was last seen on.
///
/// A thread that looks out for another's work takes the core from it if both are on one. Systems part such threads, but not
/// before many tokens have gone by, as each has just been at work: all wait for them meanwhile, though a core is idle. So
/// the one that looks goes to another core by itself.
pub(super) struct Cores(Vec<AtomicU32>);

impl Cores {
    /// No thread has been seen yet.
    pub(super) fn of(threads: usize) -> Self {
        Cores(std::iter::repeat_with(|| AtomicU32::new(NONE)).take(threads).collect())
    }

    /// The calling thread, number `thread`, is at work where it is.
    pub(super) fn note(&self, thread: usize) {
        self.put(thread, system::current());
    }

    /// The calling thread is about to sleep.
    pub(super) fn leave(&self, thread: usize) {
        self.put(thread, system::current() | ASLEEP);
    }

    /// Takes the calling thread off a core that another was last seen on, if it may be on one where none was.
    pub(super) fn step_aside(&self, thread: usize) {
        let core = system::current();
        self.put(thread, core);
        if self.is_shared(thread, core) && !has_just_moved() {
            MOVED.set(Some(Instant::now()));
            system::go(|core| !self.is_shared(thread, core));
            self.note(thread);
        }
    }

    /// Sends a worker that was told to begin and has not off the calling thread's core, if it was last seen there and may be
    /// where no other is: it mostly waits for that core, and would wait long.
    pub(super) fn send(&self, thread: usize, worker: &JoinHandle<()>) {
        let seen = self.0[thread].load(Ordering::Relaxed) & !ASLEEP;
        if seen == system::current() && !has_just_moved() {
            MOVED.set(Some(Instant::now()));
            system::send(worker, |core| !self.is_shared(thread, core));
        }
    }

    /// Brings a worker that has begun and lost its core to another program to the core of the calling thread, which is about to
    /// sleep. Systems leave it where it is for a while. Gives whether it did; where it has a core, it is left there.
    pub(super) fn bring(worker: &JoinHandle<()>) -> bool {
        let is_brought = system::bring(worker);
        if is_brought {
            MOVED.set(Some(Instant::now()));
        }
        is_brought
    }

    /// Whether a thread other than `thread` was last seen on `core`.
    fn is_shared(&self, thread: usize, core: u32) -> bool {
        let mut others = self.0.iter().enumerate().filter(|&(other, _)| other != thread);
        core != NONE && others.any(|(_, seen)| seen.load(Ordering::Relaxed) == core)
    }

    /// Threads rarely move: what is only read stays in all caches.
    fn put(&self, thread: usize, core: u32) {
        if self.0[thread].load(Ordering::Relaxed) != core {
            self.0[thread].store(core, Ordering::Relaxed);
        }
    }
}

/// Whether the calling thread has moved itself or another a short while ago.
fn has_just_moved() -> bool {
    MOVED.get().is_some_and(|moved| moved.elapsed() < STAY)
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use super::NONE;
    use libc::{CPU_ISSET, CPU_SET, CPU_SETSIZE, cpu_set_t, pthread_t};
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::Mutex;
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    /// A thread that is at work has spent more of its time after so long.
    const A_SHORT_LOOK: Duration = Duration::from_micros(5);

    /// Held while a thread may be on one core only: who looked then would keep it there.
    static PUT: Mutex<()> = Mutex::new(());

    pub(super) fn current() -> u32 {
        // SAFETY: it only gives a number, below zero if there is none.
        u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(NONE)
    }

    /// Moves the calling thread to the next core that it may be on and `is_free` says yes to: near ones mostly share a cache,
    /// and threads of several programs do not all go to the same one.
    pub(super) fn go(is_free: impl Fn(u32) -> bool) {
        // SAFETY: it only gives the calling thread's name.
        put(unsafe { libc::pthread_self() }, next(), is_free);
    }

    /// The same for another thread.
    pub(super) fn send(thread: &JoinHandle<()>, is_free: impl Fn(u32) -> bool) {
        put(name(thread), next(), is_free);
    }

    /// What the system calls a thread.
    #[allow(
        clippy::unnecessary_cast,
        reason = "with musl `std` has a number, and `libc` a pointer"
    )]
    fn name(thread: &JoinHandle<()>) -> pthread_t {
        thread.as_pthread_t() as pthread_t
    }

    /// All cores but the calling thread's, from the one after it on.
    fn next() -> impl Iterator<Item = usize> {
        let (here, count) = (current() as usize, CPU_SETSIZE as usize);
        (1..count).map(move |step| (here + step) % count)
    }

    /// Moves a thread to the calling one's core, if it may be there and does not get on where it is. Gives whether it did.
    pub(super) fn bring(thread: &JoinHandle<()>) -> bool {
        let (thread, here) = (name(thread), current() as usize);
        has_no_core(thread) && put(thread, std::iter::once(here), |_| true)
    }

    /// Puts a thread on the first of some cores that it may be on and `fits` says yes to, and gives whether there was one. It may
    /// be moved on from there as from any other.
    fn put(
        thread: pthread_t,
        mut cores: impl Iterator<Item = usize>,
        fits: impl Fn(u32) -> bool,
    ) -> bool {
        // Whoever has it may wait for a core itself.
        let Ok(_one_at_a_time) = PUT.try_lock() else {
            return false;
        };
        let size = size_of::<cpu_set_t>();
        // SAFETY: sets of cores are plain bits, of which all are zero here.
        let (mut allowed, mut one): (cpu_set_t, cpu_set_t) = unsafe { std::mem::zeroed() };
        // SAFETY: the thread has not been joined; the sets are as large as is said, and numbers are below their size.
        unsafe {
            if libc::pthread_getaffinity_np(thread, size, &mut allowed) != 0 {
                return false;
            }
            let is_allowed = |core| core < CPU_SETSIZE as usize && CPU_ISSET(core, &allowed);
            let Some(core) = cores.find(|&core| is_allowed(core) && fits(core as u32)) else {
                return false;
            };
            CPU_SET(core, &mut one);
            libc::pthread_setaffinity_np(thread, size, &one) == 0
                && libc::pthread_setaffinity_np(thread, size, &allowed) == 0
        }
    }

    /// Whether a thread does not get on, as far as a short look can say.
    fn has_no_core(thread: pthread_t) -> bool {
        let (before, began) = (spent(thread), Instant::now());
        while began.elapsed() < A_SHORT_LOOK {
            std::hint::spin_loop();
        }
        before.is_some() && before == spent(thread)
    }

    /// Time that a thread has spent on cores.
    fn spent(thread: pthread_t) -> Option<Duration> {
        // SAFETY: plain numbers, which are written where they are said to be; the thread has not been joined.
        unsafe {
            let (mut clock, mut time) = (0, std::mem::zeroed::<libc::timespec>());
            let is_there = libc::pthread_getcpuclockid(thread, &mut clock) == 0
                && libc::clock_gettime(clock, &mut time) == 0;
            is_there.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::thread::JoinHandle;

    pub(super) fn current() -> u32 {
        super::NONE
    }

    pub(super) fn go(_is_free: impl Fn(u32) -> bool) {}

    pub(super) fn send(_thread: &JoinHandle<()>, _is_free: impl Fn(u32) -> bool) {}

    pub(super) fn bring(_thread: &JoinHandle<()>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
