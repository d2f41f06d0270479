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

use naive_decode::kernels::add_times;
use naive_decode::{Crew, FeedForward, Gated, Isa, Parts, Result};
use ndarray::{Array2, ArrayView2, Axis, s};
use std::sync::Arc;

/// A feed-forward of experts.
pub struct Experts {
    /// Picks the experts of a row.
    pub router: Router,
    /// The experts to pick from.
    pub routed: Vec<Box<dyn FeedForward>>,
    /// What every row goes through besides; as wide as all shared experts side by side, which is
    /// the same as their sum.
    pub shared: Option<Box<dyn FeedForward>>,
    /// Who gathers and adds up.
    pub crew: Arc<dyn Crew>,
    /// Instruction set for the sums.
    pub isa: Isa,
}

/// Rows that go through the experts together: what these answer lies in memory until it is added up.
const ROWS_TOGETHER: usize = 512;

/// Rows for each expert that has some from which on experts run side by side, a thread each. Of fewer, the weights are what
/// takes the time, and threads read one matrix together.
const ROWS_ALONE: usize = 8;

impl ExpertsConfig {
    /// Reads one layer's experts; `prefix` is what its tensors' names begin with, as in
    /// `model.layers.1.mlp`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape than this implies.
    pub fn read(&self, parts: &Parts, prefix: &str) -> Result<Experts> {
        let unit = |name: String, width| parts.feed_forward(&Gated::silu(name, width));
        let expert = |i: usize| unit(format!("{prefix}.experts.{i}"), self.moe_intermediate_size);
        let shared = match self.n_shared_experts {
            0 => None,
            shared => {
                let width = shared * self.moe_intermediate_size;
                Some(unit(format!("{prefix}.shared_experts"), width)?)
            }
        };
        Ok(Experts {
            router: Router::read(self, parts, &format!("{prefix}.gate"))?,
            routed: (0..self.n_routed_experts).map(expert).collect::<Result<_>>()?,
            shared,
            crew: parts.crew(),
            isa: parts.options.isa,
        })
    }
}

impl Experts {
    // ANCHOR: apply
    /// An expert runs for the rows that were sent to it, and for no other. A row's sum is taken in
    /// ascending order of its experts, so that it does not matter which rows came along.
    fn routed(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let choices = self.router.route(x, &*self.crew);
        // Of each expert its rows; of each row where it is among each of its experts' rows.
        let mut sent: Vec<Vec<usize>> = vec![Vec::new(); self.routed.len()];
        let mut places: Vec<Vec<usize>> = Vec::with_capacity(x.nrows());
        for (row, choices) in choices.iter().enumerate() {
            let place = |choice: &Choice| {
                sent[choice.expert].push(row);
                sent[choice.expert].len() - 1
            };
            places.push(choices.iter().map(place).collect());
        }
        let answer = |expert: usize| match &sent[expert] {
            rows if rows.is_empty() => None,
            rows => Some(self.routed[expert].apply(x.select(Axis(0), rows).view())),
        };
        let busy = sent.iter().filter(|rows| !rows.is_empty()).count();
        let answers = match x.nrows() * self.router.experts_per_row() >= busy * ROWS_ALONE {
            true => self.crew.made(sent.len(), answer),
            false => (0..sent.len()).map(answer).collect(),
        };
        let mut sums = Array2::zeros(x.dim());
        let flat = sums.as_slice_mut().expect("rows of zeros are contiguous");
        self.crew.rows(flat, x.ncols(), &|row, sum| {
            for (Choice { expert, weight }, &place) in choices[row].iter().zip(&places[row]) {
                let answers = answers[*expert].as_ref().expect("who was sent rows has answered");
                let answer = answers.row(place).to_slice().expect("rows are contiguous");
                add_times(self.isa, sum, *weight, answer);
            }
        });
        sums
    }
    // ANCHOR_END: apply
}

impl FeedForward for Experts {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut out = Array2::zeros(x.dim());
        for first in (0..x.nrows()).step_by(ROWS_TOGETHER) {
            let rows = s![first..x.nrows().min(first + ROWS_TOGETHER), ..];
            out.slice_mut(rows).assign(&self.routed(x.slice(rows)));
        }
        match &self.shared {
            Some(shared) => out + shared.apply(x),
            None => out,
        }
    }

    /// What a single row reads: its own experts. A large batch reads them all.
    fn bytes(&self) -> usize {
        let all: usize = self.routed.iter().map(|expert| expert.bytes()).sum();
        let chosen = all / self.routed.len() * self.router.experts_per_row();
        self.router.bytes() + chosen + self.shared.as_ref().map_or(0, |shared| shared.bytes())
    }
}
