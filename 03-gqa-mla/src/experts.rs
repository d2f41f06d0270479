//! Mixture of experts (DeepSeekMoE, arXiv 2401.06066): many small feed-forwards, of which a router
//! picks a few for each row, and one that every row goes through.
//!
//! It has nothing to do with caches. It is here because the checkpoints whose attention is latent
//! have it in nearly every layer, and could not be run without. Others have it, too (Qwen3's mixtures).
//!
//! | File | Holds |
//! |---|---|
//! | `config.rs` | how many experts, in which layers |
//! | `router.rs` | which experts a row goes to, with what weight |

mod config;
mod router;

pub use config::{ExpertsConfig, Scoring};
pub use router::{Choice, Router};

use naive_decode::{FeedForward, Parts, Result, SwiGlu};
use ndarray::{Array2, ArrayView2, Axis};

/// A feed-forward of experts.
pub struct Experts {
    /// Picks the experts of a row.
    pub router: Router,
    /// The experts to pick from.
    pub routed: Vec<SwiGlu>,
    /// What every row goes through besides; as wide as all shared experts side by side, which is
    /// the same as their sum.
    pub shared: Option<SwiGlu>,
}

impl ExpertsConfig {
    /// Reads one layer's experts; `prefix` is what its tensors' names begin with, as in
    /// `model.layers.1.mlp`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape than this implies.
    pub fn read(&self, parts: &Parts, prefix: &str) -> Result<Experts> {
        let expert =
            |i: usize| parts.swiglu(&format!("{prefix}.experts.{i}"), self.moe_intermediate_size);
        let shared = match self.n_shared_experts {
            0 => None,
            shared => {
                let width = shared * self.moe_intermediate_size;
                Some(parts.swiglu(&format!("{prefix}.shared_experts"), width)?)
            }
        };
        Ok(Experts {
            router: Router::read(self, parts, &format!("{prefix}.gate"))?,
            routed: (0..self.n_routed_experts).map(expert).collect::<Result<_>>()?,
            shared,
        })
    }
}

impl FeedForward for Experts {
    // ANCHOR: apply
    /// An expert runs for the rows that were sent to it, and for no other. A row's sum is taken in
    /// ascending order of its experts, so that it does not matter which rows came along. One expert after the other: each
    /// matrix of a large one has work for all threads.
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        // Of each expert, its rows and their weights.
        let mut sent: Vec<(Vec<usize>, Vec<f32>)> = vec![Default::default(); self.routed.len()];
        for (row, choices) in self.router.route(x).into_iter().enumerate() {
            for Choice { expert, weight } in choices {
                sent[expert].0.push(row);
                sent[expert].1.push(weight);
            }
        }
        let mut out = Array2::zeros(x.dim());
        for (expert, (rows, weights)) in self.routed.iter().zip(&sent) {
            if rows.is_empty() {
                continue;
            }
            let answer = expert.apply(x.select(Axis(0), rows).view());
            for ((answer, &row), &weight) in answer.outer_iter().zip(rows).zip(weights) {
                let sums = out.row_mut(row);
                sums.into_iter().zip(answer).for_each(|(sum, &v)| *sum = weight.mul_add(v, *sum));
            }
        }
        match &self.shared {
            Some(shared) => out + shared.apply(x),
            None => out,
        }
    }
    // ANCHOR_END: apply

    /// What a single row reads: its own experts. A large batch reads them all.
    fn bytes(&self) -> usize {
        let all: usize = self.routed.iter().map(FeedForward::bytes).sum();
        let chosen = all / self.routed.len() * self.router.experts_per_row();
        self.router.bytes() + chosen + self.shared.as_ref().map_or(0, FeedForward::bytes)
    }
}
