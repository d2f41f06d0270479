//! Work that would hold up others: texts to tokens, schemas to grammars.

use crate::api::ApiError;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// From this many bytes on a body is large: as English, some sixty thousand tokens.
const LARGE: usize = 256 << 10;

/// Does work on threads of its own. Of the large bodies one has its turn at a time: turned into tokens all at once, a
/// few of them would leave the engine no core to compute on.
pub(super) struct Aside {
    large: Arc<Semaphore>,
}

impl Aside {
    pub(super) fn new() -> Self {
        Aside { large: Arc::new(Semaphore::new(1)) }
    }

    /// Does the work that a body of so many bytes makes.
    ///
    /// # Errors
    /// The work's own, and 500 if it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = match bytes {
            LARGE.. => Some(self.large.clone().acquire_owned().await.map_err(ApiError::failed)?),
            _ => None,
        };
        let work = spawn_blocking(move || {
            // Kept to the work's end, also if nobody waits for it any more.
            let _turn = turn;
            work()
        });
        work.await.map_err(ApiError::failed)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[tokio::test]
    async fn large_bodies_take_turns_and_small_ones_do_not_wait() {
        let aside = Arc::new(Aside::new());
        let (go, wait) = mpsc::channel::<()>();
        let first = aside.run(LARGE, move || Ok(wait.recv()));
        // Whoever asked is gone, and the work is not.
        let (mut first, started) = (Box::pin(first), Arc::new(AtomicUsize::new(0)));
        assert!(futures_util::poll!(&mut first).is_pending());
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
        let aside = Aside::new();
        let failed = aside.run::<()>(LARGE, || panic!("on purpose")).await.unwrap_err();
        assert_eq!(failed.status, axum::http::StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(aside.run(LARGE, || Ok(7)).await.unwrap(), 7);
    }
}
