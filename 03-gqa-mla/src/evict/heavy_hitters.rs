//! Those that have been looked at most, and the last: H2O (Zhang et al. 2023).

use super::rank::{add, follow, highest_and_recent};
use super::{Evict, Held, Observation};
use naive_decode::{Error, Result};

/// Keeps the *heavy hitters*, the entries on which most attention has fallen so far, and as many of
/// the most recent (Zhang et al. 2023, §4 and Algorithm 1; half of the budget each, as in their
/// experiments).
///
/// An entry's score is the sum of the weights that every query since has put on it. The paper has
/// one query head for each key head; here the votes of all heads that share one are added. An old
/// entry has had more queries to collect from than a new one, which is why half of the budget goes
/// to the recent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeavyHitters {
    /// By place.
    scores: Vec<f32>,
}

impl HeavyHitters {
    /// Nothing seen yet.
    pub fn new() -> Self {
        HeavyHitters::default()
    }
}

impl Evict for HeavyHitters {
    fn check(&self, budget: usize) -> Result<()> {
        match budget {
            0..2 => {
                Err(Error::invalid("budget of entries", budget, "at least 2: one for each half"))
            }
            _ => Ok(()),
        }
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, query: &Observation) {
        add(&mut self.scores, query.places, query.weights.iter().copied());
    }

    // ANCHOR: choose
    fn choose(&self, held: &Held) -> Option<Vec<usize>> {
        let recent = held.budget.div_ceil(2);
        highest_and_recent(held.slots.len(), &self.scores, held.budget, recent)
    }
    // ANCHOR_END: choose

    fn keep(&mut self, places: &[usize], _length: usize) {
        follow(&mut self.scores, places);
    }

    fn bytes(&self) -> usize {
        self.scores.len() * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::*;

    #[test]
    fn votes_stay_with_their_entries_when_these_move() {
        let mut policy = HeavyHitters::new();
        let vote = |policy: &mut HeavyHitters, weights: &[f32]| {
            let places: Vec<usize> = (0..weights.len()).collect();
            let (layer, head, slot, since_prompt) = (0, 0, 9, 0);
            let places = &places;
            policy.observe(&Observation { layer, head, slot, since_prompt, places, weights });
        };
        vote(&mut policy, &[0.1, 0.4, 0.2, 0.3]);
        policy.keep(&[1, 3], 4);
        vote(&mut policy, &[0.15, 0.15, 0.3, 0.4]);
        let (slots, phase) = (&[1, 3, 4, 5][..], Phase::Generation);
        let held = Held { layer: 0, kv_head: 0, slots, budget: 2, phase };
        // 0.55 of slot 1 against 0.45 of slot 3.
        assert_eq!(policy.choose(&held).unwrap(), [0, 3]);
    }
}
