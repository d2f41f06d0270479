//! How long something usually takes.

/// Weight of the latest measurement in an average.
pub(crate) const LATEST: f64 = 0.15;

/// Times as long as usual that something is believed to have taken, at most.
pub(crate) const HELD_UP: f64 = 1.5;

/// Measurements of which the quickest counts, before averages begin. The first is often slow: its memory is new.
const FIRST: u32 = 3;

/// How long something usually takes, as measured. What is beyond half as long again was somebody else's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usual {
    seconds: Option<f64>,
    measured: u32,
}

impl Usual {
    /// Seconds; none if it has never been measured.
    pub fn seconds(&self) -> Option<f64> {
        self.seconds
    }

    /// It took so many seconds this time.
    pub fn observe(&mut self, seconds: f64) {
        let known = self.seconds.unwrap_or(seconds);
        self.seconds = Some(match self.measured < FIRST {
            true => known.min(seconds),
            false => known + LATEST * (seconds.min(HELD_UP * known) - known),
        });
        self.measured = self.measured.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_of_the_first_counts_and_then_an_average_in_which_nothing_is_held_up() {
        let mut usual = Usual::default();
        assert_eq!(usual.seconds(), None);
        [9.0, 1.0, 2.0].into_iter().for_each(|seconds| usual.observe(seconds));
        assert_eq!(usual.seconds(), Some(1.0));
        usual.observe(1.2);
        assert_eq!(usual.seconds(), Some(1.0 + LATEST * 0.2));
        let before = usual.seconds().unwrap();
        usual.observe(1000.0);
        assert_eq!(usual.seconds(), Some(before + LATEST * (HELD_UP * before - before)));
    }
}
