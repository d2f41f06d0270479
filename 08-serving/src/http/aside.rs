//! Work that would hold up others: texts to tokens, schemas to grammars.

use crate::api::ApiError;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// From this many bytes on a body is large: as English, some sixty thousand tokens.
pub(super) const LARGE: usize = 256 << 10;

/// Small bodies that are worked on at once.
const SMALL_AT_ONCE: usize = 3;

/// Threads for preparing requests: one for the large bodies, the others for small ones.
pub(super) const PREPARING: usize = SMALL_AT_ONCE + 1;

/// Bodies that may wait for their turn at least, small or large ones.
const WAITING: usize = 256;

/// Does work on threads of its own. Of the large bodies one has its turn at a time: turned into tokens all at once, a
/// few of them would leave the engine no core to compute on.
///
/// Whoever goes away gives up their turn: clients that ask again before they are answered would otherwise leave more
/// behind than is ever done.
pub(super) struct Aside {
    small: Line,
    large: Line,
}

/// Those who wait for their turn, first come, first served.
struct Line {
    waiting: usize,
    places: Semaphore,
    turns: Arc<Semaphore>,
}

impl Aside {
    /// For an engine that takes so many requests at once, those that wait there included: as many small ones may come in the
    /// same moment.
    pub(super) fn of(requests: usize) -> Self {
        Aside {
            small: Line::new(SMALL_AT_ONCE, requests.clamp(WAITING, Semaphore::MAX_PERMITS)),
            large: Line::new(1, WAITING),
        }
    }

    /// Does the work that a body of so many bytes makes. Work that was not begun when this is dropped is not done.
    ///
    /// # Errors
    /// The work's own, 429 if too many wait, and 500 if it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let line = if bytes >= LARGE { &self.large } else { &self.small };
        let turn = line.turn().await?;
        // A set of one, which calls its work off when it is dropped.
        let mut works = JoinSet::new();
        works.spawn_blocking(move || {
            // Kept to the work's end, also if nobody waits for it any more.
            let _turn = turn;
            work()
        });
        works.join_next().await.expect("there is one").map_err(ApiError::failed)?
    }
}

impl Line {
    fn new(at_once: usize, waiting: usize) -> Self {
        let (places, turns) = (Semaphore::new(waiting), Arc::new(Semaphore::new(at_once)));
        Line { waiting, places, turns }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// 429 if too many wait already.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let _place = self.places.try_acquire().map_err(|_| {
            let waiting = self.waiting;
            ApiError::full(format!("{waiting} requests wait to be read, and no more than that may"))
        })?;
        self.turns.clone().acquire_owned().await.map_err(ApiError::failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use futures_util::poll;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::Poll;
    use tokio::task::spawn_blocking;

    #[tokio::test]
    async fn large_bodies_take_turns_and_small_ones_do_not_wait() {
        let aside = Arc::new(Aside::of(1));
        let (go, wait) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel::<()>();
        let first = aside.run(LARGE, move || Ok((begin.send(()), wait.recv())));
        let (mut first, started) = (Box::pin(first), Arc::new(AtomicUsize::new(0)));
        assert!(poll!(&mut first).is_pending());
        // Whoever asked is gone, and the work is under way.
        begun.recv().unwrap();
        drop(first);
        let counts = started.clone();
        let (second, asks) = (aside.clone(), move || Ok(counts.fetch_add(1, Ordering::SeqCst)));
        let second = tokio::spawn(async move { second.run(2 * LARGE, asks).await });
        let counts = started.clone();
        let small = aside.run(LARGE - 1, move || Ok(counts.fetch_add(1, Ordering::SeqCst)));
        assert_eq!(small.await.unwrap(), 0, "the small one goes first");
        assert!(!second.is_finished());
        go.send(()).unwrap();
        assert_eq!(second.await.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn what_panics_is_an_error_and_gives_its_turn_back() {
        let aside = Aside::of(1);
        let failed = aside.run::<()>(LARGE, || panic!("on purpose")).await.unwrap_err();
        assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(aside.run(LARGE, || Ok(7)).await.unwrap(), 7);
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_done() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (go, wait) = mpsc::channel::<()>();
            let busy = spawn_blocking(move || wait.recv());
            let (aside, done) = (Aside::of(1), Arc::new(AtomicUsize::new(0)));
            for _ in 0..100 {
                let counts = done.clone();
                let gone = aside.run(1, move || Ok(counts.fetch_add(1, Ordering::SeqCst)));
                assert!(poll!(Box::pin(gone)).is_pending());
            }
            go.send(()).unwrap();
            busy.await.unwrap().unwrap();
            assert_eq!(aside.run(1, || Ok(7)).await.unwrap(), 7, "its turn comes after theirs");
            assert_eq!(done.load(Ordering::SeqCst), 0);
        });
    }

    #[tokio::test]
    async fn more_than_may_wait_are_refused_and_whoever_goes_makes_room() {
        let aside = Aside::of(1);
        let (go, wait) = mpsc::channel::<()>();
        let mut first = Box::pin(aside.run(LARGE, move || Ok(wait.recv())));
        assert!(poll!(&mut first).is_pending());
        let mut waiting = Vec::new();
        for _ in 0..WAITING {
            waiting.push(Box::pin(aside.run(LARGE, || Ok(()))));
            assert!(poll!(waiting.last_mut().unwrap()).is_pending());
        }
        let refused = aside.run(LARGE, || Ok(())).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        aside.run(1, || Ok(())).await.expect("small ones have a line of their own");
        waiting.pop();
        let mut last = Box::pin(aside.run(LARGE, || Ok(())));
        assert!(poll!(&mut last).is_pending());
        go.send(()).unwrap();
        waiting.clear();
        last.await.unwrap();
    }

    #[tokio::test]
    async fn a_burst_of_as_many_as_the_engine_takes_is_not_refused() {
        let aside = Aside::of(1000);
        let mut waiting = Vec::new();
        for _ in 0..1000 {
            let mut one = Box::pin(aside.run(1, || Ok(())));
            match poll!(&mut one) {
                Poll::Ready(done) => done.unwrap(),
                Poll::Pending => waiting.push(one),
            }
        }
        for one in waiting {
            one.await.unwrap();
        }
    }
}
