//! The cache whose layout is the kernel's.
//!
//! Rung 01 copies keys and values of each split into tiles before it multiplies. Here they are *kept* in
//! tiles, one stretch of memory for each sequence, as [`tile_attention`](crate::tile_attention) reads them.

mod tiled;

use crate::threads::Pool;
use crate::tile_attention::{self, Code, KvType, Paired, Workers};
use half::{bf16, f16};
use kv_cache::{CachedDecoder, KvCache, Lengths};
use naive_decode::{
    Attention, Decoder, Element, Error, Isa, KvSize, LayerSpec, Model, Pass, Result, Rung, Settings,
};
use ndarray::{Array3, ArrayView3, s};
use std::sync::Arc;
use tiled::Tiled;

/// Attention over keys and values in tiles.
///
/// Invariant: for every sequence, slots below its length are written in every layer that makes keys and
/// values, and nothing else is given any weight.
pub struct FlashCache {
    /// By layer; none for one that shares another's.
    layers: Vec<Option<Layer>>,
    lengths: Lengths,
    bytes_per_token: usize,
    isa: Isa,
    workers: Workers,
}

/// One layer, by what its numbers are kept as.
enum Layer {
    F32(Tiled<f32>),
    Bf16(Tiled<bf16>),
    Bf16Fast(Tiled<Paired>),
    F16(Tiled<f16>),
    Int8(Tiled<Code>),
}

/// Runs the same code on whichever type it is.
macro_rules! on_layer {
    ($layer:expr, $tiled:ident => $code:expr) => {
        match $layer {
            Layer::F32($tiled) => $code,
            Layer::Bf16($tiled) => $code,
            Layer::Bf16Fast($tiled) => $code,
            Layer::F16($tiled) => $code,
            Layer::Int8($tiled) => $code,
        }
    };
}

impl FlashCache {
    /// Sets aside room for `sequences` sequences of `capacity` tokens each.
    ///
    /// # Errors
    /// If the first layer makes no keys and values, as such a model cannot run, or the system does not give the memory.
    pub fn new(model: &Model, capacity: usize, sequences: usize) -> Result<Self> {
        FlashCache::with_kept(model, model.kv_element.into(), capacity, sequences)
    }

    /// The same, with keys and values kept as another type than the model rounds them to.
    ///
    /// # Errors
    /// As [`FlashCache::new`], and if the model's keys cannot be kept so ([`KvType::check`], [`KvType::check_made`]).
    pub fn with_kept(
        model: &Model,
        kept: KvType,
        capacity: usize,
        sequences: usize,
    ) -> Result<Self> {
        let sizes: Vec<_> = model.blocks.iter().map(|block| block.projection.kv()).collect();
        if sizes.first().is_some_and(Option::is_none) {
            let expected = "its own: none come before";
            return Err(Error::invalid("layer 0's keys and values", "none", expected));
        }
        kept.check_made(model.kv_element)?;
        FlashCache::of_sizes(&sizes, kept, model.isa, capacity, sequences)
    }

    /// The same for layers of these sizes, whatever model they are of; none for a layer that shares an
    /// earlier one's keys and values.
    ///
    /// # Errors
    /// If a layer's cannot be kept so ([`KvType::check`]), or the system does not give the memory.
    pub fn of_sizes(
        sizes: &[Option<KvSize>],
        kept: KvType,
        isa: Isa,
        capacity: usize,
        sequences: usize,
    ) -> Result<Self> {
        let layer = |size: KvSize| {
            kept.check(size)?;
            Ok(match kept {
                KvType::Exact(Element::F32) => Layer::F32(Tiled::new(size, capacity, sequences)?),
                KvType::Exact(Element::Bf16) => Layer::Bf16(Tiled::new(size, capacity, sequences)?),
                KvType::Exact(Element::F16) => Layer::F16(Tiled::new(size, capacity, sequences)?),
                KvType::Bf16Fast => Layer::Bf16Fast(Tiled::new(size, capacity, sequences)?),
                KvType::Int8 => Layer::Int8(Tiled::new(size, capacity, sequences)?),
            })
        };
        Ok(FlashCache {
            layers: sizes.iter().map(|size| size.map(layer).transpose()).collect::<Result<_>>()?,
            lengths: Lengths::new(sequences, capacity),
            bytes_per_token: sizes.iter().flatten().map(|&size| kept.bytes(size)).sum(),
            isa,
            workers: Workers::on(Pool::shared()),
        })
    }

    /// The same, with attention shared out among the threads of this pool instead of the process's.
    #[must_use]
    pub fn on_threads(mut self, pool: Arc<Pool>) -> Self {
        self.workers = Workers::on(pool);
        self
    }
}

impl KvCache for FlashCache {
    fn len(&self, sequence: usize) -> usize {
        self.lengths.of(sequence)
    }

    fn capacity(&self) -> usize {
        self.lengths.capacity()
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.lengths.check_truncate(sequence, length)?;
        self.lengths.truncate(sequence, length);
        Ok(())
    }

    fn bytes_per_token(&self) -> usize {
        self.bytes_per_token
    }

    /// Whole tiles and whole registers: a little more than capacity times bytes per token where the
    /// capacity or a value's width is no multiple of sixteen.
    fn allocated_bytes(&self) -> usize {
        let bytes = |layer: &Layer| on_layer!(layer, tiled => tiled.allocated_bytes());
        self.layers.iter().flatten().map(bytes).sum()
    }
}

impl Attention for FlashCache {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.lengths.check_pass(pass)
    }

    // ANCHOR: attend
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let Some(Some(kept)) = self.layers.get_mut(layer.kv_layer) else {
            let expected = "a layer that makes its own";
            return Err(Error::invalid("layer of keys and values", layer.kv_layer, expected));
        };
        on_layer!(kept, tiled => {
            // A layer that shares an earlier one's keys and values finds them written.
            if layer.kv_layer == layer.index {
                for (span, rows) in pass.spans_with_rows() {
                    let k = k.slice(s![rows.clone(), .., ..]);
                    tiled.write(span.sequence, span.start, k, v.slice(s![rows, .., ..]));
                }
            }
            Ok(tile_attention::attend(self.isa, layer, pass, q, tiled, v.dim().2, &mut self.workers))
        })
    }
    // ANCHOR_END: attend

    fn commit(&mut self, pass: &Pass) {
        self.lengths.commit(pass);
    }
}

/// The cache in tiles as a rung.
pub const TILES: Rung = Rung {
    package: "flash-attention",
    change: "keys and values kept as the kernels read them: in tiles, loaded once for all query heads",
    start,
};

fn start(model: Arc<Model>, settings: Settings) -> Result<Box<dyn Decoder>> {
    let capacity = settings.capacity.min(model.context());
    let cache = FlashCache::new(&model, capacity, 1)?.on_threads(Pool::of(settings.threads));
    Ok(Box::new(CachedDecoder::new(model, cache, settings.prefill_chunk)?))
}
