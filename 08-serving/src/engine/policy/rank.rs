//! Who goes first: priority and waiting in one number.

use std::time::Duration;

// ANCHOR: rank
/// What one level of priority is worth: as much as having come that much earlier.
pub const LEVEL: Duration = Duration::from_secs(10);

/// Levels that count, up and down. Whoever takes a request in brings its priority within them, once for all that it decides.
pub const MOST_LEVELS: i32 = 100;

/// A place in the order of all requests; the lowest goes first.
///
/// Whoever waits rises over those who come later, at last over those of the highest priority too. Nothing has to
/// be raised for that: the order of two requests never changes. A request of a higher level stands where one of
/// no priority would stand that came earlier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// Microseconds on the engine's clock; before its start if priority is high.
    moment: i64,
    id: u64,
}

impl Rank {
    /// The rank of a request of so many levels that came at `arrived` on the engine's clock.
    pub fn new(priority: i32, arrived: Duration, id: u64) -> Self {
        let ahead = i64::from(priority) * micros(LEVEL);
        Rank { moment: micros(arrived).saturating_sub(ahead), id }
    }
}
// ANCHOR_END: rank

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_makes_up_for_priority() {
        let rank = |priority, seconds, id| Rank::new(priority, Duration::from_secs(seconds), id);
        assert!(rank(0, 5, 1) < rank(0, 6, 2));
        assert!(rank(0, 5, 1) < rank(0, 5, 2), "ties by arrival");
        assert!(rank(1, 9, 2) < rank(0, 0, 1));
        assert!(rank(0, 0, 1) < rank(1, 11, 2));
        assert!(rank(0, 0, 1) < rank(MOST_LEVELS, 1001, 2));
        assert!(rank(-MOST_LEVELS, 0, 1) < rank(0, 1001, 2));
    }
}
