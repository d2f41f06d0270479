//! Reads that nobody waits for: a thread of its own does them, one text's blocks after another's.

use super::super::Key;
use super::super::reading::{Reader, Reading, Ring};
use super::slot::Slot;
use naive_decode::Result;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// A block that is to be read.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) key: Key,
    pub(super) source: Source,
}

/// Where a block is.
#[derive(Debug)]
pub(super) enum Source {
    /// In the slot that begins there.
    At(u64),
    /// Not in the file yet.
    Unwritten(Arc<super::Job>),
}

/// A thread that reads.
pub(super) struct Aside {
    ring: Ring,
    /// None once it is to end.
    to: Option<Sender<Job>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// Since when the thread has waited for the block that it reads.
    waits_since: Mutex<Option<Instant>>,
}

struct Job {
    wanted: Vec<Wanted>,
    reader: Reader,
}

impl Aside {
    /// Starts the thread. It reads the slot at an offset with `read`, into a buffer as long as a slot, and calls `ring` when a
    /// reading is at its end.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub(super) fn start(
        slot_bytes: usize,
        ring: Ring,
        read: impl FnMut(u64, &mut [u8]) -> Result<usize> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (to, jobs) = channel();
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("blocks from a file".into());
        let thread = thread.spawn(move || run(&jobs, &of_thread, vec![0; slot_bytes], read))?;
        Ok(Aside { ring, to: Some(to), shared, thread: Some(thread) })
    }

    /// Since when it has waited for a block, if it does.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        *self.shared.waits_since()
    }

    /// Begins to read blocks, in this order.
    pub(super) fn begin(&self, wanted: Vec<Wanted>) -> Reading {
        let (reading, reader) = Reading::begin(self.ring.clone());
        if let Some(to) = &self.to {
            // Where the thread is gone the reader is dropped, and nothing comes.
            let _ = to.send(Job { wanted, reader });
        }
        reading
    }
}

impl Shared {
    /// Whoever panicked while holding it was not reading.
    fn waits_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.waits_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Aside {
    /// Waits for the block that is being read, and lets go of the others.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        drop(self.to.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has read too little, as any tier may.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_struct("Aside").finish_non_exhaustive()
    }
}

fn run(
    jobs: &Receiver<Job>,
    shared: &Shared,
    mut buffer: Vec<u8>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize>,
) {
    for Job { wanted, reader } in jobs {
        reader.begins();
        for Wanted { key, source } in wanted {
            if !reader.is_awaited() || shared.is_over.load(Ordering::Relaxed) {
                break;
            }
            let offset = match source {
                Source::At(offset) => offset,
                Source::Unwritten(job) => {
                    let bytes = job.content.iter().flat_map(|content| &content.bytes);
                    reader.give(key, bytes.copied().collect());
                    continue;
                }
            };
            *shared.waits_since() = Some(Instant::now());
            let length = read(offset, &mut buffer);
            *shared.waits_since() = None;
            let why = match length {
                Ok(length) => match super::slot::decode(&buffer[..length]) {
                    Slot::Whole(block) if block.key == key => {
                        reader.give(key, block.bytes.to_vec());
                        continue;
                    }
                    _ => None,
                },
                Err(error) => Some(error),
            };
            reader.lose(key, why);
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;

    /// A thread whose disk sends a slot when it is told to, and says which it was asked for.
    fn told_disk() -> (Sender<()>, Receiver<u64>, Aside) {
        let ((go, may_go), (asked, is_asked)) = (channel(), channel());
        let read = move |offset, _: &mut [u8]| {
            let _ = asked.send(offset);
            let _ = may_go.recv();
            Ok(0)
        };
        (go, is_asked, Aside::start(100, Arc::new(|| ()), read).unwrap())
    }

    fn at(offset: u64) -> Wanted {
        Wanted { key: Key([offset as u8; 32]), source: Source::At(offset) }
    }

    #[test]
    fn what_nobody_waits_for_is_not_read() {
        let (go, asked, aside) = told_disk();
        assert_eq!(aside.waits_since(), None);
        let given_up = aside.begin(vec![at(1), at(2)]);
        assert_eq!(asked.recv().unwrap(), 1);
        assert!(aside.waits_since().is_some() && given_up.began().is_some());
        let (next, last) = (aside.begin(vec![at(3)]), aside.begin(vec![at(4)]));
        assert!(next.began().is_none());
        drop((given_up, next));
        go.send(()).unwrap();
        assert_eq!(asked.recv().unwrap(), 4);
        assert!(!last.is_over());
        go.send(()).unwrap();
        while !last.is_over() {
            std::thread::yield_now();
        }
        assert!(last.finish().lost.is_some(), "there was nothing in the slot");
        assert_eq!(aside.waits_since(), None);
    }

    #[test]
    fn at_its_end_it_reads_nothing_more() {
        let (go, asked, aside) = told_disk();
        let (first, second) = (aside.begin(vec![at(1), at(2)]), aside.begin(vec![at(3)]));
        assert_eq!(asked.recv().unwrap(), 1);
        std::thread::scope(|scope| {
            let shared = aside.shared.clone();
            scope.spawn(move || drop(aside));
            while !shared.is_over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            drop(go);
        });
        assert!(first.is_over() && second.is_over());
        assert_eq!(asked.iter().count(), 0);
    }
}
