//! Any entries at all: what a method must beat.

use super::noise::draws;
use super::rank::highest;
use super::{Evict, Held};
use naive_decode::Result;

/// Keeps entries by lot. Every token draws a number once, in each head anew; the highest stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Random {
    /// What the numbers hang on.
    pub seed: u64,
}

impl Evict for Random {
    fn check(&self, _budget: usize) -> Result<()> {
        Ok(())
    }

    fn choose(&self, held: &Held) -> Option<Vec<usize>> {
        let last = *held.slots.last().filter(|_| held.slots.len() > held.budget)?;
        let by_slot: Vec<f32> =
            draws(self.seed, held.layer, held.kv_head, 0).take(last + 1).collect();
        let scores: Vec<f32> = held.slots.iter().map(|&slot| by_slot[slot]).collect();
        Some(highest(&scores, held.budget))
    }
}
