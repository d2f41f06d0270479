//! The time that a step of following a form may take.
//!
//! llguidance's own limits count what it makes, and not how often it looks through what it has made. So a text that can
//! be read in very many ways takes minutes for a token, within all of them.

use llguidance::{CancellationHandle, Matcher};
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// How long a step may take. Those of the largest sensible forms take less than a tenth of a second.
const MOST: Duration = Duration::from_secs(3);

/// Takes steps, and has somebody watch that none takes too long.
#[derive(Clone)]
pub(super) struct Steps {
    begun: Sender<Arc<Step>>,
}

/// A step under way.
struct Step {
    until: Instant,
    is_over: AtomicBool,
    handle: CancellationHandle,
}

impl Steps {
    /// Watched by a thread that ends with the last copy of this.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(super) fn watched() -> io::Result<Self> {
        let (begun, steps) = channel();
        Builder::new().name("forms".into()).spawn(move || watch(&steps))?;
        Ok(Steps { begun })
    }

    /// Takes a step of a matcher that can be cancelled. One that takes too long is the matcher's last.
    ///
    /// # Errors
    /// The step's own, or that it took too long.
    pub(super) fn take<T, E: Display>(
        &self,
        matcher: &mut Matcher,
        step: impl FnOnce(&mut Matcher) -> Result<T, E>,
    ) -> Result<T, String> {
        let handle = matcher.cancellation_handle().unwrap_or_default();
        let until = Instant::now() + MOST;
        let begun = Arc::new(Step { until, is_over: AtomicBool::new(false), handle });
        // Whoever watches is there for as long as this is.
        let _ = self.begun.send(begun.clone());
        let taken = step(matcher);
        begun.is_over.store(true, Ordering::Relaxed);
        taken.map_err(|problem| match matcher.is_cancelled() {
            true => format!("a token takes more than {} seconds", MOST.as_secs()),
            false => problem.to_string(),
        })
    }
}

/// Calls off the steps that take too long. All may take equally long, so they end in the order in which they begin.
fn watch(steps: &Receiver<Arc<Step>>) {
    for step in steps {
        if !step.is_over.load(Ordering::Relaxed) {
            sleep(step.until.saturating_duration_since(Instant::now()));
        }
        if !step.is_over.load(Ordering::Relaxed) {
            step.handle.cancel();
        }
    }
}
