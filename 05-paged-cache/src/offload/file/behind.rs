//! Writes that nobody waits for: a thread of its own does them, one after the other.
//!
//! What has not been written can be read back from memory, so that nobody sees a difference but in time. How much may wait
//! is bounded. A write that fails is told of afterwards.

use super::super::{Backlog, Key};
use naive_decode::{Error, Result};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A slot that is to be written.
#[derive(Debug)]
pub(super) struct Job {
    /// Where the slot begins.
    pub(super) offset: u64,
    /// None empties it.
    pub(super) content: Option<Content>,
}

/// What a slot is to hold.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) key: Key,
    /// How many blocks had been given to the file before.
    pub(super) sequence: u64,
    pub(super) bytes: Vec<u8>,
}

/// A slot that could not be written, and why.
#[derive(Debug)]
pub(super) struct Failed {
    offset: u64,
    /// What it was to hold; none if it was to be empty, or has something else since.
    pub(super) key: Option<Key>,
    pub(super) error: Error,
}

/// Slots that wait for a thread that writes them.
pub(super) struct Behind {
    shared: Arc<Shared>,
    /// Bytes that may wait; one block may, whatever its size.
    most: usize,
    /// None once it is at its end.
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Something has been added, or taken away, or the end has come.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Oldest first; the first is being written, and stays here until it is.
    jobs: VecDeque<Arc<Job>>,
    /// Of all these. It is asked for with each block, and small blocks are many.
    bytes: usize,
    /// What has left these, and is not written all the same.
    failed: Vec<Failed>,
    is_over: bool,
}

impl Behind {
    /// Starts the thread. It writes with `write`.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub(super) fn start(
        most: usize,
        write: impl FnMut(&Job) -> Result<()> + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let writer = shared.clone();
        let thread = std::thread::Builder::new().name("blocks to a file".into());
        let thread = thread.spawn(move || writer.run(write))?;
        Ok(Behind { shared, most, thread: Some(thread) })
    }

    /// What waits, and whether a block of so many bytes would have to be waited with.
    pub(super) fn backlog(&self, bytes: usize) -> Backlog {
        let waiting = self.shared.lock();
        match waiting.jobs.is_empty() {
            true => Backlog::Nothing,
            false if waiting.is_full(bytes, self.most) => Backlog::Full,
            false => Backlog::Something,
        }
    }

    /// Adds a slot, as soon as there is room.
    pub(super) fn add(&self, job: Job) {
        let (bytes, mut waiting) = (job.bytes(), self.shared.lock());
        while waiting.is_full(bytes, self.most) {
            waiting = self.shared.wait(waiting);
        }
        waiting.bytes += bytes;
        waiting.jobs.push_back(Arc::new(job));
        self.shared.changed.notify_all();
    }

    /// What the slot at an offset is to hold, if that is not yet written.
    pub(super) fn unwritten(&self, offset: u64) -> Option<Arc<Job>> {
        let waiting = self.shared.lock();
        waiting.jobs.iter().rev().find(|job| job.offset == offset).cloned()
    }

    /// What could not be written since this was asked last.
    pub(super) fn take_failed(&self) -> Vec<Failed> {
        let mut waiting = self.shared.lock();
        let mut failed = std::mem::take(&mut waiting.failed);
        for failed in &mut failed {
            if waiting.jobs.iter().any(|job| job.offset == failed.offset) {
                failed.key = None;
            }
        }
        failed
    }
}

impl Drop for Behind {
    /// Waits until all is written.
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has left blocks unwritten, as any tier may.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Behind {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let waiting = self.shared.lock().jobs.len();
        formatter.debug_struct("Behind").field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, waiting: MutexGuard<'a, Waiting>) -> MutexGuard<'a, Waiting> {
        self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until the end has come and nothing waits.
    fn run(&self, mut write: impl FnMut(&Job) -> Result<()>) {
        let mut waiting = self.lock();
        loop {
            let Some(job) = waiting.jobs.front().cloned() else {
                if waiting.is_over {
                    return;
                }
                waiting = self.wait(waiting);
                continue;
            };
            drop(waiting);
            let written = write(&job);
            waiting = self.lock();
            waiting.jobs.pop_front();
            waiting.bytes -= job.bytes();
            match written {
                Ok(()) => waiting.overwritten(job.offset),
                Err(error) => {
                    let key = job.content.as_ref().map(|content| content.key);
                    waiting.failed.push(Failed { offset: job.offset, key, error });
                }
            }
            self.changed.notify_all();
        }
    }
}

impl Waiting {
    /// A slot has been written: what could not be written there before is not to be there any more.
    fn overwritten(&mut self, offset: u64) {
        let there = self.failed.iter_mut().filter(|failed| failed.offset == offset);
        there.for_each(|failed| failed.key = None);
    }

    fn is_full(&self, bytes: usize, most: usize) -> bool {
        self.bytes > 0 && self.bytes.saturating_add(bytes) > most
    }
}

impl Job {
    fn bytes(&self) -> usize {
        self.content.as_ref().map_or(0, |content| content.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// A disk that writes a slot when it is told to, and says then which; or fails with it.
    fn told_disk() -> (Sender<bool>, Receiver<u64>, impl FnMut(&Job) -> Result<()> + Send) {
        let ((go, may_go), (wrote, written)) = (channel(), channel());
        let write = move |job: &Job| {
            // Nobody is left to tell: the rest is written.
            let works = may_go.recv().unwrap_or(true);
            let _ = wrote.send(job.offset);
            if works { Ok(()) } else { Err(Error::file("a disk", "is full of holes")) }
        };
        (go, written, write)
    }

    fn block(offset: u64, fill: u8) -> Job {
        let content = Content { key: Key([fill; 32]), sequence: 0, bytes: vec![fill; 4] };
        Job { offset, content: Some(content) }
    }

    fn fill(behind: &Behind, offset: u64) -> Option<u8> {
        Some(behind.unwritten(offset)?.content.as_ref()?.bytes[0])
    }

    #[test]
    fn what_is_not_written_is_read_from_memory() {
        let (go, written, write) = told_disk();
        let behind = Behind::start(12, write).unwrap();
        assert_eq!(behind.backlog(4), Backlog::Nothing);
        behind.add(block(0, 1));
        behind.add(block(8, 2));
        assert_eq!(behind.backlog(4), Backlog::Something);
        // Of one slot the newest.
        behind.add(block(0, 3));
        assert_eq!(
            (fill(&behind, 0), fill(&behind, 8), fill(&behind, 16)),
            (Some(3), Some(2), None)
        );
        assert_eq!(behind.backlog(4), Backlog::Full);
        go.send(true).unwrap();
        assert_eq!(written.recv().unwrap(), 0);
        // What empties a slot needs no room.
        behind.add(Job { offset: 8, content: None });
        assert_eq!(fill(&behind, 8), None, "it is to be empty");
        drop(go);
        drop(behind);
        assert_eq!(written.iter().collect::<Vec<_>>(), [8, 0, 8], "in order, and all of them");
    }

    #[test]
    fn what_has_no_room_waits_for_it() {
        let (go, written, write) = told_disk();
        let behind = Behind::start(7, write).unwrap();
        behind.add(block(0, 1));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| behind.add(block(8, 2)));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished() && fill(&behind, 8).is_none());
            go.send(true).unwrap();
            waits.join().unwrap();
        });
        assert_eq!((written.recv().unwrap(), fill(&behind, 8)), (0, Some(2)));
        // A block that is larger than all that may wait has room when it is alone.
        drop(go);
        let large = Content { key: Key([3; 32]), sequence: 0, bytes: vec![3; 100] };
        behind.add(Job { offset: 16, content: Some(large) });
        drop(behind);
        assert_eq!(written.iter().collect::<Vec<_>>(), [8, 16]);
    }

    #[test]
    fn what_cannot_be_written_is_told_of_once() {
        let (go, written, write) = told_disk();
        let behind = Behind::start(100, write).unwrap();
        let empty = Job { offset: 16, content: None };
        // The last slot fails, and is written then.
        let jobs =
            [(block(0, 1), true), (block(8, 2), false), (empty, false), (block(24, 3), false)];
        for (job, works) in jobs.into_iter().chain([(block(24, 3), true)]) {
            behind.add(job);
            go.send(works).unwrap();
            written.recv().unwrap();
        }
        while behind.backlog(4) != Backlog::Nothing {
            std::thread::yield_now();
        }
        let failed = behind.take_failed();
        let keys: Vec<_> = failed.iter().map(|failed| failed.key).collect();
        assert_eq!(keys, [Some(Key([2; 32])), None, None]);
        assert!(failed.iter().all(|failed| failed.error.to_string().contains("full of holes")));
        assert!(behind.take_failed().is_empty());
        // One fails while the next for the same slot waits.
        for fill in [4, 5] {
            behind.add(block(32, fill));
        }
        go.send(false).unwrap();
        assert_eq!(written.recv().unwrap(), 32);
        let failed = loop {
            let failed = behind.take_failed();
            if !failed.is_empty() {
                break failed;
            }
        };
        assert_eq!((failed.len(), failed[0].key), (1, None));
        drop(go);
    }
}
