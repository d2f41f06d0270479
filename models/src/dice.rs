//! Random choices that stay the same for ever.
//!
//! The text a seed gives is part of what the weights are: held-out worlds must be held out on every
//! machine and after every update of a dependency. So only the stream of one named generator
//! (ChaCha with 8 rounds) is borrowed, and how a number becomes a choice is written here.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A seeded source of choices.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The dice that `seed` gives, always the same.
    pub fn new(seed: u64) -> Dice {
        Dice(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number from 0 up to but not including `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "cannot choose among nothing");
        // The high half of a 128-bit product spreads 2^64 draws over `end` without a division.
        ((u128::from(self.0.next_u64()) * end as u128) >> 64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Puts `items` in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// `count` different items, in random order. There must be at least `count`.
    pub fn draw<T: Copy>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut all = items.to_vec();
        self.shuffle(&mut all);
        all.truncate(count);
        assert_eq!(all.len(), count, "asked for more items than there are");
        all
    }
}
