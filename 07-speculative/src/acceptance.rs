//! How often guesses come true, by depth; and when to try again after they did not.

use crate::pass_times::LATEST;

/// Passes between the first probes, and the most there will be.
const FIRST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 128;

/// Tokens that a probe proposes. Two rows may cost as much as eight, which are read for together: a probe of one
/// token would then say that nothing pays.
pub(crate) const PROBE: usize = 4;

// ANCHOR: acceptance
/// How often one text's guesses come true.
#[derive(Debug, Clone)]
pub struct Acceptance {
    /// By depth: how often a token there is kept, given that those before it are.
    kept: Vec<f64>,
    /// By depth: how often there has been one.
    seen: Vec<u32>,
    /// Passes until the next probe, and the pause after it.
    until_probe: u32,
    pause: u32,
}
// ANCHOR_END: acceptance

impl Acceptance {
    /// Of guesses of at most `most` tokens one after the other.
    pub fn new(most: usize) -> Self {
        // Begin with some confidence, or nothing would ever be tried.
        Acceptance {
            kept: vec![0.7; most],
            seen: vec![0; most],
            until_probe: FIRST_PAUSE,
            pause: FIRST_PAUSE,
        }
    }

    /// Guesses one after the other, at most.
    pub fn most(&self) -> usize {
        self.kept.len()
    }

    /// `kept` of `proposed` tokens one after the other have come true.
    pub fn observe(&mut self, proposed: usize, kept: usize) {
        let tried = (kept + 1).min(proposed);
        let chances = self.kept.iter_mut().zip(&mut self.seen);
        for (depth, (chance, seen)) in chances.enumerate().take(tried) {
            // The first guesses say most; what was believed before any counts as much as two of them.
            *seen = seen.saturating_add(1);
            let weight = LATEST.max(1.0 / f64::from(seen.saturating_add(2)));
            let now = f64::from(u8::from(depth < kept));
            *chance += weight * (now - *chance);
        }
    }

    /// By depth: the chance that a guess and all before it come true. Falling.
    pub fn chances(&self) -> impl Iterator<Item = f64> + '_ {
        self.kept.iter().scan(1.0, |chance, kept| {
            *chance *= kept;
            Some(*chance)
        })
    }

    /// Guesses pay: probes, if there will be any, begin with short pauses again.
    pub fn paid(&mut self) {
        (self.until_probe, self.pause) = (FIRST_PAUSE, FIRST_PAUSE);
    }

    /// Guesses do not pay: how many to try in this pass all the same. Nearly always 0; a probe comes after ever
    /// longer pauses.
    pub fn probe(&mut self) -> usize {
        self.until_probe -= 1;
        if self.until_probe > 0 {
            return 0;
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.until_probe = self.pause;
        PROBE.min(self.kept.len())
    }
}
