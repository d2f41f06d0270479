//! Embeddings' share of the engine. Texts to embed come by the thousand, and must not keep out those who ask for one
//! answer.

use super::App;
use super::pieces::refusal;
use crate::api::ApiError;
use crate::engine::{EngineRequest, Refused, Series, Ticket};
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
/// has the next. Requests that could have no text there wait before they begin, first come, first served.
pub(super) struct Share {
    /// Texts in the engine, of all requests together.
    texts: Arc<Semaphore>,
    /// Requests under way.
    requests: Semaphore,
    /// Requests that wait to begin, as many as the queue is long.
    waiting: Semaphore,
    /// Texts of one request in the engine.
    at_once: usize,
    /// How many requests may wait.
    queue: usize,
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
        let queue = queue.min(Semaphore::MAX_PERMITS);
        let most = (queue / ONE_IN).max(1);
        Share {
            texts: Arc::new(Semaphore::new(most)),
            requests: Semaphore::new(most),
            waiting: Semaphore::new(queue),
            at_once: most.div_ceil(2),
            queue,
        }
    }

    /// How many texts of one request may be in the engine.
    pub(super) fn at_once(&self) -> usize {
        self.at_once
    }

    /// Begins a request once each that is under way can have a text in the engine; it has ended when this is dropped.
    ///
    /// # Errors
    /// 429 if too many wait already; 503 if its time is up before.
    pub(super) async fn begin(
        &self,
        deadline: Option<Instant>,
    ) -> Result<SemaphorePermit<'_>, ApiError> {
        // There is none while others wait: they have the next ones.
        if let Ok(begun) = self.requests.try_acquire() {
            return Ok(begun);
        }
        let _waits = self.waiting.try_acquire().map_err(|_| {
            let queue = self.queue;
            ApiError::full(format!(
                "{queue} requests for embeddings wait, and no more than that may"
            ))
        })?;
        let begin = async { self.requests.acquire().await.map_err(ApiError::failed) };
        within(deadline, begin).await
    }
}

/// Hands the next text of a request to the engine once it has a place. `waits`: for room in the queue, too, if others have
/// filled it.
///
/// # Errors
/// As for all requests; 503 if its time is up before.
pub(super) async fn submit(
    app: Arc<App>,
    series: Arc<Series>,
    text: Text,
    waits: bool,
) -> Result<Taken, ApiError> {
    let Text { tokens, salt, priority, deadline } = text;
    let submit = async {
        let place = app.share.texts.clone().acquire_owned().await.map_err(ApiError::failed)?;
        loop {
            let request = EngineRequest::embedding(tokens.clone());
            let request = EngineRequest { salt, priority, deadline, ..request };
            match series.submit(request) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use futures_util::poll;

    #[tokio::test]
    async fn requests_wait_for_the_next_place_first_come_first_served() {
        let share = Share::of(8);
        let first = share.begin(None).await.unwrap();
        let second = share.begin(None).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..8 {
            waiting.push(Box::pin(share.begin(None)));
            assert!(poll!(waiting.last_mut().unwrap()).is_pending());
        }
        let refused = share.begin(None).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{refused:?}");
        // Whoever goes away makes room for another one to wait.
        drop(waiting.remove(0));
        let mut last = Box::pin(share.begin(None));
        assert!(poll!(&mut last).is_pending());
        drop(first);
        assert!(poll!(&mut last).is_pending());
        assert!(poll!(&mut waiting[1]).is_pending());
        let third = waiting.remove(0).await.unwrap();
        drop((second, third));
        for begins in waiting {
            drop(begins.await.unwrap());
        }
        drop(last.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_no_longer_than_it_may() {
        let share = Share::of(4);
        let begun = share.begin(None).await.unwrap();
        let soon = Instant::now() + Duration::from_secs(1);
        let refused = share.begin(Some(soon)).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused:?}");
        drop(begun);
        drop(share.begin(Some(soon)).await.unwrap());
    }
}
