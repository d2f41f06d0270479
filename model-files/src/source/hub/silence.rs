//! How long the hub may be silent. A connection that stays open while nothing comes would be waited for without end.

use hf_hub::api::Progress;
use indicatif::ProgressBar;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Where signs of life go.
pub(super) type Signs = Sender<()>;

/// Does what asks the hub on a thread of its own; nothing if that gives no sign of life, and comes to no end, for so long. The
/// thread is then left to itself: it has nothing to tell any more.
pub(super) fn while_it_lives<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce(&Signs) -> T + Send + 'static,
) -> Option<T> {
    let (signs, seen) = mpsc::channel();
    let work = thread::spawn(move || work(&signs));
    loop {
        match seen.recv_timeout(patience) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => {
                return Some(work.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
        }
    }
}

/// A progress bar, of which each step is a sign of life.
pub(super) struct Watched {
    pub(super) bar: ProgressBar,
    pub(super) signs: Signs,
}

impl Progress for Watched {
    fn init(&mut self, size: usize, file: &str) {
        Progress::init(&mut self.bar, size, file);
    }

    fn update(&mut self, bytes: usize) {
        // Whoever has lost patience sees nothing any more.
        self.signs.send(()).ok();
        Progress::update(&mut self.bar, bytes);
    }

    fn finish(&mut self) {
        Progress::finish(&mut self.bar);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_gives_signs_of_life_is_waited_for_and_whoever_does_not_is_not() {
        let step = Duration::from_millis(20);
        let done = while_it_lives(10 * step, move |signs| {
            for _ in 0..20 {
                thread::sleep(step);
                signs.send(()).unwrap();
            }
            7
        });
        assert_eq!(done, Some(7));
        let (end, ended) = mpsc::channel::<()>();
        assert!(while_it_lives(step, move |_| ended.recv()).is_none());
        drop(end);
    }
}
