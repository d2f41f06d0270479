//! The fourth seam: something that can run a pass.

use crate::attention::Attention;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::pass::Pass;
use ndarray::{Array2, ArrayView2};
use std::sync::Arc;

/// One row per wanted row of the pass, `[wanted, vocab]`.
pub type Logits = Array2<f32>;

/// One row per wanted row of the pass, `[wanted, hidden]`: what the head is given.
pub type Hidden = Array2<f32>;

/// What a pass gives where of some rows only the likeliest token is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Likeliest {
    /// By wanted row: its likeliest token; none where its logits are given, as they are where there is none.
    pub tokens: Vec<Option<u32>>,
    /// Of the rows without a token, in order: `[rows without, vocab]`.
    pub logits: Logits,
}

/// Runs one ragged batch on some device.
pub trait Executor {
    /// Runs the pass and returns the logits that it wants.
    ///
    /// # Errors
    /// If the pass does not fit what the executor holds; nothing has then changed.
    fn execute(&mut self, pass: &Pass) -> Result<Logits>;

    /// The same, for whoever needs of some wanted rows nothing but what [`argmax`](crate::argmax) makes of their logits:
    /// `is_enough` says which. A device that is far away spares itself bringing the logits of those back, a vocabulary for each
    /// row; one that has them at hand gives them all the same, and no tokens.
    ///
    /// # Errors
    /// As [`Executor::execute`].
    fn likeliest(&mut self, pass: &Pass, _is_enough: &[bool]) -> Result<Likeliest> {
        let logits = self.execute(pass)?;
        Ok(Likeliest { tokens: vec![None; logits.nrows()], logits })
    }

    /// As [`Executor::execute`], up to the head: the hidden states of the wanted rows after the last layer, normed. With
    /// [`Executor::head`] behind it, it is [`Executor::execute`], bit for bit.
    ///
    /// # Errors
    /// As [`Executor::execute`], or if this executor keeps hidden states to itself.
    fn hidden(&mut self, _pass: &Pass) -> Result<Hidden> {
        Err(Error::invalid("hidden states", "kept by this executor", "one that gives them out"))
    }

    /// The logits of hidden states: `[rows, hidden]` to `[rows, vocab]`. Rows do not see each other.
    ///
    /// # Errors
    /// If this executor keeps hidden states to itself.
    fn head(&mut self, _hidden: ArrayView2<f32>) -> Result<Logits> {
        Err(Error::invalid("hidden states", "kept by this executor", "one that gives them out"))
    }
}

/// The model on this machine's processor, with attention of the rung's choosing.
pub struct CpuExecutor<A> {
    /// Weights, shared by everyone who runs them.
    pub model: Arc<Model>,
    /// Keys and values of the sequences that this executor runs.
    pub attention: A,
}

impl<A: Attention> Executor for CpuExecutor<A> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        self.model.forward(pass, &mut self.attention)
    }

    fn hidden(&mut self, pass: &Pass) -> Result<Hidden> {
        self.model.hidden(pass, &mut self.attention)
    }

    fn head(&mut self, hidden: ArrayView2<f32>) -> Result<Logits> {
        Ok(self.model.head.apply(hidden))
    }
}

impl<E: Executor + ?Sized> Executor for Box<E> {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        (**self).execute(pass)
    }

    fn likeliest(&mut self, pass: &Pass, is_enough: &[bool]) -> Result<Likeliest> {
        (**self).likeliest(pass, is_enough)
    }

    fn hidden(&mut self, pass: &Pass) -> Result<Hidden> {
        (**self).hidden(pass)
    }

    fn head(&mut self, hidden: ArrayView2<f32>) -> Result<Logits> {
        (**self).head(hidden)
    }
}
