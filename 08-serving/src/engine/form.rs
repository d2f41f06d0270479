//! What may come next in an answer that is held to a form, found while the model runs.
//!
//! Which tokens may follow depends on the text, and on nothing that the model makes of it. So as soon as a token is chosen
//! other threads tell the constraint of it and ask what may come next, while the pass runs that says how likely each is. Most
//! passes take longer than that. Where one does not, the others wait for a part of what it took. Then the answer pauses until its
//! form is known: it keeps its place, and its last row is run once more.

use super::inbox::Inbox;
use super::request::{Constraint, TokenSet};
use naive_decode::{Error, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of stack for threads that compile forms of answers, or follow them: that goes as deep as one rule of a form leads to
/// another. The system gives the memory once it is used.
pub const STACK: usize = 64 << 20;

/// How long the answers of a pass may wait for the form of one of them, and no longer than a quarter of the pass.
const PATIENCE: Duration = Duration::from_millis(5);

/// The same for an answer that was alone in its pass: to run its row again would take longer.
const PATIENCE_ALONE: Duration = Duration::from_millis(20);

/// How long forms may be waited for after a pass of so many spans that took so long.
pub(super) fn patience(took: Duration, spans: usize) -> Duration {
    match spans {
        1 => PATIENCE_ALONE,
        _ => PATIENCE.min(took / 4),
    }
}

/// By how much threads that follow forms stand back for the model's, which are on all cores: one that waits for its core holds
/// up all others, and they the pass. As nice(2) counts it.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 6;

/// Where forms are followed, for all engines of the process.
static THREADS: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let build = |threads| {
        let threads = ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK);
        let threads = threads.thread_name(|index| format!("form-{index}"));
        threads.start_handler(|_| stand_back()).build().ok()
    };
    // Where the system does not give so many, one will do.
    build((rayon::current_num_threads() / 2).max(2)).or_else(|| build(1))
});

/// Lowers the calling thread's priority. Only a wish; elsewhere the same call would be for the whole process.
fn stand_back() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

/// What may come next, none if anything; or why nothing can.
pub(super) type Allowed = Result<Option<TokenSet>>;

/// An answer's constraint, and what it allows next.
pub(super) struct Form {
    shared: Arc<Shared>,
    /// The constraint, from when what may come next was taken until one of it has been chosen.
    asked: Option<Box<dyn Constraint>>,
    /// Whether a pass went by without it, and it was not known when that was last looked at.
    is_late: bool,
}

/// What the engine and whoever follows the form both see.
struct Shared {
    state: Mutex<State>,
    known: Condvar,
    /// Where to ring if the engine has gone on without it.
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct State {
    /// The constraint and what it allows next; none while that is being found.
    found: Option<(Box<dyn Constraint>, Allowed)>,
    is_late: bool,
}

impl Form {
    /// Begins to find what an answer may begin with.
    pub(super) fn new(constraint: Box<dyn Constraint>, inbox: &Arc<Inbox>) -> Self {
        let (state, known) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { state, known, inbox: inbox.clone() });
        shared.clone().follow(constraint, None);
        Form { shared, asked: None, is_late: false }
    }

    // ANCHOR: form
    /// What may come next; waits for it until then, and gives nothing if it is not known by then.
    pub(super) fn next(&mut self, until: Instant) -> Option<Allowed> {
        let mut state = self.shared.state();
        loop {
            if let Some((constraint, next)) = state.found.take() {
                self.asked = Some(constraint);
                return Some(next);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return None;
            }
            let waited = self.shared.known.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// One of what might come next was chosen, and another will be: begins to find what may follow it.
    pub(super) fn accept(&mut self, token: u32) {
        if let Some(constraint) = self.asked.take() {
            self.shared.clone().follow(constraint, Some(token));
        }
    }
    // ANCHOR_END: form

    /// A whole pass has gone by without it: the engine goes on without it until it is known.
    pub(super) fn put_off(&mut self) {
        let mut state = self.shared.state();
        // Under the lock: either it is known by now, or whoever finds it rings.
        self.is_late = state.found.is_none();
        state.is_late = self.is_late;
    }

    /// Looks whether what a pass went by without is known by now.
    pub(super) fn look(&mut self) {
        self.is_late = self.is_late && self.shared.state().found.is_none();
    }

    /// Whether a pass went by without it, and it was not known when that was last looked at.
    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a constraint which token was chosen, if one was, and asks what may come next.
    fn follow(self: Arc<Self>, mut constraint: Box<dyn Constraint>, chosen: Option<u32>) {
        let Some(threads) = &*THREADS else {
            let problem =
                Error::invalid("threads that follow forms", "none", "one, from the system");
            self.state().found = Some((constraint, Err(problem)));
            return;
        };
        threads.spawn_fifo(move || {
            if Arc::strong_count(&self) == 1 {
                return; // its answer has ended
            }
            let steps = || {
                chosen.map_or(Ok(()), |token| constraint.accept(token))?;
                constraint.mask()
            };
            let next = catch_unwind(AssertUnwindSafe(steps)).unwrap_or_else(|_| {
                let problem = "a constraint panicked while it was followed".into();
                Err(Error::Defect { problem })
            });
            let mut state = self.state();
            state.found = Some((constraint, next));
            let is_late = std::mem::take(&mut state.is_late);
            drop(state);
            self.known.notify_one();
            if is_late {
                self.inbox.ring();
            }
        });
    }
}
