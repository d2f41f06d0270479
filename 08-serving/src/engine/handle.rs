//! The engine from outside: hand in a request, hold a ticket.
//!
//! One thread owns model and pool and does nothing but passes. Everybody else has an [`EngineHandle`], which
//! puts requests in a queue and rings. A [`Ticket`] is the other end of a bounded channel: when nobody reads,
//! it fills up, and the engine holds the request back; when it is dropped, the request is cancelled and
//! its blocks are free before the next pass.

use super::Engine;
use super::event::Event;
use super::inbox::Inbox;
use super::kv_events::KvEvents;
use super::lending::{BlocksOf, Exchanged};
use super::outlet::Sent;
use super::request::{EngineRequest, Limits, Refused};
use super::series::Series;
use super::state::EngineState;
use naive_decode::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Instant;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::oneshot;

/// Talks to the one engine thread. Cheap to clone. When the last one is gone, the thread finishes what there
/// is to do, and ends.
#[derive(Clone)]
pub struct EngineHandle {
    open: Arc<Open>,
}

/// Closes the inbox when the last handle goes.
struct Open(Arc<Inbox>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl EngineHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(engine: Engine) -> naive_decode::Result<Self> {
        let open = Arc::new(Open(engine.inbox().clone()));
        let thread = std::thread::Builder::new().name("engine".into());
        let spawned = thread.spawn(move || engine.run());
        spawned.map_err(|problem| Error::invalid("engine thread", problem, "a thread"))?;
        Ok(EngineHandle { open })
    }

    /// Queues a request; what happens to it comes on the ticket.
    ///
    /// # Errors
    /// See [`Refused`]. Nothing is then queued.
    pub fn submit(&self, request: EngineRequest) -> Result<Ticket, Refused> {
        self.open.0.submit_one(request)
    }

    /// Queues several requests, all or none.
    ///
    /// # Errors
    /// See [`Refused`]. Nothing is then queued.
    pub fn submit_all(&self, requests: Vec<EngineRequest>) -> Result<Vec<Ticket>, Refused> {
        self.open.0.submit(requests, false)
    }

    /// Begins requests that come one after another and are parts of one answer.
    ///
    /// # Errors
    /// If no request is taken any more.
    pub fn begin_series(&self) -> Result<Series, Refused> {
        Series::begin(&self.open.0)
    }

    /// The bytes of the next blocks of a text that is being read: some as soon as there are any, none when there will be
    /// no more; an error says the same.
    pub fn blocks_of(&self, blocks: BlocksOf) -> oneshot::Receiver<Vec<Vec<u8>>> {
        self.open.0.blocks_of(blocks)
    }

    /// What is known of earlier texts, and then what changes of it, as it changes.
    pub fn kv_events(&self) -> KvEvents {
        self.open.0.listen()
    }

    /// What blocks of this engine are, if it exchanges them with others.
    pub fn exchanged(&self) -> Option<Exchanged> {
        self.open.0.exchanged()
    }

    /// What the engine looked like after one of its last passes: at most a tenth of a second old while it
    /// runs, exact while it is idle. A text whose end has been received is counted.
    pub fn state(&self) -> Arc<EngineState> {
        self.open.0.state()
    }

    /// From now on no request is taken but in series that have begun; what there is will be finished.
    pub fn drain(&self) {
        self.open.0.drain();
    }

    /// Ends all requests where they are, as when their time is up, and takes no more.
    pub fn cut_off(&self) {
        self.open.0.cut_off();
    }

    /// Whether no request is taken any more, none is left, no series either, and all that a file is to have of them is in it.
    pub fn is_drained(&self) -> bool {
        self.open.0.is_drained()
    }

    /// Waits until [`EngineHandle::is_drained`].
    pub async fn drained(&self) {
        self.open.0.drained().await;
    }

    /// What the engine can take.
    pub fn limits(&self) -> Limits {
        self.open.0.limits()
    }
}

/// What the ends of a ticket tell each other besides events.
#[derive(Default)]
pub(super) struct Marks {
    /// Set by the engine when it holds the request back until somebody reads.
    pub(super) is_stalled: AtomicBool,
    /// Set by a reader who has all that was wanted.
    pub(super) is_done: AtomicBool,
}

// ANCHOR: ticket
/// What happens to one request, as it happens. Dropping the ticket cancels the request.
pub struct Ticket {
    id: u64,
    events: Receiver<Sent>,
    /// When the engine sent the event that was read last.
    sent: Instant,
    inbox: Arc<Inbox>,
    marks: Arc<Marks>,
}
// ANCHOR_END: ticket

impl Ticket {
    pub(super) fn new(
        id: u64,
        events: Receiver<Sent>,
        inbox: Arc<Inbox>,
        marks: Arc<Marks>,
    ) -> Self {
        Ticket { id, events, sent: Instant::now(), inbox, marks }
    }

    /// The request's number, as in [`EngineState::requests`].
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The next event; none after the last, or if the engine is gone.
    pub async fn recv(&mut self) -> Option<Event> {
        self.events.recv().await.map(|sent| self.read(sent))
    }

    /// The same, for threads.
    ///
    /// # Panics
    /// If called in an asynchronous task.
    pub fn blocking_recv(&mut self) -> Option<Event> {
        self.events.blocking_recv().map(|sent| self.read(sent))
    }

    /// The next event if it is there already.
    ///
    /// # Errors
    /// Whether there is none yet, or will be none any more.
    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        self.events.try_recv().map(|sent| self.read(sent))
    }

    /// Ends the text where it is, if it has not ended: its reader has found in it what was to stop it. Counts as
    /// stopped and not as cancelled.
    pub fn done(self) {
        self.marks.is_done.store(true, Ordering::Release);
    }

    /// When the engine sent the event that was read last; all that a pass has brought has the same moment. Before the
    /// first event, when the request was taken.
    pub fn sent_at(&self) -> Instant {
        self.sent
    }

    /// Notes when it was sent, and wakes the engine if it waited for this.
    fn read(&mut self, sent: Sent) -> Event {
        // The other half of what `Outlet::set_stalled` says.
        fence(Ordering::SeqCst);
        if self.marks.is_stalled.load(Ordering::Relaxed) {
            self.inbox.ring();
        }
        self.sent = sent.at;
        sent.event
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.events.close();
        self.inbox.ring();
    }
}
