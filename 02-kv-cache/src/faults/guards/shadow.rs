//! Two caches of different make, and every answer of the one held against the other's.

use super::walk;
use crate::faults::store;
use crate::{Cached, KvShape, ListStore, Store};
use naive_decode::break_it::Bench;
use naive_decode::{Attention, CpuExecutor, Error, LayerSpec, Pass, Result};
use ndarray::{Array3, ArrayView3};
use std::sync::Arc;

/// Attention that asks a list cache the same questions. As logits are the same bits in every rung,
/// so is every layer's answer; the first that is not tells where to look.
pub struct Shadow<A> {
    attention: A,
    judge: Cached<ListStore>,
}

impl<A: Attention> Shadow<A> {
    /// `judge` starts as empty as `attention`.
    pub fn new(attention: A, judge: Cached<ListStore>) -> Self {
        Shadow { attention, judge }
    }
}

impl Shadow<Cached<Box<dyn Store>>> {
    /// Runs the prompt over a store with `fault` in it.
    ///
    /// # Errors
    /// Names the first layer, row and head with another answer.
    pub fn guard(bench: &Bench, fault: impl Fn(Box<dyn Store>) -> Box<dyn Store>) -> Result<()> {
        let model = &bench.model;
        let lists = ListStore::new(KvShape::of(model), model.context(), 1);
        let judge = Cached::new(lists, model.isa);
        let attention = Cached::new(fault(Box::new(store(model, 1)?)), model.isa);
        let attention = Shadow::new(attention, judge);
        walk(bench, &mut CpuExecutor { model: Arc::clone(model), attention })
    }
}

impl<A: Attention> Attention for Shadow<A> {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.judge.begin(pass)?;
        self.attention.begin(pass)
    }

    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let expected = self.judge.attend(layer, pass, q, k, v)?;
        let found = self.attention.attend(layer, pass, q, k, v)?;
        for ((row, head, i), expected) in expected.indexed_iter() {
            let found = found[(row, head, i)];
            if found.to_bits() != expected.to_bits() {
                let what = format!("answer of layer {}, row {row}, head {head}", layer.index);
                let expected = format!("{expected:.6}, as the second cache answers");
                return Err(Error::invalid(what, format!("{found:.6}"), expected));
            }
        }
        Ok(found)
    }

    fn commit(&mut self, pass: &Pass) {
        self.judge.commit(pass);
        self.attention.commit(pass);
    }
}
