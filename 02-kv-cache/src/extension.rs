//! Reading further than the model was trained to: other frequencies for RoPE.
//!
//! A model trained on 512 tokens has never met the angles of position 513. These rules choose slower
//! frequencies, so that `factor` times as many positions turn through angles it knows.

mod read;

use naive_decode::{Config, Model, Rope};
use std::f64::consts::TAU;

/// A way to stretch the context. `linear`, `yarn` and `llama3` are what `rope_scaling` in a Hugging
/// Face config calls them; `ntk` is this project's name for the fixed larger base, which has none
/// there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Position interpolation (Chen et al. 2023): every frequency divided by the factor. Fast
    /// frequencies, which tell neighbours apart, are blurred as much as slow ones.
    Linear {
        /// How many times the trained length.
        factor: f64,
        /// Length the model was trained at before it was stretched, in tokens.
        trained: usize,
    },
    /// NTK-aware scaling (bloc97 2023): a larger base. The fastest pair is left alone, the slowest is
    /// divided by the factor, those between by something between.
    Ntk {
        /// How many times the trained length.
        factor: f64,
    },
    /// YaRN (Peng et al. 2023): pairs that turn often within the trained length are left alone, pairs
    /// that never finish a turn are interpolated, with a ramp between; and scores are sharpened. The
    /// ramp runs over the pair's number, as in the authors' code and the libraries after it.
    Yarn {
        /// How many times the trained length.
        factor: f64,
        /// Length the model was trained at, in tokens.
        trained: usize,
        /// Pairs with at least so many turns within `trained` are left alone; 32 in the paper.
        beta_fast: f64,
        /// Pairs with at most so many turns are interpolated; 1 in the paper.
        beta_slow: f64,
        /// Factor on queries and keys; `0.1 ln(factor) + 1` if not said.
        attention_factor: Option<f64>,
    },
    /// Llama 3.1's (Grattafiori et al. 2024): as YaRN, pairs that turn often within the trained
    /// length are left alone and slow ones interpolated. Between, the blend follows the number of
    /// turns, not the number of the pair, and scores are not sharpened.
    Llama3 {
        /// How many times the trained length.
        factor: f64,
        /// Length the model was trained at before it was stretched, in tokens.
        trained: usize,
        /// Pairs with at most so many turns within `trained` are interpolated.
        low_turns: f64,
        /// Pairs with at least so many are left alone.
        high_turns: f64,
    },
}

impl RopeScaling {
    /// YaRN with the paper's constants.
    pub fn yarn(factor: f64, trained: usize) -> Self {
        let attention_factor = None;
        RopeScaling::Yarn { factor, trained, beta_fast: 32.0, beta_slow: 1.0, attention_factor }
    }

    /// What YaRN's authors found queries and keys have to be multiplied by (Peng et al. 2023, section 3.4): scores over a longer
    /// text are sharper then.
    pub fn sharpening(factor: f64) -> f64 {
        0.1 * libm::log(factor) + 1.0
    }

    /// How many times the trained length.
    pub fn factor(&self) -> f64 {
        match *self {
            RopeScaling::Linear { factor, .. }
            | RopeScaling::Ntk { factor }
            | RopeScaling::Yarn { factor, .. }
            | RopeScaling::Llama3 { factor, .. } => factor,
        }
    }

    /// Position tables of a model under this scaling.
    pub fn rope(&self, config: &Config, positions: usize) -> Rope {
        let dim = config.head_dim as f64;
        let pairs = config.head_dim / 2;
        let trained = |base: f64| {
            (0..pairs).map(|j| libm::pow(base, -2.0 * j as f64 / dim)).collect::<Vec<f64>>()
        };
        let plain = trained(config.rope_theta);
        // ANCHOR: rope
        match *self {
            RopeScaling::Linear { factor, .. } => {
                let slower = plain.iter().map(|f| f / factor).collect();
                Rope::with_frequencies(slower, 1.0, positions)
            }
            RopeScaling::Ntk { factor } => {
                let base = config.rope_theta * libm::pow(factor, dim / (dim - 2.0));
                Rope::with_frequencies(trained(base), 1.0, positions)
            }
            RopeScaling::Yarn { factor, trained, beta_fast, beta_slow, attention_factor } => {
                // The pair (a real number) that makes `turns` turns within the trained length.
                let pair = |turns: f64| {
                    dim * libm::log(trained as f64 / (turns * TAU))
                        / (2.0 * libm::log(config.rope_theta))
                };
                let low = libm::floor(pair(beta_fast)).max(0.0);
                let high = libm::ceil(pair(beta_slow)).min(dim - 1.0);
                let width = (high - low).max(0.001);
                let mixed = plain.iter().enumerate().map(|(j, f)| {
                    let interpolated = ((j as f64 - low) / width).clamp(0.0, 1.0);
                    f / factor * interpolated + f * (1.0 - interpolated)
                });
                let magnitude = attention_factor.unwrap_or(RopeScaling::sharpening(factor));
                Rope::with_frequencies(mixed.collect(), magnitude, positions)
            }
            RopeScaling::Llama3 { factor, trained, low_turns, high_turns } => {
                let mixed = plain.iter().map(|f| {
                    let turns = trained as f64 * f / TAU;
                    let left_alone =
                        ((turns - low_turns) / (high_turns - low_turns)).clamp(0.0, 1.0);
                    f / factor * (1.0 - left_alone) + f * left_alone
                });
                Rope::with_frequencies(mixed.collect(), 1.0, positions)
            }
        }
        // ANCHOR_END: rope
    }

    /// Tokens that a model of this shape reaches: `factor` times what it was trained on. Configs with Llama 3's rule
    /// name the stretched length as the trained one.
    pub fn context(&self, config: &Config) -> usize {
        let trained = match *self {
            RopeScaling::Linear { trained, .. } | RopeScaling::Yarn { trained, .. } => trained,
            RopeScaling::Ntk { .. } => config.trained_context,
            RopeScaling::Llama3 { .. } => return config.trained_context,
        };
        (trained as f64 * self.factor()) as usize
    }

    /// Gives the model these frequencies, and room for what it reaches with them.
    pub fn stretch(&self, model: &mut Model) {
        let context = self.context(&model.config).max(model.context());
        model.rope = self.rope(&model.config, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn config() -> Config {
        let json = br#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 256,
            "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2,
            "head_dim": 32, "intermediate_size": 704, "vocab_size": 2048, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 512}"#;
        Config::from_json("config.json", json).unwrap()
    }

    fn ratios(scaling: RopeScaling) -> Vec<f64> {
        let plain = Rope::new(10_000.0, 32, 1);
        let scaled = scaling.rope(&config(), 1);
        plain.frequencies().iter().zip(scaled.frequencies()).map(|(p, s)| p / s).collect()
    }

    #[test]
    fn linear_slows_every_pair_alike() {
        let linear = RopeScaling::Linear { factor: 4.0, trained: 512 };
        assert!(ratios(linear).iter().all(|r| (r - 4.0).abs() < 1e-9));
    }

    #[test]
    fn a_stretched_model_reaches_what_it_was_trained_on_times_the_factor() {
        let context = |scaling: RopeScaling| scaling.context(&config());
        assert_eq!(context(RopeScaling::Linear { factor: 4.0, trained: 512 }), 2048);
        assert_eq!(context(RopeScaling::Linear { factor: 4.0, trained: 128 }), 512);
        assert_eq!(context(RopeScaling::Ntk { factor: 4.0 }), 2048);
        assert_eq!(context(RopeScaling::yarn(4.0, 64)), 256);
        let (low_turns, high_turns) = (1.0, 4.0);
        let llama3 = RopeScaling::Llama3 { factor: 8.0, trained: 64, low_turns, high_turns };
        assert_eq!(context(llama3), config().trained_context);
    }

    #[test]
    fn ntk_leaves_the_fastest_and_slows_the_slowest_by_the_factor() {
        let ratios = ratios(RopeScaling::Ntk { factor: 4.0 });
        assert_eq!(ratios[0], 1.0);
        assert!((ratios[15] - 4.0).abs() < 1e-9, "{}", ratios[15]);
        assert!(ratios.is_sorted());
    }

    #[test]
    fn yarn_leaves_fast_pairs_slows_slow_ones_and_ramps_between() {
        // By hand, for width 32, base 1e4, factor 4, trained at 512: the ramp runs over the pair's number, as in the
        // authors' code (in their paper it follows the number of turns), from floor(1.62) = 1 to ceil(7.64) = 8.
        let ratios = ratios(RopeScaling::yarn(4.0, 512));
        assert_eq!(ratios[..2], [1.0, 1.0]);
        assert!(ratios[8..].iter().all(|r| (r - 4.0).abs() < 1e-9));
        // Pair 4 is 3/7 of the way: 1 / (3/7 / 4 + 4/7).
        assert!((ratios[4] - 1.0 / (3.0 / 28.0 + 4.0 / 7.0)).abs() < 1e-9, "{}", ratios[4]);
    }

    #[test]
    fn yarn_sharpens_scores() {
        let rope = RopeScaling::yarn(4.0, 512).rope(&config(), 1);
        let mut head = [1.0; 32];
        rope.rotate(&mut head, 0).unwrap();
        let expected = (0.1 * 4f64.ln() + 1.0) as f32;
        assert!(head.iter().all(|&v| v == expected));
    }

    #[test]
    fn llama3_blends_by_turns() {
        let scaling =
            RopeScaling::Llama3 { factor: 8.0, trained: 512, low_turns: 1.0, high_turns: 4.0 };
        let ratios = ratios(scaling);
        // Within 512 positions pair j makes 512 / tau * 10^(-j/4) turns: 4.58 for pair 5, at least
        // four; 2.58 for pair 6, 1.45 for pair 7; 0.81 for pair 8, less than one.
        assert!(ratios[..6].iter().all(|&r| r == 1.0), "{ratios:?}");
        assert!(ratios[8..].iter().all(|r| (r - 8.0).abs() < 1e-9), "{ratios:?}");
        let left_alone = (512.0 / TAU * 10f64.powf(-1.5) - 1.0) / 3.0;
        assert!((1.0 / ratios[6] - (left_alone + (1.0 - left_alone) / 8.0)).abs() < 1e-12);
    }
}
