//! The embedding of an MTP block: a hidden state and a token make a row.

use naive_decode::numerics::rms_norm;
use naive_decode::{
    Crew, Embedding, EmbeddingAndHead, FeedForward, Gated, Grouped, Linear, Model, Pack, Packing,
    Parts, Projection, Result, Tensors,
};
use ndarray::{Array2, Axis, concatenate};
use std::sync::{Arc, Mutex, PoisonError};

// ANCHOR: joined
/// `eh_proj · [norm(embedding of the token), norm(hidden state before it)]`
pub(super) struct Joined {
    target: Arc<Model>,
    /// RMSNorm weights, `[hidden]` each.
    token_norm: Vec<f32>,
    hidden_norm: Vec<f32>,
    /// `2 · hidden → hidden`
    join: Box<dyn Linear>,
    /// The hidden states of the pass to come, `[rows, hidden]`.
    given: Mutex<Array2<f32>>,
}

impl Joined {
    /// Reads what joins the two.
    pub(super) fn new(target: Arc<Model>, tensors: Tensors, pack: Pack) -> Result<Self> {
        let hidden = target.config.hidden_size;
        let tensor =
            |part: &str, shape: &[usize]| tensors(&format!("model.layers.0.{part}.weight"), shape);
        Ok(Joined {
            token_norm: tensor("enorm", &[hidden])?,
            hidden_norm: tensor("hnorm", &[hidden])?,
            join: pack.matrix("model.layers.0.eh_proj.weight", hidden, 2 * hidden, tensors)?,
            given: Mutex::new(Array2::zeros((0, hidden))),
            target,
        })
    }

    /// Hidden states for the rows of the next pass, one each, `[rows, hidden]`.
    pub(super) fn give(&self, hidden: Array2<f32>) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = hidden;
    }

    fn rows(&self, tokens: &[usize]) -> Array2<f32> {
        let norm = |x: &Array2<f32>, weight: &[f32]| {
            let x_values = x.as_slice().expect("rows are contiguous");
            let normed = rms_norm(x_values, weight, self.target.config.rms_norm_eps);
            Array2::from_shape_vec(x.dim(), normed).expect("a norm keeps the shape")
        };
        let hidden = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let token = norm(&self.target.embedding.rows(tokens), &self.token_norm);
        let hidden = norm(&hidden, &self.hidden_norm);
        let both = concatenate(Axis(1), &[token.view(), hidden.view()]);
        self.join.apply(both.expect("a hidden state was given for each token").view())
    }
}
// ANCHOR_END: joined

/// The same as the embedding of a model.
struct JoinedRows(Arc<Joined>);

impl Embedding for JoinedRows {
    fn rows(&self, tokens: &[usize]) -> Array2<f32> {
        self.0.rows(tokens)
    }
}

/// Matrices as somebody else stores them, that embedding, and the target's head.
pub(super) struct JoinedPacking<'a> {
    joined: Arc<Joined>,
    head: Arc<dyn Linear>,
    pack: Pack<'a>,
}

impl<'a> JoinedPacking<'a> {
    pub(super) fn new(joined: Arc<Joined>, head: Arc<dyn Linear>, pack: Pack<'a>) -> Self {
        JoinedPacking { joined, head, pack }
    }
}

impl Packing for JoinedPacking<'_> {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        self.pack.pack(weights, outputs, inputs)
    }

    fn crew(&self) -> Arc<dyn Crew> {
        self.pack.crew()
    }

    fn projection(&self, parts: &Parts, grouped: Grouped) -> Result<Box<dyn Projection>> {
        self.pack.projection(parts, grouped)
    }

    fn feed_forward(&self, parts: &Parts, gated: &Gated) -> Result<Box<dyn FeedForward>> {
        self.pack.feed_forward(parts, gated)
    }

    fn embedding(
        &self,
        _name: &str,
        _shape: [usize; 2],
        _is_tied: bool,
        _tensors: Tensors,
    ) -> Result<EmbeddingAndHead> {
        let head: Box<dyn Linear> = Box::new(Arc::clone(&self.head));
        Ok((Box::new(JoinedRows(Arc::clone(&self.joined))), Some(head)))
    }
}
