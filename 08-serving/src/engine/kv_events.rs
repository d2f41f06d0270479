//! KV events: what is known of earlier texts, told as it changes.
//!
//! A router in front of several engines sends a request where most of its beginning is known. So it has to know what each
//! engine knows. Whoever listens has all that is known first, and then every change, those of a step together. Who falls
//! behind is let go of: he cannot know any more what is known, and has to begin anew.

use super::Engine;
use prefix_radix::KvEvent;
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Steps whose changes a listener may leave unread.
const UNREAD: usize = 256;

/// What a listener has: all that is known, then the changes of a step at a time. It ends when he has fallen behind, or the
/// engine is gone.
pub type KvEvents = Receiver<Arc<[KvEvent]>>;

pub(super) type Listener = Sender<Arc<[KvEvent]>>;

/// Both ends for a listener.
pub(super) fn listener() -> (Listener, KvEvents) {
    channel(UNREAD)
}

impl Engine {
    /// Takes in those who have come to listen, and tells each what is known.
    pub(super) fn take_in_listeners(&mut self) {
        let new = self.inbox.listeners();
        if new.is_empty() {
            return;
        }
        // Who has listened before is not told of changes that the new ones find in what is known.
        self.tell_listeners();
        let events: Arc<[KvEvent]> = self.pool.prefixes_mut().begin_noting().into();
        for listener in new {
            // There is room in it, as nothing was sent before.
            if listener.try_send(events.clone()).is_ok() {
                self.listeners.push(listener);
            }
        }
    }

    /// Tells everyone what has changed.
    pub(super) fn tell_listeners(&mut self) {
        let events: Arc<[KvEvent]> = self.pool.prefixes_mut().take_changes().into();
        let hears = |listener: &Listener| match events.is_empty() {
            true => !listener.is_closed(),
            false => listener.try_send(events.clone()).is_ok(),
        };
        self.listeners.retain(hears);
        if self.listeners.is_empty() {
            self.pool.prefixes_mut().stop_noting();
        }
    }
}
