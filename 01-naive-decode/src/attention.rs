//! The second seam: where keys and values live, and how queries meet them.

use crate::error::{Error, Result};
use crate::kernels::{Isa, soft_cap};
use crate::pass::Pass;
use crate::softmax_attention::{KeyValues, attend_span};
use ndarray::{Array3, ArrayView3, s};

/// What attention needs to know of the layer that asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerSpec {
    /// Which layer, from 0.
    pub index: usize,
    /// Layer whose keys and values these are: itself, or an earlier one whose cache it shares.
    pub kv_layer: usize,
    /// How many slots back a row sees, itself included; everything if not said.
    pub window: Option<usize>,
    /// Scores are dot products times this; `1 / sqrt(head_dim)` in Llama.
    pub scale: f32,
    /// Bound that scores are bent towards after scaling (Gemma 2); none in nearly all models.
    pub score_cap: Option<f32>,
}

impl LayerSpec {
    /// From dot products of queries and keys to scores in base 2, in place: softmax is taken in
    /// base 2, and the change of base is folded into scale and cap.
    pub fn score(&self, isa: Isa, dots: &mut [f32]) {
        let scale = self.scale * std::f32::consts::LOG2_E;
        dots.iter_mut().for_each(|dot| *dot *= scale);
        if let Some(cap) = self.score_cap {
            soft_cap(isa, dots, cap * std::f32::consts::LOG2_E);
        }
    }
}

// ANCHOR: seam
/// Keeps keys and values, or does not, and answers queries against them.
///
/// A pass is `begin`, then `attend` once per layer in order, then `commit`. Lengths change only in
/// `commit`: within a pass every layer sees the same past.
pub trait Attention: Send {
    /// Makes room for the pass's rows, or refuses before anything has changed.
    ///
    /// # Errors
    /// [`Error::Capacity`] when a sequence would not fit.
    fn begin(&mut self, pass: &Pass) -> Result<()>;

    /// Queries meet keys: `q [rows, heads, D]`, `k [rows, kv_heads, D]`, `v [rows, kv_heads, D_v]`,
    /// all for the pass's new rows, give `[rows, heads, D_v]`. Queries and keys are already turned
    /// by RoPE. Each row sees what its span's `sees` says, within the layer's window.
    ///
    /// A layer that shares an earlier one's keys and values is handed them again; whoever keeps
    /// them keeps those of layers with `kv_layer == index` only.
    ///
    /// # Errors
    /// If the pass refers to slots that this implementation does not hold.
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>>;

    /// The pass is done: its rows are now part of their sequences.
    fn commit(&mut self, pass: &Pass);
}
// ANCHOR_END: seam

/// In an `impl` of [`Attention`] for a decorator over other attention, which is the field `$inner`: the methods that are handed on
/// as they are.
#[macro_export]
macro_rules! forward_attention {
    ($inner:tt: $($method:ident)+) => { $($crate::forward_attention! { @$method $inner })+ };
    (@begin $inner:tt) => {
        fn begin(&mut self, pass: &$crate::Pass) -> $crate::Result<()> {
            $crate::Attention::begin(&mut self.$inner, pass)
        }
    };
    (@attend $inner:tt) => {
        fn attend(
            &mut self,
            layer: $crate::LayerSpec,
            pass: &$crate::Pass,
            q: ::ndarray::ArrayView3<f32>,
            k: ::ndarray::ArrayView3<f32>,
            v: ::ndarray::ArrayView3<f32>,
        ) -> $crate::Result<::ndarray::Array3<f32>> {
            $crate::Attention::attend(&mut self.$inner, layer, pass, q, k, v)
        }
    };
    (@commit $inner:tt) => {
        fn commit(&mut self, pass: &$crate::Pass) {
            $crate::Attention::commit(&mut self.$inner, pass);
        }
    };
}

/// No memory at all: keys and values live for one call.
///
/// Every pass must bring its sequences whole, from the first token. That is what makes the naive
/// loop slow, and what makes it the judge of all that follows: there is nothing to go stale.
pub struct NaiveAttention {
    isa: Isa,
}

impl NaiveAttention {
    /// Naive attention on the given instruction set.
    pub fn new(isa: Isa) -> Self {
        NaiveAttention { isa }
    }
}

impl Attention for NaiveAttention {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        match pass.spans.iter().find(|span| span.start != 0) {
            None => Ok(()),
            Some(span) => Err(Error::invalid(
                format!("start of sequence {}", span.sequence),
                span.start,
                "0: attention without a cache needs every sequence whole",
            )),
        }
    }

    // ANCHOR: naive
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let mut out = Array3::zeros((q.dim().0, q.dim().1, v.dim().2));
        for (span, rows) in pass.spans_with_rows() {
            let new = FreshRows {
                k: k.slice(s![rows.clone(), .., ..]),
                v: v.slice(s![rows.clone(), .., ..]),
            };
            attend_span(
                self.isa,
                layer,
                span,
                q.slice(s![rows.clone(), .., ..]),
                &new,
                out.slice_mut(s![rows, .., ..]),
            );
        }
        Ok(out)
    }
    // ANCHOR_END: naive

    fn commit(&mut self, _pass: &Pass) {}
}

/// Keys and values of the rows at hand: slot `i` is row `i`.
struct FreshRows<'a> {
    k: ArrayView3<'a, f32>,
    v: ArrayView3<'a, f32>,
}

impl KeyValues for FreshRows<'_> {
    fn kv_heads(&self) -> usize {
        self.k.dim().1
    }

    fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        copy_row(&self.k, kv_head, slot, copy);
    }

    fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        copy_row(&self.v, kv_head, slot, copy);
    }
}

fn copy_row(rows: &ArrayView3<f32>, kv_head: usize, slot: usize, copy: &mut [f32]) {
    let row = rows.slice(s![slot, kv_head, ..]);
    match row.as_slice() {
        Some(row) => copy.copy_from_slice(row),
        None => copy.iter_mut().zip(row).for_each(|(to, from)| *to = *from),
    }
}
