//! Layers' attention to measure, in the bench and in `measure_kernels`.

use flash_attention::FlashCache;
use flash_attention::tile_attention::KvType;
use naive_decode::break_it::noise;
use naive_decode::roofline::probe::MEMORY_BYTES;
use naive_decode::{Attention, Isa, KvSize, LayerSpec, Pass, Span, Want};
use ndarray::{Array3, ArrayView3, s};

/// A layer's attention.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) key_dim: usize,
    value_dim: usize,
    /// Values are the beginnings of keys.
    absorbed: bool,
}

pub(crate) const SHAPES: [Shape; 4] = [
    Shape {
        name: "GQA 9 on 3, 64 wide",
        heads: 9,
        kv_heads: 3,
        key_dim: 64,
        value_dim: 64,
        absorbed: false,
    },
    Shape {
        name: "MHA 8, 128 wide",
        heads: 8,
        kv_heads: 8,
        key_dim: 128,
        value_dim: 128,
        absorbed: false,
    },
    Shape {
        name: "MQA 8 on 1, 64 wide",
        heads: 8,
        kv_heads: 1,
        key_dim: 64,
        value_dim: 64,
        absorbed: false,
    },
    Shape {
        name: "absorbed MLA 16, 576 and 512 wide",
        heads: 16,
        kv_heads: 1,
        key_dim: 576,
        value_dim: 512,
        absorbed: true,
    },
];

/// Tokens that a decode step looks back on.
pub(crate) const PAST: usize = 2048;
/// Rows of a prefill chunk.
pub(crate) const CHUNK: usize = 512;
/// As much as the probe of memory reads: what the machine's caches keep of one, they keep of the other.
pub(crate) const KEPT_BYTES: usize = MEMORY_BYTES;

impl Shape {
    /// Keys, queries or values `[rows, heads, width]`.
    pub(crate) fn numbers(self, seed: u64, rows: usize, heads: usize, width: usize) -> Array3<f32> {
        let numbers = noise(seed, rows * heads * width);
        Array3::from_shape_vec((rows, heads, width), numbers).expect("as many as asked for")
    }

    /// Bytes of a layer's keys and values of [`PAST`] tokens.
    pub(crate) fn layer_bytes(self, kept: KvType) -> usize {
        PAST * kept.bytes(self.size())
    }

    /// Of a chunk's attention: row `i` sees the past, the rows before it and itself.
    pub(crate) fn chunk_flops(self) -> usize {
        let pairs = CHUNK * PAST + CHUNK * (CHUNK + 1) / 2;
        2 * pairs * self.heads * (self.key_dim + self.value_dim)
    }

    fn size(self) -> KvSize {
        let value_dim = if self.absorbed { 0 } else { self.value_dim };
        KvSize { heads: self.kv_heads, key_dim: self.key_dim, value_dim }
    }

    /// A cache of `layers` layers that holds [`PAST`] tokens.
    pub(crate) fn cache(self, layers: usize, kept: KvType) -> FlashCache {
        let sizes = vec![Some(self.size()); layers];
        let mut cache = FlashCache::of_sizes(&sizes, kept, Isa::best(), PAST + CHUNK, 1)
            .expect("keys that can be kept so, and memory");
        let pass = Pass::one(Span::new(0, 0, &[0; PAST], Want::Nothing));
        cache.begin(&pass).expect("the past fits");
        let mut k = self.numbers(1, PAST, self.kv_heads, self.key_dim);
        kept.rounded_to().round(k.as_slice_mut().expect("contiguous"));
        for index in 0..layers {
            // Each row sees itself only, which is soon done.
            self.attend(&mut cache, index, &pass, Some(1), k.view(), k.view());
        }
        cache.commit(&pass);
        cache
    }

    /// Attention of a pass's rows in one layer.
    pub(crate) fn attend(
        self,
        cache: &mut FlashCache,
        index: usize,
        pass: &Pass,
        window: Option<usize>,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
    ) -> Array3<f32> {
        let layer = LayerSpec { index, kv_layer: index, window, scale: 0.1, score_cap: None };
        let v = k.slice(s![.., .., ..self.value_dim]);
        cache.attend(layer, pass, q, k, v).expect("the pass was begun")
    }
}
