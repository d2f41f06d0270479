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
    /// Who chooses, gathers, runs and adds up.
    pub crew: Arc<dyn Crew>,
    /// Instruction set for the sums.
    pub isa: Isa,
}

/// Numbers that experts may answer before they are added up: 64 MiB of them, and few in tests.
const ANSWERS: usize = if cfg!(test) { 1 << 10 } else { 16 << 20 };

/// Rows for each expert that has some from which on experts run side by side, a thread each. Of fewer, the weights are what
/// takes the time, and threads read one matrix together.
const ROWS_ALONE: usize = 8;

/// Experts for each thread from which on they do: none waits for long then while another ends.
const EXPERTS_EACH: usize = 4;

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
        let answers = match self.run_side_by_side(&sent) {
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

    /// Whether experts are to run a thread each: so many rows, of so many experts, that all threads have as much to do.
    fn run_side_by_side(&self, sent: &[Vec<usize>]) -> bool {
        let threads = self.crew.threads();
        let (mut busy, mut rows, mut most) = (0, 0, 0);
        for of_one in sent.iter().map(Vec::len).filter(|&rows| rows > 0) {
            (busy, rows, most) = (busy + 1, rows + of_one, most.max(of_one));
        }
        rows >= busy * ROWS_ALONE && busy >= threads * EXPERTS_EACH && most * threads <= rows
    }
}

impl FeedForward for Experts {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let (rows, width) = x.dim();
        let together = (ANSWERS / width / self.router.experts_per_row()).max(1);
        let mut out = match rows <= together {
            true => self.routed(x),
            false => {
                let mut out = Array2::zeros(x.dim());
                for first in (0..rows).step_by(together) {
                    let part = s![first..rows.min(first + together), ..];
                    out.slice_mut(part).assign(&self.routed(x.slice(part)));
                }
                out
            }
        };
        if let Some(shared) = &self.shared {
            let made = shared.apply(x);
            let contiguous = "rows of a model are contiguous";
            self.crew.rows(out.as_slice_mut().expect(contiguous), width, &|row, sum| {
                add_times(self.isa, sum, 1.0, made.row(row).to_slice().expect(contiguous));
            });
        }
        out
    }

    /// What a single row reads: its own experts. A large batch reads them all.
    fn bytes(&self) -> usize {
        let all: usize = self.routed.iter().map(|expert| expert.bytes()).sum();
        let chosen = all / self.routed.len() * self.router.experts_per_row();
        self.router.bytes() + chosen + self.shared.as_ref().map_or(0, |shared| shared.bytes())
    }
}

#[cfg(test)]
mod tests {
    use crate::mla::{Form, MlaConfig, random};
    use naive_decode::LoadOptions;
    use ndarray::{Array2, Axis};

    /// In one go, in several, and beside the rows of others.
    #[test]
    fn a_rows_answer_is_its_own() {
        let json = r#"{"architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 48, "num_hidden_layers": 1,
            "num_attention_heads": 3, "num_key_value_heads": 3, "q_lora_rank": null, "kv_lora_rank": 24,
            "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "intermediate_size": 64,
            "moe_intermediate_size": 20, "n_routed_experts": 16, "n_shared_experts": 1,
            "num_experts_per_tok": 3, "first_k_dense_replace": 0, "norm_topk_prob": true,
            "routed_scaling_factor": 1.0, "topk_method": "greedy", "scoring_func": "softmax",
            "moe_layer_freq": 1, "vocab_size": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000,
            "max_position_embeddings": 64, "tie_word_embeddings": false}"#;
        let config = MlaConfig::from_json("config.json", json.as_bytes()).unwrap();
        let model = random(&config, 5, Form::Absorbed, LoadOptions::default()).unwrap();
        let experts = &model.blocks[0].feed_forward;
        let x = Array2::from_shape_fn((50, 48), |(row, i)| ((row * 48 + i) as f32 * 0.7).sin());
        let one = |row: usize| experts.apply(x.select(Axis(0), &[row]).view());
        for rows in [50, 8, 7, 3] {
            let together = experts.apply(x.slice(ndarray::s![..rows, ..]));
            for (row, answer) in together.outer_iter().enumerate() {
                assert_eq!(answer, one(row).row(0), "row {row} of {rows}");
            }
        }
        assert!(x.len() * 3 > 2 * super::ANSWERS, "in several goes");
    }
}
