//! A Llama-family model. Written once: no later rung changes this file.
//!
//! What the rungs change stands behind its seams: how matrices are stored ([`Linear`]), how rows
//! become keys and values ([`Projection`]), where those live and how they are read ([`Attention`]).

use crate::attention::{Attention, LayerSpec};
use crate::crew::Crew;
use crate::embedding::Embedding;
use crate::error::{Error, Result};
use crate::feed_forward::FeedForward;
use crate::kernels::{Isa, round_to};
use crate::linear::Linear;
use crate::numerics::Element;
use crate::pass::Pass;
use crate::projection::{KeysValues, Projection};
use crate::residual::Residual;
use crate::rope::Rope;
use crate::{Config, Hidden, Logits};
use ndarray::{Array2, Axis};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One transformer block.
pub struct Block {
    /// RMSNorm weight before attention, `[hidden]`; none where attention reads the residual stream as it is.
    pub attention_norm: Option<Vec<f32>>,
    /// Maps around attention.
    pub projection: Box<dyn Projection>,
    /// Factor on the scores.
    pub scale: f32,
    /// Bound that scores are bent towards; none in nearly all models.
    pub score_cap: Option<f32>,
    /// How many tokens back a row sees, itself included; everything if not said.
    pub window: Option<usize>,
    /// RMSNorm weight before the feed-forward, `[hidden]`; none where that reads the stream as it is.
    pub feed_forward_norm: Option<Vec<f32>>,
    /// The feed-forward.
    pub feed_forward: Box<dyn FeedForward>,
}

/// A whole model, ready to run. Holds no state of any sequence.
pub struct Model {
    /// Its shape.
    pub config: Config,
    /// Embedding table, `[vocab, hidden]`.
    pub embedding: Box<dyn Embedding>,
    /// Blocks, first to last.
    pub blocks: Vec<Block>,
    /// How their halves add to the residual stream and read it.
    pub residual: Box<dyn Residual>,
    /// RMSNorm weight before the head, `[hidden]`.
    pub final_norm: Vec<f32>,
    /// `hidden → vocab`
    pub head: Box<dyn Linear>,
    /// Position tables; their length is the longest context the model will accept.
    pub rope: Rope,
    /// Keys and values are rounded to this type as soon as they are made.
    pub kv_element: Element,
    /// Instruction set that the weights were packed for.
    pub isa: Isa,
    /// Who shares out rows.
    pub crew: Arc<dyn Crew>,
}

impl Model {
    /// Longest sequence that the model accepts, in tokens.
    pub fn context(&self) -> usize {
        self.rope.positions()
    }

    /// Bytes of keys and values that one token costs whoever keeps them.
    pub fn kv_bytes_per_token(&self) -> usize {
        let sizes = self.blocks.iter().filter_map(|block| block.projection.kv());
        sizes.map(|size| size.numbers()).sum::<usize>() * self.kv_element.bytes()
    }

    /// Bytes of weights that one pass reads (of the embedding table, only the rows it looks up).
    pub fn weight_bytes(&self) -> usize {
        let norms = self.blocks.iter().flat_map(|b| [&b.attention_norm, &b.feed_forward_norm]);
        let norms = norms.flatten().chain([&self.final_norm]);
        let norms: usize = norms.map(|norm| size_of_val(norm.as_slice())).sum();
        let blocks: usize =
            self.blocks.iter().map(|b| b.projection.bytes() + b.feed_forward.bytes()).sum();
        blocks + self.head.bytes() + norms
    }

    /// Runs the pass's rows through every layer and returns the logits that it wants.
    ///
    /// Prefill, decode and everything between is this one function: they differ in how many rows
    /// the pass brings and in what `attention` remembers.
    ///
    /// # Errors
    /// An unknown token, a position past the context, or whatever `attention` refuses; sequences
    /// are then as they were.
    pub fn forward(&self, pass: &Pass, attention: &mut dyn Attention) -> Result<Logits> {
        self.run(pass, attention, |hidden| self.head.apply(hidden.view()))
    }

    /// What [`Model::forward`] gives the head: the wanted rows' hidden states after the last layer, normed,
    /// `[wanted, hidden]`. What a text means is in there, before it becomes what comes next.
    ///
    /// # Errors
    /// As [`Model::forward`].
    pub fn hidden(&self, pass: &Pass, attention: &mut dyn Attention) -> Result<Hidden> {
        self.run(pass, attention, |hidden| hidden)
    }

    /// Runs the pass, and makes something of the wanted rows' hidden states.
    fn run<T: Send>(
        &self,
        pass: &Pass,
        attention: &mut dyn Attention,
        last: impl FnOnce(Hidden) -> T + Send,
    ) -> Result<T> {
        self.check(pass)?;
        attention.begin(pass)?;
        let mut made = Err(Error::invalid("pass", "not run", "run"));
        // One entry into the thread pool per pass; the parallel loops inside are then cheap.
        rayon::scope(|_| made = self.run_layers(pass, attention).map(last));
        let made = made?;
        attention.commit(pass);
        Ok(made)
    }

    // ANCHOR: layers
    fn run_layers(&self, pass: &Pass, attention: &mut dyn Attention) -> Result<Hidden> {
        let (positions, wanted) = (pass.positions(), pass.wanted());
        // x: [rows, hidden], the residual stream
        let tokens: Vec<usize> =
            pass.spans.iter().flat_map(|span| span.tokens.iter().map(|&t| t as usize)).collect();
        let mut x = self.embedding.rows(&tokens);
        // What half a block makes is added to the stream when the next half reads it.
        let mut made: Option<Array2<f32>> = None;
        // The latest keys and values made, and the layer that made them.
        let mut latest: Option<(usize, KeysValues)> = None;
        for (index, block) in self.blocks.iter().enumerate() {
            let h = self.add_norm(&mut x, made.take(), block.attention_norm.as_deref());
            let projected = block.projection.project(h.view(), &positions, &self.rope)?;
            if let Some(mut kv) = projected.kv {
                self.round(&mut kv, index)?;
                latest = Some((index, kv));
            }
            let (kv_layer, kv) = latest.as_ref().ok_or_else(|| {
                Error::invalid("layer 0's keys and values", "none", "its own: none come before")
            })?;
            let Block { window, scale, score_cap, .. } = *block;
            let layer = LayerSpec { index, kv_layer: *kv_layer, window, scale, score_cap };
            let mut attended =
                attention.attend(layer, pass, projected.q.view(), kv.k.view(), kv.v.view())?;
            // No row sees the others any more: only what is read goes on. If nothing is, the pass is done.
            let is_last = index + 1 == self.blocks.len();
            if is_last && wanted.len() < x.nrows() && self.residual.leaves_unread() {
                if wanted.is_empty() {
                    break;
                }
                attended = attended.select(Axis(0), &wanted);
                x = x.select(Axis(0), &wanted);
            }
            let attended = block.projection.output(attended);
            let h = self.add_norm(&mut x, Some(attended), block.feed_forward_norm.as_deref());
            made = Some(block.feed_forward.apply(h.view()));
        }
        // Only the rows that somebody will read go through the head, the widest matrix of all.
        let read = |rows: Array2<f32>| match rows.nrows() == wanted.len() {
            true => rows,
            false => rows.select(Axis(0), &wanted),
        };
        Ok(self.add_norm(&mut read(x), made.map(read), Some(&self.final_norm)))
    }
    // ANCHOR_END: layers

    fn add_norm(
        &self,
        x: &mut Array2<f32>,
        made: Option<Array2<f32>>,
        weight: Option<&[f32]>,
    ) -> Array2<f32> {
        self.residual.add_norm(x, made, weight, self.config.rms_norm_eps)
    }

    /// Rounds a layer's keys and values to the type in which they are kept.
    fn round(&self, kv: &mut KeysValues, layer: usize) -> Result<()> {
        for values in [&mut kv.k, &mut kv.v] {
            let (_, heads, dim) = values.dim();
            let values = values.as_slice_mut().expect("projections are contiguous");
            let finite = AtomicBool::new(true);
            self.crew.rows(values, heads * dim, &|_, row| {
                if !round_to(self.isa, self.kv_element, row) {
                    finite.store(false, Ordering::Relaxed);
                }
            });
            // A value that nobody may see still meets a weight of zero, and zero times
            // infinity is not zero.
            if !finite.into_inner()
                && let Some(odd) = values.iter().find(|v| !v.is_finite())
            {
                let what = format!("a key or value of layer {layer}");
                let expected = format!("a finite {:?}", self.kv_element);
                return Err(Error::invalid(what, odd, expected));
            }
        }
        Ok(())
    }

    fn check(&self, pass: &Pass) -> Result<()> {
        for span in &pass.spans {
            for (what, found) in [
                ("positions of a span", span.positions.len()),
                ("visible slots of a span", span.sees.len()),
            ] {
                if found != span.rows() {
                    let expected = format!("one for each of its {} tokens", span.rows());
                    return Err(Error::invalid(what, found, expected));
                }
            }
            // No attention holds slots past the span's end; a pass that looks there is malformed.
            if let Some(seen) = span.sees.iter().find(|seen| seen.end() > span.end()) {
                let expected = format!("slots below {}", span.end());
                return Err(Error::invalid("visible slots of a row", seen.end(), expected));
            }
            if let Some(seen) = span.sees.iter().find(|seen| !seen.is_ascending()) {
                let (found, expected) = (format!("{seen:?}"), "slots in ascending order");
                return Err(Error::invalid("visible slots of a row", found, expected));
            }
            if let Some(&token) =
                span.tokens.iter().find(|&&token| token as usize >= self.config.vocab_size)
            {
                return Err(Error::invalid(
                    "token",
                    token,
                    format!("an id below the vocabulary's {}", self.config.vocab_size),
                ));
            }
            if let Some(&position) = span.positions.iter().find(|&&p| p >= self.context()) {
                return Err(Error::Capacity {
                    what: "the model's context".into(),
                    capacity: self.context(),
                    asked: position.saturating_add(1),
                });
            }
        }
        Ok(())
    }
}
