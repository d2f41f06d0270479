//! The kernels of the cache in tiles: a decode step as a share of memory bandwidth, a prefill chunk as a share of
//! peak arithmetic.
//!
//!     cargo bench -p flash-attention --bench attention

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use naive_decode::roofline::probe::{Memory, fma_rate};
use naive_decode::{Element, Pass, Span, Want};
use shape::{CHUNK, KEPT_BYTES, PAST, SHAPES};

mod shape;

fn decode(criterion: &mut Criterion) {
    let read = Memory::new().read_rate(rayon::current_num_threads());
    println!("memory read: {:.1} GB/s", read / 1e9);
    let mut group = criterion.benchmark_group("decode at 2,048, one layer");
    for shape in SHAPES {
        for element in [Element::F32, Element::Bf16] {
            let bytes = shape.layer_bytes(element.into());
            let layers = KEPT_BYTES.div_ceil(bytes);
            let mut cache = shape.cache(layers, element.into());
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
        let mut cache = shape.cache(1, Element::F32.into());
        let pass = Pass::one(Span::new(0, PAST, &[0; CHUNK], Want::Last));
        let q = shape.numbers(2, CHUNK, shape.heads, shape.key_dim);
        let k = shape.numbers(3, CHUNK, shape.kv_heads, shape.key_dim);
        group.throughput(Throughput::Elements(shape.chunk_flops() as u64));
        group.bench_function(shape.name, |bencher| {
            bencher.iter(|| shape.attend(&mut cache, 0, &pass, None, q.view(), k.view()));
        });
    }
}

criterion_group!(benches, decode, prefill);
criterion_main!(benches);
