//! Random texts.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// As many tokens as a middling vocabulary has; two random texts hardly ever begin alike.
const VOCABULARY: u32 = 32_000;

/// A source of random texts, always the same for one seed.
pub(super) struct Texts(ChaCha8Rng);

impl Texts {
    pub(super) fn new(seed: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Texts(ChaCha8Rng::from_seed(key))
    }

    pub(super) fn exactly(&mut self, length: usize) -> Vec<u32> {
        (0..length).map(|_| self.below(VOCABULARY)).collect()
    }

    /// A text of about so many tokens: from half to half as many again, all lengths as likely.
    pub(super) fn about(&mut self, length: usize) -> Vec<u32> {
        let length = length / 2 + self.below(length as u32 + 1) as usize;
        self.exactly(length.max(1))
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(limit)) >> 32) as u32
    }
}
