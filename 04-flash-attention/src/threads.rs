//! Threads for regions of microseconds.
//!
//! One token of a small model is some two hundred matrices, each shared out among the threads and each
//! done before the next begins. What a matrix takes is then as short as waking a thread: a general pool,
//! which puts its threads to sleep between tasks, would spend more time waking than multiplying. Here a
//! thread that has nothing to do looks for a short while whether there is more, and sleeps only then. A
//! server that waits for requests burns no core.
//!
//! Weights are shared out by a fixed rule, not by who is free first: each thread's stay in its own caches,
//! and the same thread does the same work in every token. Pieces of attention, which are not alike and which no
//! cache holds until the next token, go to whoever is free.
//!
//! On a machine that has other work a thread may have no core when a region begins, and for milliseconds, in which dozens of
//! regions could pass. So the rule has an exception: a part that its thread has not begun when the calling one is done with
//! its own is the calling one's. If it has begun and then lost its core, it is brought to the calling one's.
//!
//! | File | Holds |
//! |---|---|
//! | `ahead.rs` | what a thread reads next, asked for while it waits |
//! | `crew.rs` | the pool as rung 01 asks for it: for what is done beside matrices |
//! | `counter.rs` | a number that one thread raises and another waits for: look, then sleep |
//! | `cores.rs` | which cores threads are on, so that nobody looks where another works, or waits for one that has none |
//! | `sharing.rs` | who does which part, and slices that are written part by part |

pub(crate) mod ahead;
mod cores;
mod counter;
mod crew;
mod sharing;

pub(crate) use crew::PoolCrew;
pub use sharing::{Disjoint, Growing, share};

use cores::Cores;
use counter::Counter;
use std::any::Any;
use std::cell::UnsafeCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};

/// Threads that run regions together. The one that calls is one of them.
///
/// Share a pool as an [`Arc`]; every packed matrix of a model holds one.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Number of regions begun; held by whoever runs one.
    begun: Mutex<u64>,
}

/// What the calling thread and the workers both see.
struct Shared {
    /// The region at hand. Written by the calling thread while all parts of the one before are done, read by a worker
    /// between beginning its part and being done with it.
    task: UnsafeCell<Option<Task>>,
    /// One for each worker that was asked for: those of the pool come first.
    workers: Vec<Worker>,
    /// The calling thread's first, then the workers'.
    cores: Cores,
    /// What the first part that panicked said.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    closing: AtomicBool,
}

/// How far one worker's parts are, whoever does them.
#[derive(Default)]
struct Worker {
    /// The last region whose part may be begun.
    start: Counter,
    /// The last region whose part somebody has begun.
    begun: AtomicU64,
    /// The last region whose part is done.
    done: Counter,
}

impl Worker {
    /// Whether who asks is to do this worker's part of a region. One thread is told so, and only before the next region
    /// begins: then somebody has had it.
    fn begin(&self, region: u64) -> bool {
        // Who is told so reads the task. Who asks knows of the region by `start`, or raised it, which orders that.
        let (before, relaxed) = (region - 1, Ordering::Relaxed);
        self.begun.compare_exchange(before, region, relaxed, relaxed).is_ok()
    }
}

/// A region, its lifetime taken off: `Pool::run` does not return before every part is done.
#[derive(Clone, Copy)]
struct Task(*const (dyn Fn(usize) + Sync));

// SAFETY: `task` is the only field that is not shareable by itself. The counters order every access to
// it (see the field), and a `Task` points to something that is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of so many threads, the calling one included; 0 means 1.
    ///
    /// Where the system gives fewer, as it does to processes that may have only so many together, the pool has those:
    /// results do not depend on their number.
    pub fn new(threads: usize) -> Arc<Self> {
        Pool::begin(threads, |builder, work| builder.spawn(work))
    }

    /// The same with threads from `spawn`, until it gives none.
    fn begin(
        threads: usize,
        mut spawn: impl FnMut(Builder, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> Arc<Self> {
        let workers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            task: UnsafeCell::new(None),
            workers: std::iter::repeat_with(Worker::default).take(workers).collect(),
            cores: Cores::of(workers + 1),
            panic: Mutex::new(None),
            closing: AtomicBool::new(false),
        });
        let worker = |index: usize| {
            let shared = shared.clone();
            let builder = Builder::new().name(format!("pool-{}", index + 1));
            spawn(builder, Box::new(move || shared.work(index))).ok()
        };
        let workers = (0..workers).map_while(worker).collect();
        Arc::new(Pool { shared, workers, begun: Mutex::new(0) })
    }

    /// The pool that a process has if it makes none of its own: a thread for each core that it may use. It is
    /// made when it is first asked for, and lasts.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Pool>> = OnceLock::new();
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        SHARED.get_or_init(|| Pool::new(cores())).clone()
    }

    /// A pool of so many threads, the process's if it is not said how many.
    pub fn of(threads: Option<usize>) -> Arc<Self> {
        threads.map_or_else(Pool::shared, Pool::new)
    }

    /// Threads of a region, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// What the workers that there are count.
    fn workers(&self) -> &[Worker] {
        &self.shared.workers[..self.workers.len()]
    }

    /// Runs `task(thread)` for every thread from 0 to [`Pool::threads`], and returns when all are done.
    ///
    /// Parts must not wait for each other: one thread may do several, one after another. The calling thread does those that
    /// others have not begun when it is done with its own, and all if the pool is busy, with another caller's region or
    /// with the one that this call is made from.
    ///
    /// # Panics
    /// If a part panics, with what it said: after the others are done, or, where the calling thread does all, at once.
    pub fn run(&self, task: &(dyn Fn(usize) + Sync)) {
        match (self.workers.is_empty(), self.turn()) {
            (false, Some(mut begun)) => {
                *begun += 1;
                let said = self.run_region(*begun, task);
                // The next caller must not find the lock poisoned, nor wait while this one unwinds.
                drop(begun);
                if let Some(said) = said {
                    resume_unwind(said);
                }
            }
            _ => (0..self.threads()).for_each(task),
        }
    }

    /// Whether a region would have all threads: not inside of one, nor while another caller runs one.
    pub(crate) fn is_free(&self) -> bool {
        self.turn().is_some()
    }

    /// The pool, if nobody has it.
    fn turn(&self) -> Option<MutexGuard<'_, u64>> {
        match self.begun.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// One region on all threads; gives what the first part that panicked said.
    fn run_region(
        &self,
        region: u64,
        task: &(dyn Fn(usize) + Sync),
    ) -> Option<Box<dyn Any + Send>> {
        // SAFETY: only the lifetime changes. Nobody looks at the task but for a part that is not done, and this function
        // waits for all, whether or not a part panics.
        let erased: *const (dyn Fn(usize) + Sync + 'static) =
            unsafe { std::mem::transmute(task as *const (dyn Fn(usize) + Sync)) };
        // SAFETY: every part of the region before is done (or there was none), so nobody reads.
        unsafe { *self.shared.task.get() = Some(Task(erased)) };
        let (Shared { cores, panic, .. }, workers) = (&*self.shared, self.workers());
        cores.note(0);
        workers.iter().for_each(|worker| worker.start.raise(region));
        self.shared.part(task, 0);
        // ANCHOR: take_over
        for (index, worker) in workers.iter().enumerate() {
            let thread = index + 1;
            // Looked at first: to exchange a number takes it out of the worker's cache.
            if !worker.done.is(region) && worker.begin(region) {
                // Perhaps it waits for this core, while another is idle.
                cores.send(thread, &self.workers[index]);
                ahead::in_place_of_another(|| self.shared.part(task, thread));
                worker.done.raise(region);
            }
        }
        // ANCHOR_END: take_over
        for (index, worker) in workers.iter().enumerate() {
            let sleeps = || {
                let mut rest = workers.iter().zip(&self.workers).skip(index);
                rest.any(|(worker, thread)| !worker.done.is(region) && Cores::bring(thread));
                cores.leave(0);
            };
            worker.done.wait_for(region, || cores.step_aside(0), sleeps);
        }
        panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Shared {
    /// What a worker does with its life.
    fn work(&self, index: usize) {
        let (worker, cores, thread) = (&self.workers[index], &self.cores, index + 1);
        let mut region = 0;
        loop {
            let looks = || cores.step_aside(thread);
            region = worker.start.wait_for(region + 1, looks, || cores.leave(thread));
            cores.note(thread);
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            if worker.begin(region) {
                // SAFETY: the calling thread wrote the task before it raised `start`, and does not touch it
                // before `done` is raised.
                let task = unsafe { *self.task.get() };
                let Task(task) = task.expect("a region has a task");
                // SAFETY: the caller's reference lives until `done` is raised.
                self.part(unsafe { &*task }, thread);
                worker.done.raise(region);
            }
        }
    }

    /// Does one part. If it panics, what it said is kept, unless another has said something already.
    fn part(&self, task: &(dyn Fn(usize) + Sync), thread: usize) {
        if let Err(said) = catch_unwind(AssertUnwindSafe(|| task(thread))) {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            match &*first {
                None => *first = Some(said),
                // To drop it might panic, where others are still at work on the task.
                Some(_) => std::mem::forget(said),
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        let next = *self.begun.get_mut().unwrap_or_else(PoisonError::into_inner) + 1;
        self.workers().iter().for_each(|worker| worker.start.raise(next));
        for worker in self.workers.drain(..) {
            worker.join().expect("a worker catches what its parts say");
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

#[cfg(test)]
mod tests;
