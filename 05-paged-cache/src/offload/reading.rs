//! Blocks that are read for somebody who goes on meanwhile.

use super::Key;
use naive_decode::Error;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// Blocks on their way from a tier: see [`Tier::read_aside`](super::Tier::read_aside). Dropped, it calls off what is not read
/// yet.
pub struct Reading(Arc<Mutex<Progress>>);

/// The other end of a [`Reading`], for whoever reads. Dropped, it says that nothing more will come.
pub struct Reader {
    progress: Weak<Mutex<Progress>>,
    ring: Ring,
}

/// What is called, on whatever thread, when a reading is at its end.
pub type Ring = Arc<dyn Fn() + Send + Sync>;

/// How far a reading has come.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) blocks: HashMap<Key, Vec<u8>>,
    /// What could not be read, and why; no reason where its place holds something else. Nothing is read after it.
    pub(super) lost: Option<(Key, Option<Error>)>,
    began: Option<Instant>,
    is_over: bool,
}

impl Reading {
    /// A reading of which nothing has come yet, and its other end, which calls `ring` when it ends.
    pub fn begin(ring: Ring) -> (Reading, Reader) {
        let progress = Arc::<Mutex<Progress>>::default();
        let reader = Reader { progress: Arc::downgrade(&progress), ring };
        (Reading(progress), reader)
    }

    /// Since when it is read; none where others are read before.
    pub fn began(&self) -> Option<Instant> {
        locked(&self.0).began
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        locked(&self.0).is_over
    }

    /// What has come.
    pub(super) fn finish(self) -> Progress {
        std::mem::take(&mut *locked(&self.0))
    }

    /// The blocks that have come, by name.
    pub fn into_blocks(self) -> HashMap<Key, Vec<u8>> {
        self.finish().blocks
    }
}

impl Reader {
    /// It is read from now on.
    pub fn begins(&self) {
        if let Some(progress) = self.progress.upgrade() {
            locked(&progress).began = Some(Instant::now());
        }
    }

    /// Whether somebody still waits for it.
    pub fn is_awaited(&self) -> bool {
        self.progress.strong_count() > 0
    }

    /// Hands over a block.
    pub fn give(&self, key: Key, bytes: Vec<u8>) {
        if let Some(progress) = self.progress.upgrade() {
            locked(&progress).blocks.insert(key, bytes);
        }
    }

    /// Ends with a block that could not be read, and why; no reason where its place holds something else.
    pub(super) fn lose(self, key: Key, why: Option<Error>) {
        if let Some(progress) = self.progress.upgrade() {
            locked(&progress).lost = Some((key, why));
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(progress) = self.progress.upgrade() {
            locked(&progress).is_over = true;
        }
        (self.ring)();
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let progress = locked(&self.0);
        let mut form = formatter.debug_struct("Reading");
        form.field("blocks", &progress.blocks.len()).field("is_over", &progress.is_over).finish()
    }
}

/// Whoever panicked while holding it has read less than it was to, as any tier may.
fn locked(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
