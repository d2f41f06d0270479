//! The kernels of the cache in tiles: a decode step as a share of memory bandwidth, a prefill chunk as a share of
//! peak arithmetic.
//!
//!     cargo bench -p flash-attention --bench attention

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use flash_attention::FlashCache;
use naive_decode::break_it::noise;
use naive_decode::roofline::probe::{Memory, fma_rate};
use naive_decode::{Attention, Element, Isa, KvSize, LayerSpec, Pass, Span, Want};
use ndarray::{Array3, ArrayView3, s};

/// A layer's attention.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    heads: usize,
    kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    /// Values are the beginnings of keys.
    absorbed: bool,
}

const SHAPES: [Shape; 4] = [
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
const PAST: usize = 2048;
/// Rows of a prefill chunk.
const CHUNK: usize = 512;
/// More than a processor's caches hold, so that every layer comes from memory.
const KEPT_BYTES: usize = 128 << 20;

impl Shape {
    fn numbers(self, seed: u64, rows: usize, heads: usize, width: usize) -> Array3<f32> {
        let numbers = noise(seed, rows * heads * width);
        Array3::from_shape_vec((rows, heads, width), numbers).expect("as many as asked for")
    }

    fn size(self) -> KvSize {
        let value_dim = if self.absorbed { 0 } else { self.value_dim };
        KvSize { heads: self.kv_heads, key_dim: self.key_dim, value_dim }
    }

    /// A cache of `layers` layers that holds [`PAST`] tokens.
    fn cache(self, layers: usize, element: Element) -> FlashCache {
        let sizes = vec![Some(self.size()); layers];
        let mut cache = FlashCache::of_sizes(&sizes, element.into(), Isa::best(), PAST + CHUNK, 1);
        let pass = Pass::one(Span::new(0, 0, &[0; PAST], Want::Nothing));
        cache.begin(&pass).expect("the past fits");
        let mut k = self.numbers(1, PAST, self.kv_heads, self.key_dim);
        element.round(k.as_slice_mut().expect("contiguous"));
        for index in 0..layers {
            // Each row sees itself only, which is soon done.
            self.attend(&mut cache, index, &pass, Some(1), k.view(), k.view());
        }
        cache.commit(&pass);
        cache
    }

    fn attend(
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

fn decode(criterion: &mut Criterion) {
    let read = Memory::new().read_rate(rayon::current_num_threads());
    println!("memory read: {:.1} GB/s", read / 1e9);
    let mut group = criterion.benchmark_group("decode at 2,048, one layer");
    for shape in SHAPES {
        for element in [Element::F32, Element::Bf16] {
            let bytes = PAST * shape.size().numbers() * element.bytes();
            let layers = KEPT_BYTES.div_ceil(bytes);
            let mut cache = shape.cache(layers, element);
            let pass = Pass::one(Span::new(0, PAST, &[0], Want::Last));
            let q = shape.numbers(2, 1, shape.heads, shape.key_dim);
            let k = shape.numbers(3, 1, shape.kv_heads, shape.key_dim);
            let mut index = 0;
            group.throughput(Throughput::Bytes(bytes as u64));
            let id = BenchmarkId::new(shape.name, format!("{element:?}"));
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    index = (index + 1) % layers;
                    shape.attend(&mut cache, index, &pass, None, q.view(), k.view())
                });
            });
        }
    }
}

fn prefill(criterion: &mut Criterion) {
    let peak = fma_rate(rayon::current_num_threads());
    println!("multiply-adds: {:.1} GFLOP/s", peak / 1e9);
    let mut group =
        criterion.benchmark_group("512 rows after 2,048, one layer (elements are FLOPs)");
    group.sample_size(20);
    for shape in SHAPES {
        let mut cache = shape.cache(1, Element::F32);
        let pass = Pass::one(Span::new(0, PAST, &[0; CHUNK], Want::Last));
        let q = shape.numbers(2, CHUNK, shape.heads, shape.key_dim);
        let k = shape.numbers(3, CHUNK, shape.kv_heads, shape.key_dim);
        // Row i sees the past, the rows before it and itself.
        let pairs = CHUNK * PAST + CHUNK * (CHUNK + 1) / 2;
        let flops = 2 * pairs * shape.heads * (shape.key_dim + shape.value_dim);
        group.throughput(Throughput::Elements(flops as u64));
        group.bench_function(shape.name, |bencher| {
            bencher.iter(|| shape.attend(&mut cache, 0, &pass, None, q.view(), k.view()));
        });
    }
}

criterion_group!(benches, decode, prefill);
criterion_main!(benches);
