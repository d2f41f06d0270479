//! How much context, and how many sequences, fit a given memory beside a model's weights.
//!
//! Nothing is measured here: sizes of published models, and the size formula of rung 02. It counts weights and
//! cache only; a server also needs room for activations, which is small beside both.

use naive_decode::KvSize;

/// What of a published model decides its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedModel {
    /// Name it goes by.
    pub name: &'static str,
    /// All weights, those of every expert included.
    pub parameters: u64,
    /// Blocks.
    pub layers: usize,
    /// Keys and values of one layer.
    pub kv: KvSize,
    /// Tokens back that a row sees, if every layer is windowed.
    pub window: Option<usize>,
    /// Longest context that it was released for.
    pub trained_context: usize,
}

const fn grouped(heads: usize, dim: usize) -> KvSize {
    KvSize { heads, key_dim: dim, value_dim: dim }
}

/// DeepSeek's latent of 512 and rotary key of 64, for all heads together.
const LATENT: KvSize = KvSize { heads: 1, key_dim: 512 + 64, value_dim: 0 };

/// The models that the book compares, from their published configurations.
pub const PUBLISHED: [PublishedModel; 8] = [
    PublishedModel {
        name: "Llama-2-70B",
        parameters: 68_976_648_192,
        layers: 80,
        kv: grouped(8, 128),
        window: None,
        trained_context: 4_096,
    },
    PublishedModel {
        name: "Llama-3-8B",
        parameters: 8_030_261_248,
        layers: 32,
        kv: grouped(8, 128),
        window: None,
        trained_context: 8_192,
    },
    PublishedModel {
        name: "Llama-3-70B",
        parameters: 70_553_706_496,
        layers: 80,
        kv: grouped(8, 128),
        window: None,
        trained_context: 8_192,
    },
    PublishedModel {
        name: "Mistral-7B-v0.1",
        parameters: 7_241_732_096,
        layers: 32,
        kv: grouped(8, 128),
        window: Some(4_096),
        trained_context: 32_768,
    },
    PublishedModel {
        name: "Qwen2.5-7B",
        parameters: 7_615_616_512,
        layers: 28,
        kv: grouped(4, 128),
        window: None,
        trained_context: 131_072,
    },
    PublishedModel {
        name: "Qwen2.5-72B",
        parameters: 72_706_203_648,
        layers: 80,
        kv: grouped(8, 128),
        window: None,
        trained_context: 131_072,
    },
    PublishedModel {
        name: "DeepSeek-V2",
        parameters: 235_741_434_880,
        layers: 60,
        kv: LATENT,
        window: None,
        trained_context: 163_840,
    },
    PublishedModel {
        name: "DeepSeek-V3",
        parameters: 671_026_419_200,
        layers: 61,
        kv: LATENT,
        window: None,
        trained_context: 163_840,
    },
];

/// Memory, and how narrowly numbers are stored in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Bytes for weights and cache together.
    pub bytes: f64,
    /// Bits of one weight: 16 for bf16, 4.5 for 4-bit groups with their scales.
    pub weight_bits: f64,
    /// Bits of one number of a key or value, scales included.
    pub kv_bits: f64,
}

impl PublishedModel {
    /// Bytes of the weights.
    pub fn weight_bytes(&self, weight_bits: f64) -> f64 {
        self.parameters as f64 * weight_bits / 8.0
    }

    /// Bytes that one token adds to the cache, as long as no window is full.
    pub fn kv_bytes_per_token(&self, kv_bits: f64) -> f64 {
        (self.layers * self.kv.numbers()) as f64 * kv_bits / 8.0
    }

    /// Bytes of one sequence's cache. A window forgets what lies before it.
    pub fn kv_bytes(&self, context: usize, kv_bits: f64) -> f64 {
        let held = self.window.map_or(context, |window| context.min(window));
        held as f64 * self.kv_bytes_per_token(kv_bits)
    }

    /// Bytes that the weights leave for caches; negative if they do not fit themselves.
    pub fn room(&self, budget: Budget) -> f64 {
        budget.bytes - self.weight_bytes(budget.weight_bits)
    }

    /// The longest context that fits for each of `sequences` sequences, at most the trained one.
    /// None if the weights do not fit, or not a token beside them.
    ///
    /// # Panics
    /// If there are no sequences.
    pub fn longest_context(&self, budget: Budget, sequences: usize) -> Option<usize> {
        assert!(sequences > 0, "a context of no sequences has no length");
        let share = self.room(budget) / sequences as f64;
        let tokens = (share / self.kv_bytes_per_token(budget.kv_bits)).floor();
        if tokens < 1.0 {
            return None;
        }
        // Once a window is full, more context costs nothing.
        let full = self.window.is_some_and(|window| tokens >= window as f64);
        Some(if full { self.trained_context } else { self.trained_context.min(tokens as usize) })
    }

    /// How many sequences of `context` tokens fit.
    pub fn largest_batch(&self, budget: Budget, context: usize) -> usize {
        let sequences = self.room(budget) / self.kv_bytes(context, budget.kv_bits);
        sequences.floor().max(0.0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> PublishedModel {
        *PUBLISHED.iter().find(|model| model.name == name).unwrap()
    }

    const HALF: Budget = Budget { bytes: 160e9, weight_bits: 16.0, kv_bits: 16.0 };

    #[test]
    fn bytes_per_token_are_the_published_ones() {
        assert_eq!(model("Llama-2-70B").kv_bytes_per_token(16.0), 327_680.0);
        assert_eq!(model("Llama-3-8B").kv_bytes_per_token(16.0), 131_072.0);
        assert_eq!(model("Qwen2.5-7B").kv_bytes_per_token(16.0), 57_344.0);
        // The report on DeepSeek-V3 gives about 70 KB.
        assert_eq!(model("DeepSeek-V3").kv_bytes_per_token(16.0), 70_272.0);
    }

    #[test]
    fn what_fits_fits_and_one_more_does_not() {
        for model in PUBLISHED {
            let budget = Budget { bytes: model.weight_bytes(16.0) + 20e9, ..HALF };
            for context in [1, 1_000, 8_192, 100_000] {
                let batch = model.largest_batch(budget, context);
                let bytes = |batch: usize| batch as f64 * model.kv_bytes(context, 16.0);
                assert!(bytes(batch) <= 20e9 && bytes(batch + 1) > 20e9, "{}", model.name);
            }
            for sequences in [1, 7, 64] {
                let context = model.longest_context(budget, sequences).unwrap();
                let bytes = |context: usize| sequences as f64 * model.kv_bytes(context, 16.0);
                assert!(bytes(context) <= 20e9, "{}", model.name);
                assert!(context == model.trained_context || bytes(context + 1) > 20e9);
            }
        }
    }

    #[test]
    fn a_window_costs_no_more_once_it_is_full() {
        let mistral = model("Mistral-7B-v0.1");
        assert_eq!(mistral.kv_bytes(4_096, 16.0), mistral.kv_bytes(32_768, 16.0));
        let tight = Budget { bytes: mistral.weight_bytes(16.0) + 0.6e9, ..HALF };
        assert_eq!(mistral.longest_context(tight, 1), Some(32_768));
        assert_eq!(mistral.longest_context(tight, 2), Some(2_288));
    }

    #[test]
    fn weights_that_do_not_fit_leave_room_for_nothing() {
        let v3 = model("DeepSeek-V3");
        assert!(v3.room(HALF) < 0.0);
        assert_eq!(v3.longest_context(HALF, 1), None);
        assert_eq!(v3.largest_batch(HALF, 1), 0);
    }
}
