//! How often guesses come true, by depth; and when to try again after they did not.

use crate::usual::LATEST;

/// Every so-manieth pass is a probe, at first; the others are plain.
const FIRST_PAUSE: u32 = 8;
/// The same in the end.
const LONGEST_PAUSE: u32 = 128;

/// Tokens that a probe proposes. Two rows may cost as much as eight, which are read for together: a probe of one
/// token would then say that nothing pays.
pub(crate) const PROBE: usize = 4;

/// How often guesses are believed to come true before any was tried: with less confidence, nothing would ever be.
const BELIEVED: f64 = 0.7;

// ANCHOR: acceptance
/// How often one text's guesses come true.
#[derive(Debug, Clone)]
pub struct Acceptance {
    /// By depth: how often a token there is kept, given that those before it are. None where none has been tried.
    kept: Vec<Option<f64>>,
    /// By depth: how often there has been one.
    seen: Vec<u32>,
    /// Passes until the next probe, itself counted.
    until_probe: u32,
    /// What that begins from.
    pause: u32,
}
// ANCHOR_END: acceptance

impl Acceptance {
    /// Of guesses of at most `most` tokens one after the other.
    pub fn new(most: usize) -> Self {
        Acceptance {
            kept: vec![None; most],
            seen: vec![0; most],
            until_probe: FIRST_PAUSE,
            pause: FIRST_PAUSE,
        }
    }

    /// Guesses one after the other, at most.
    pub fn most(&self) -> usize {
        self.kept.len()
    }

    /// `kept` of `proposed` tokens one after the other have come true. Of a tree, those on the way that was taken count: what
    /// other branches have deeper down was not tried.
    pub fn observe(&mut self, proposed: usize, kept: usize) {
        let tried = (kept + 1).min(proposed);
        let mut believed = BELIEVED;
        let chances = self.kept.iter_mut().zip(&mut self.seen);
        for (depth, (chance, seen)) in chances.enumerate().take(tried) {
            // The first guesses say most; what was believed before any counts as much as one of them.
            *seen = seen.saturating_add(1);
            let weight = LATEST.max(1.0 / f64::from(seen.saturating_add(1)));
            let now = f64::from(u8::from(depth < kept));
            // A depth that is tried for the first time is believed as the one above it is now, after this draft: behind
            // words that came true the next ones mostly do.
            let before = chance.unwrap_or(believed);
            believed = before + weight * (now - before);
            *chance = Some(believed);
        }
    }

    /// By depth: the chance that a guess and all before it come true. Falling. Deeper than any that was tried, guesses are
    /// believed to come true as often as the deepest that was.
    pub fn chances(&self) -> impl Iterator<Item = f64> + '_ {
        self.kept.iter().scan((1.0, BELIEVED), |(chance, believed), kept| {
            *believed = kept.unwrap_or(*believed);
            *chance *= *believed;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeper_than_any_that_was_tried_is_believed_as_the_deepest_that_was() {
        let mut acceptance = Acceptance::new(4);
        (0..50).for_each(|_| acceptance.observe(2, 2));
        let always: Vec<f64> = acceptance.chances().collect();
        assert!(always[3] > 0.99, "{always:?}");
        // The second is refused: the third, behind it, has not been tried.
        (0..50).for_each(|_| acceptance.observe(3, 1));
        let refused: Vec<f64> = acceptance.chances().collect();
        assert!(refused[0] > 0.99 && refused[1] < 0.01 && refused[3] < 1e-4, "{refused:?}");
    }

    #[test]
    fn nothing_is_certain_before_it_was_tried() {
        let chances: Vec<f64> = Acceptance::new(3).chances().collect();
        assert_eq!(chances, [BELIEVED, BELIEVED * BELIEVED, BELIEVED * BELIEVED * BELIEVED]);
    }
}
