//! Requests that come one after another and are parts of one answer.

use super::handle::Ticket;
use super::inbox::Inbox;
use super::request::{EngineRequest, Refused};
use std::sync::Arc;

/// Requests that are parts of one answer, as texts to embed are, and come one after another. An engine that drains still takes
/// them: whoever has the first parts shall have the others, and it is not drained before this is dropped.
pub struct Series {
    inbox: Arc<Inbox>,
}

impl Series {
    pub(super) fn begin(inbox: &Arc<Inbox>) -> Result<Self, Refused> {
        inbox.begin_series()?;
        Ok(Series { inbox: inbox.clone() })
    }

    /// Queues the next request; what happens to it comes on the ticket.
    ///
    /// # Errors
    /// See [`Refused`]. Nothing is then queued.
    pub fn submit(&self, request: EngineRequest) -> Result<Ticket, Refused> {
        Ok(self.inbox.submit(vec![request], true)?.remove(0))
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        self.inbox.end_series();
    }
}
