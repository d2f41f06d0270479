//! Where a request's events leave the engine.

use super::event::Event;
use super::handle::Marks;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;
use tokio::sync::mpsc::Sender;

/// An event, and when the engine sent it.
pub(super) struct Sent {
    pub(super) event: Event,
    pub(super) at: Instant,
}

/// Where a request's events go. The queue behind it is bounded, and the engine never waits for it: it asks
/// beforehand how much room there is.
pub(super) struct Outlet {
    sender: Sender<Sent>,
    marks: Arc<Marks>,
}

impl Outlet {
    pub(super) fn new(sender: Sender<Sent>, marks: Arc<Marks>) -> Self {
        Outlet { sender, marks }
    }

    /// Events for which there is room.
    pub(super) fn room(&self) -> usize {
        self.sender.capacity()
    }

    /// Whether nobody will read any more.
    pub(super) fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether nobody will read any more because nothing more is wanted.
    pub(super) fn is_done(&self) -> bool {
        self.marks.is_done.load(Ordering::Acquire)
    }

    /// Asks the reader to ring when it has read something, or not to any more.
    pub(super) fn set_stalled(&self, is_stalled: bool) {
        self.marks.is_stalled.store(is_stalled, Ordering::Relaxed);
        // Mark, then look for room; whoever reads makes room, then looks for the mark. With a fence between the two on both
        // sides at least one sees the other's, so that nobody waits for a reader who has read.
        fence(Ordering::SeqCst);
    }

    /// Sends an event. What nobody will read is dropped; there is always room for what the engine sends. `at`: the
    /// same moment for all that a step has brought.
    pub(super) fn send(&self, event: Event, at: Instant) {
        let sent = self.sender.try_send(Sent { event, at });
        debug_assert!(sent.is_ok() || self.is_gone(), "the engine asks for room beforehand");
    }
}
