//! The time that a step of following a form may take.
//!
//! llguidance's own limits count what it makes, and not how often it looks through what it has made. So a text that can
//! be read in very many ways takes minutes for a token, within all of them.
//!
//! Steps are taken in few threads, and on cores that passes run on, too. An answer in a hundred copies takes a hundred times as
//! long, and that is for others to wait for: so all answers that are held to one form share what its steps may take.

use llguidance::{CancellationHandle, Matcher};
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// How long a step may take. Those of the largest sensible forms take less than a tenth of a second.
const MOST: Duration = Duration::from_secs(3);

/// How long steps of one form may take on the whole.
const EACH: Duration = Duration::from_millis(250);

/// How late a step may be called off.
const LATE: Duration = Duration::from_millis(50);

/// What steps of one form may take, all answers' together: [`MOST`] at once, and [`EACH`] on the whole. A step that begins while
/// others are under way has a part of what is left. Where one was called off there is nothing left, and the next ones have
/// a quarter of the time that goes by.
pub(super) struct Allowance(Mutex<Left>);

struct Left {
    time: Duration,
    at: Instant,
    /// Steps under way.
    steps: u32,
}

impl Allowance {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Allowance(Mutex::new(Left { time: MOST, at: Instant::now(), steps: 0 })))
    }

    /// A step begins at this moment; gives how long it may take.
    fn begin(&self, now: Instant) -> Duration {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.time = MOST.min(left.time + now.saturating_duration_since(left.at) / 4);
        left.at = left.at.max(now);
        left.steps += 1;
        left.time / left.steps
    }

    /// A step is done, or called off.
    fn end(&self, took: Duration, is_done: bool) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = if is_done { EACH } else { Duration::ZERO };
        left.time = (left.time + earned).saturating_sub(took);
        left.steps -= 1;
    }
}

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
        allowance: &Allowance,
        matcher: &mut Matcher,
        step: impl FnOnce(&mut Matcher) -> Result<T, E>,
    ) -> Result<T, String> {
        let handle = matcher.cancellation_handle().unwrap_or_default();
        let now = Instant::now();
        let until = now + allowance.begin(now);
        let begun = Arc::new(Step { until, is_over: AtomicBool::new(false), handle });
        // Whoever watches is there for as long as this is.
        let _ = self.begun.send(begun.clone());
        let taken = step(matcher);
        begun.is_over.store(true, Ordering::Relaxed);
        allowance.end(now.elapsed(), !matcher.is_cancelled());
        taken.map_err(|problem| match matcher.is_cancelled() {
            true => format!(
                "a token takes more than {} seconds, or many take more than {} each",
                MOST.as_secs(),
                EACH.as_secs_f32()
            ),
            false => problem.to_string(),
        })
    }
}

/// Calls off the steps that take too long. It looks at them now and then: most are over before it does.
fn watch(steps: &Receiver<Arc<Step>>) {
    let mut under_way: Vec<Arc<Step>> = Vec::new();
    loop {
        under_way.extend(steps.try_iter());
        under_way.retain(|step| {
            let is_over = step.is_over.load(Ordering::Relaxed);
            let is_late = !is_over && step.until <= Instant::now();
            if is_late {
                step.handle.cancel();
            }
            !is_over && !is_late
        });
        match under_way.is_empty() {
            true => match steps.recv() {
                Ok(step) => under_way.push(step),
                Err(_) => return,
            },
            false => sleep(LATE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_take_long_leave_less_to_others() {
        let (allowance, began) = (Allowance::new(), Instant::now());
        // Slow ones use it up, at whatever time they begin.
        for step in 0..4 {
            assert_eq!(allowance.begin(began), MOST - Duration::from_millis(500) * step);
            allowance.end(Duration::from_millis(750), true);
        }
        assert_eq!(allowance.begin(began), Duration::from_secs(1));
        allowance.end(MOST, false);
        assert_eq!(allowance.begin(began), Duration::ZERO);
        allowance.end(Duration::ZERO, false);
        // Time brings it back, and so do quick ones.
        let later = began + Duration::from_secs(4);
        assert_eq!(allowance.begin(later), Duration::from_secs(1));
        allowance.end(Duration::from_millis(50), true);
        assert_eq!(allowance.begin(later), Duration::from_millis(1_200));
        allowance.end(EACH, true);
        assert_eq!(allowance.begin(began + Duration::from_secs(60)), MOST);
    }

    #[test]
    fn steps_at_one_time_share_what_is_left() {
        let (allowance, began) = (Allowance::new(), Instant::now());
        assert_eq!([1, 2, 3].map(|_| allowance.begin(began)), [MOST, MOST / 2, MOST / 3]);
        allowance.end(Duration::from_millis(250), true);
        allowance.end(Duration::from_millis(250), true);
        assert_eq!(allowance.begin(began), MOST / 2);
    }
}
