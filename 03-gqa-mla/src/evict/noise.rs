//! Random numbers that belong to a place in the model and the text, not to the order of asking.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Numbers strictly between 0 and 1. The `i`th is always the same for one seed, layer, head and
/// stream, so that chunks and evictions change no draw.
pub(super) fn draws(
    seed: u64,
    layer: usize,
    head: usize,
    stream: usize,
) -> impl Iterator<Item = f32> {
    let mut key = [0; 32];
    for (bytes, number) in key.chunks_exact_mut(8).zip([seed, layer as u64, head as u64]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    let mut generator = ChaCha8Rng::from_seed(key);
    generator.set_stream(stream as u64);
    std::iter::repeat_with(move || ((generator.next_u32() >> 9) as f32 + 0.5) / (1 << 23) as f32)
}
