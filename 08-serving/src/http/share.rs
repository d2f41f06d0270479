//! Embeddings' share of the engine. Texts to embed come by the thousand, and must not keep out those who ask for one
//! answer.

use super::App;
use super::pieces::refusal;
use crate::api::ApiError;
use crate::engine::{EngineRequest, Refused, Ticket};
use prefix_radix::Salt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout_at};

/// One place in so many of the engine's queue is for embeddings.
const ONE_IN: usize = 4;

/// Between two tries to get into a queue that others have filled.
const PAUSE: Duration = Duration::from_millis(10);

/// Places for embeddings. Their requests take turns: each has a few texts in the engine, and whoever waits for a place
/// has the next.
pub(super) struct Share {
    /// Texts in the engine, of all requests together.
    texts: Arc<Semaphore>,
    /// Requests under way.
    requests: Semaphore,
    /// Texts of one request in the engine.
    at_once: usize,
    most: usize,
}

/// A text to embed.
pub(super) struct Text {
    pub(super) tokens: Vec<u32>,
    pub(super) salt: Salt,
    pub(super) priority: i32,
    pub(super) deadline: Option<Instant>,
}

/// A text in the engine, and its place there.
pub(super) struct Taken {
    pub(super) ticket: Ticket,
    pub(super) _place: OwnedSemaphorePermit,
}

impl Share {
    /// Of a queue of so many places.
    pub(super) fn of(queue: usize) -> Self {
        let most = (queue / ONE_IN).clamp(1, Semaphore::MAX_PERMITS);
        Share {
            texts: Arc::new(Semaphore::new(most)),
            requests: Semaphore::new(most),
            at_once: most.div_ceil(2),
            most,
        }
    }

    /// How many texts of one request may be in the engine.
    pub(super) fn at_once(&self) -> usize {
        self.at_once
    }

    /// Begins a request; it has ended when this is dropped.
    ///
    /// # Errors
    /// 429 if so many are under way that some could have no text in the engine.
    pub(super) fn begin(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.requests.try_acquire().map_err(|_| {
            let most = self.most;
            ApiError::full(format!("{most} requests for embeddings are under way, and no more may"))
        })
    }
}

/// Hands a text to the engine once it has a place. `waits`: for room in the queue, too, if others have filled it.
///
/// # Errors
/// As for all requests; 503 if its time is up before.
pub(super) async fn submit(app: Arc<App>, text: Text, waits: bool) -> Result<Taken, ApiError> {
    let Text { tokens, salt, priority, deadline } = text;
    let submit = async {
        let place = app.share.texts.clone().acquire_owned().await.map_err(ApiError::failed)?;
        loop {
            let request = EngineRequest::embedding(tokens.clone());
            let request = EngineRequest { salt, priority, deadline, ..request };
            match app.engine.submit(request) {
                Ok(ticket) => return Ok(Taken { ticket, _place: place }),
                Err(Refused::Full { .. }) if waits => sleep(PAUSE).await,
                Err(refused) => return Err(refusal(refused, "input")),
            }
        }
    };
    within(deadline, submit).await
}

/// What comes of something by a moment.
async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    match deadline {
        None => work.await,
        Some(deadline) => {
            timeout_at(deadline.into(), work).await.unwrap_or_else(|_| Err(ApiError::late()))
        }
    }
}
