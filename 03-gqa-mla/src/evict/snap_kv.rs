//! Those that the end of the prompt looks at: SnapKV (Li et al. 2024).

use super::rank::{add, follow, highest_and_recent};
use super::{Evict, Held, Observation, Phase};
use naive_decode::{Error, Result};
use std::collections::VecDeque;

/// Keeps, of a whole prompt, what its last queries look at.
///
/// What an answer will look at is what the end of the prompt, often the question itself, looks at
/// already (Li et al. 2024, §3). So the last queries, the *observation window*, vote: their weights
/// are added, smoothed over neighbouring places so that a token comes with its surroundings, and
/// the places with most votes stay together with the window (§4, Listing 1). This happens once.
/// While the prompt is being read everything is held, and whatever comes after it is kept: SnapKV
/// is for long prompts and short answers.
///
/// The paper votes per query head; here heads that share a key-value head vote together, those of layers
/// that share included.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapKv {
    window: usize,
    kernel: usize,
    /// The prompt's last queries so far, at most `window`, ascending: slot, and votes by place.
    votes: VecDeque<(usize, Vec<f32>)>,
}

impl SnapKv {
    /// A window of so many queries, votes averaged over `kernel` neighbours: the paper uses
    /// windows of 16 to 64 and kernels of 5 to 7.
    ///
    /// # Errors
    /// A window of nothing, or a kernel that has no middle.
    pub fn new(window: usize, kernel: usize) -> Result<Self> {
        if window == 0 {
            return Err(Error::invalid("observation window", 0, "at least 1 query"));
        }
        if kernel.is_multiple_of(2) {
            return Err(Error::invalid("pooling kernel", kernel, "an odd number of places"));
        }
        Ok(SnapKv { window, kernel, votes: VecDeque::new() })
    }

    /// The window's votes for each of `places`, pooled. The mean of `kernel` neighbours ranks as
    /// their sum does.
    fn pooled(&self, places: usize) -> Vec<f32> {
        let mut sums = vec![0.0; places];
        for (_, votes) in &self.votes {
            sums.iter_mut().zip(votes).for_each(|(sum, vote)| *sum += vote);
        }
        let reach = self.kernel / 2;
        let around = |place: usize| place.saturating_sub(reach)..(place + reach + 1).min(places);
        (0..places).map(|place| sums[around(place)].iter().sum()).collect()
    }
}

impl Evict for SnapKv {
    fn check(&self, budget: usize) -> Result<()> {
        match budget > self.window {
            true => Ok(()),
            false => {
                let expected = format!("more than the observation window's {}", self.window);
                Err(Error::invalid("budget of entries", budget, expected))
            }
        }
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, query: &Observation) {
        if query.since_prompt > 0 {
            self.votes.clear();
            return;
        }
        // A layer that shares an earlier one's keys comes after all of that one's queries, and votes with them.
        let entry = match self.votes.binary_search_by_key(&query.slot, |(slot, _)| *slot) {
            Ok(entry) => entry,
            Err(entry) if entry == self.votes.len() => {
                self.votes.push_back((query.slot, Vec::new()));
                if self.votes.len() > self.window {
                    self.votes.pop_front();
                }
                self.votes.len() - 1
            }
            Err(_) => return, // no longer among the last
        };
        add(&mut self.votes[entry].1, query.places, query.weights.iter().copied());
    }

    // ANCHOR: choose
    fn choose(&self, held: &Held) -> Option<Vec<usize>> {
        if held.phase != Phase::PromptEnd {
            return None;
        }
        // The window itself is not up for election, nor do its places vote for their neighbours.
        let older = held.slots.len().saturating_sub(self.window);
        let votes = self.pooled(older);
        highest_and_recent(held.slots.len(), &votes, held.budget, self.window)
    }
    // ANCHOR_END: choose

    fn keep(&mut self, places: &[usize], length: usize) {
        self.votes.retain(|(slot, _)| *slot < length);
        self.votes.iter_mut().for_each(|(_, votes)| follow(votes, places));
    }

    fn bytes(&self) -> usize {
        self.votes.iter().map(|(_, votes)| votes.len() * size_of::<f32>()).sum()
    }
}
