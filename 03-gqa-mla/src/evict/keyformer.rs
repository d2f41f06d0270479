//! Key tokens by a score that does not trust itself: Keyformer (Adnan et al. 2024).

use super::noise::draws;
use super::rank::{add, follow, highest_and_recent};
use super::{Evict, Held, Observation};
use naive_decode::{Error, Result};

/// Keeps the entries with the highest accumulated score, and a window of the most recent.
///
/// What is dropped leaves the softmax, and its weight goes to what stays: attention seen after an
/// eviction is surer than it would have been. Keyformer therefore scores by logits with Gumbel
/// noise `ζ` on them, at a temperature that rises as more is gone (Adnan et al. 2024, §3):
///
/// ```text
/// score = Σ over queries of softmax((x + ζ) / τ)
/// τ = 1 in the prompt, rising to 2 over the generation
/// ```
///
/// Logits need not be kept for it. With `w = softmax(x)` and `ζ = -ln(-ln u)`, that softmax is
/// `(w / -ln u)^(1/τ)`, made to add up to one. The noise belongs to query and place, so chunks
/// change nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Keyformer {
    seed: u64,
    steps: usize,
    /// By place.
    scores: Vec<f32>,
}

/// Temperature in the prompt and at the generation's end (Adnan et al. 2024, §3).
const TEMPERATURES: [f32; 2] = [1.0, 2.0];

/// The window is this part of the budget: the default of the authors' code; the paper finds 20 to
/// 30 % best.
const RECENT_PERCENT: usize = 30;

impl Keyformer {
    /// Noise by `seed`; a temperature that is at its highest `steps` tokens after the prompt.
    pub fn new(seed: u64, steps: usize) -> Self {
        Keyformer { seed, steps, scores: Vec::new() }
    }

    fn temperature(&self, since_prompt: usize) -> f32 {
        let [first, last] = TEMPERATURES;
        let part = since_prompt.min(self.steps) as f32 / self.steps.max(1) as f32;
        first + (last - first) * part
    }
}

impl Evict for Keyformer {
    fn check(&self, budget: usize) -> Result<()> {
        match budget {
            0..2 => {
                let expected = "at least 2: a key token and a recent one";
                Err(Error::invalid("budget of entries", budget, expected))
            }
            _ => Ok(()),
        }
    }

    fn observes(&self) -> bool {
        true
    }

    // ANCHOR: observe
    fn observe(&mut self, query: &Observation) {
        let power = 1.0 / self.temperature(query.since_prompt);
        let places = query.places.last().map_or(0, |last| last + 1);
        let draws: Vec<f32> =
            draws(self.seed, query.layer, query.head, query.slot).take(places).collect();
        let noisy: Vec<f32> = (query.places.iter().zip(query.weights))
            .map(|(&place, weight)| libm::powf(weight / -libm::logf(draws[place]), power))
            .collect();
        let total: f32 = noisy.iter().sum();
        if total > 0.0 {
            add(&mut self.scores, query.places, noisy.into_iter().map(|score| score / total));
        }
    }
    // ANCHOR_END: observe

    fn choose(&self, held: &Held) -> Option<Vec<usize>> {
        let recent = (held.budget * RECENT_PERCENT / 100).max(1);
        highest_and_recent(held.slots.len(), &self.scores, held.budget, recent)
    }

    fn keep(&mut self, places: &[usize], _length: usize) {
        follow(&mut self.scores, places);
    }

    fn bytes(&self) -> usize {
        self.scores.len() * size_of::<f32>()
    }
}
