//! Which experts a row goes to, and what each answer weighs.

use super::{ExpertsConfig, Scoring};
use naive_decode::numerics::{exp, interleaved_sum};
use naive_decode::{Crew, Linear, Parts, Result};
use ndarray::ArrayView2;

/// Rows from which on several threads choose: a row's choice takes a few microseconds.
const ROWS_TO_SHARE: usize = 8;

/// Picks experts by affinity.
pub struct Router {
    /// `hidden → experts`, in f32 however matrices are kept: rounded, it would send rows to other experts.
    affinity: Box<dyn Linear>,
    /// Added to sigmoid affinities for choosing only, `[experts]`; zeros otherwise.
    bias: Vec<f32>,
    config: ExpertsConfig,
}

/// One expert that a row is sent to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Which, from 0.
    pub expert: usize,
    /// What its answer is multiplied by.
    pub weight: f32,
}

impl Router {
    /// Reads a router; `prefix` is what its tensors' names begin with, as in
    /// `model.layers.1.mlp.gate`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape than `config` implies.
    pub fn read(config: &ExpertsConfig, parts: &Parts, prefix: &str) -> Result<Self> {
        let experts = config.n_routed_experts;
        let hidden = parts.config.hidden_size;
        Ok(Router {
            affinity: parts.unrounded(&format!("{prefix}.weight"), experts, hidden)?,
            bias: match config.scoring {
                Scoring::Softmax => vec![0.0; experts],
                Scoring::Sigmoid => {
                    parts.vector(&format!("{prefix}.e_score_correction_bias"), experts)?
                }
            },
            config: config.clone(),
        })
    }

    /// The experts of each row of `x [rows, hidden]`, in ascending order.
    pub fn route(&self, x: ArrayView2<f32>, crew: &dyn Crew) -> Vec<Vec<Choice>> {
        let logits = self.affinity.apply(x);
        let choose = |row: usize| self.choose(&logits.row(row).to_vec());
        match x.nrows() < ROWS_TO_SHARE {
            true => (0..x.nrows()).map(choose).collect(),
            false => crew.made(x.nrows(), choose),
        }
    }

    /// How many experts a row goes to.
    pub fn experts_per_row(&self) -> usize {
        self.config.num_experts_per_tok
    }

    /// Bytes of weights that one pass reads.
    pub fn bytes(&self) -> usize {
        self.affinity.bytes()
    }

    fn choose(&self, logits: &[f32]) -> Vec<Choice> {
        let affinities = match self.config.scoring {
            Scoring::Softmax => softmax(logits),
            Scoring::Sigmoid => logits.iter().map(|&logit| 1.0 / (1.0 + exp(-logit))).collect(),
        };
        let biased: Vec<f32> = affinities.iter().zip(&self.bias).map(|(a, b)| a + b).collect();
        let per_group = biased.len() / self.config.n_group;
        let groups: Vec<f32> = biased.chunks_exact(per_group).map(|g| self.worth(g)).collect();
        let open = best(&groups, 0..groups.len(), self.config.topk_group);
        let candidates = open.into_iter().flat_map(|g| g * per_group..(g + 1) * per_group);
        let chosen = best(&biased, candidates, self.config.num_experts_per_tok);

        let sum: f32 = chosen.iter().map(|&expert| affinities[expert]).sum();
        let factor = match self.config.norm_topk_prob {
            true => self.config.routed_scaling_factor / (sum + 1e-20),
            false => self.config.routed_scaling_factor,
        };
        let choice = |expert: usize| Choice { expert, weight: affinities[expert] * factor };
        chosen.into_iter().map(choice).collect()
    }

    /// What a group of experts is worth to a row.
    fn worth(&self, group: &[f32]) -> f32 {
        let count = match self.config.scoring {
            Scoring::Softmax => 1,
            Scoring::Sigmoid => 2.min(group.len()),
        };
        best(group, 0..group.len(), count).into_iter().map(|expert| group[expert]).sum()
    }
}

/// The `count` of some indices, given in ascending order, with the highest scores; ascending again.
/// Of equals the first is taken.
fn best(scores: &[f32], among: impl IntoIterator<Item = usize>, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = among.into_iter().collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order.truncate(count);
    order.sort_unstable();
    order
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let highest = logits.iter().fold(f32::NEG_INFINITY, |high, &logit| high.max(logit));
    let weights: Vec<f32> = logits.iter().map(|&logit| exp(logit - highest)).collect();
    let sum = interleaved_sum(weights.iter().copied());
    weights.into_iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::{DenseLinear, Isa, RayonCrew};

    /// A router over 8 experts whose affinities are handed to it as they are.
    fn router(bias: [f32; 8], change: impl Fn(&mut ExpertsConfig)) -> Router {
        let mut config = ExpertsConfig {
            n_routed_experts: 8,
            num_experts_per_tok: 2,
            n_shared_experts: 0,
            moe_intermediate_size: 1,
            first_k_dense_replace: 0,
            moe_layer_freq: 1,
            n_group: 1,
            topk_group: 1,
            scoring: Scoring::Softmax,
            norm_topk_prob: false,
            routed_scaling_factor: 1.0,
        };
        change(&mut config);
        config.check().unwrap();
        let identity: Vec<f32> = (0..64).map(|i| f32::from(i % 9 == 0)).collect();
        let affinity = Box::new(DenseLinear::new(&identity, 8, 8, Isa::best()).unwrap());
        Router { affinity, bias: bias.to_vec(), config }
    }

    const LOGITS: [f32; 8] = [0.0, 3.0, 1.0, 0.5, 2.5, 0.0, 2.9, 2.8];

    fn experts(router: &Router, logits: [f32; 8]) -> Vec<usize> {
        let logits = ArrayView2::from_shape((1, 8), &logits).unwrap();
        let rows = router.route(logits, &RayonCrew);
        rows[0].iter().map(|choice| choice.expert).collect()
    }

    fn weights(router: &Router) -> Vec<f64> {
        let logits = ArrayView2::from_shape((1, 8), &LOGITS).unwrap();
        let rows = router.route(logits, &RayonCrew);
        rows[0].iter().map(|choice| f64::from(choice.weight)).collect()
    }

    fn close(found: &[f64], expected: &[f64]) {
        let near = |(f, e): (&f64, &f64)| (f / e - 1.0).abs() < 1e-6;
        assert!(found.iter().zip(expected).all(near), "{found:?}, not {expected:?}");
        assert_eq!(found.len(), expected.len());
    }

    #[test]
    fn the_greedy_rule_takes_the_highest_wherever_they_are() {
        let plain = router([0.0; 8], |_| {});
        assert_eq!(experts(&plain, LOGITS), [1, 6]);
        // Of equals the first, whatever comes after.
        assert_eq!(experts(&plain, [1.0; 8]), [0, 1]);
        let total: f64 = LOGITS.iter().map(|&l| f64::from(l).exp()).sum();
        let [first, second] = [3.0f64, 2.9].map(|l| f64::from(l as f32).exp());
        close(&weights(&plain), &[first / total, second / total]);
        let normed = router([0.0; 8], |config| {
            (config.norm_topk_prob, config.routed_scaling_factor) = (true, 2.5);
        });
        let both = (first + second) / 2.5;
        close(&weights(&normed), &[first / both, second / both]);
    }

    #[test]
    fn groups_limit_the_choice() {
        // The two best experts are in groups 0 and 3; one group may be used, and 3 holds the second
        // and third best, but a softmax group counts by its best alone.
        let grouped = |topk_group, scoring| {
            router([0.0; 8], move |config| {
                (config.n_group, config.topk_group, config.scoring) = (4, topk_group, scoring);
            })
        };
        assert_eq!(experts(&grouped(1, Scoring::Softmax), LOGITS), [0, 1]);
        assert_eq!(experts(&grouped(2, Scoring::Softmax), LOGITS), [1, 6]);
        // By the sum of two, group 3 comes first.
        assert_eq!(experts(&grouped(1, Scoring::Sigmoid), LOGITS), [6, 7]);
    }

    #[test]
    fn a_bias_chooses_and_does_not_weigh() {
        let mut bias = [0.0; 8];
        bias[0] = 1.0;
        let biased = router(bias, |config| config.scoring = Scoring::Sigmoid);
        assert_eq!(experts(&biased, LOGITS), [0, 1]);
        close(&weights(&biased), &[0.5, 1.0 / (1.0 + (-3f64).exp())]);
        // However low a bias is, no expert outside the open groups is taken instead.
        let low = router([-5.0; 8], |config| {
            (config.scoring, config.n_group, config.topk_group) = (Scoring::Sigmoid, 4, 1);
        });
        assert_eq!(experts(&low, LOGITS), [6, 7]);
    }
}
