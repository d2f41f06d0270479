//! 32 tokens after a prompt of 128, on every rung.
//!
//!     cargo bench -p serving --bench rungs
//!     LADDER_MODEL=WHAT cargo bench -p serving --bench rungs

use criterion::{Criterion, criterion_group, criterion_main};
use model_files::ModelArgs;
use naive_decode::{Request, Sampler, Sampling, Settings, Step, generate};
use serving::rungs;
use std::sync::Arc;
use std::time::Duration;

fn every_rung(criterion: &mut Criterion) {
    let named = ModelArgs { model: std::env::var("LADDER_MODEL").ok() };
    let model = Arc::new(named.load_to_time(160).expect("the model loads"));
    let prompt: Vec<u32> = (0..128).map(|i| 5 + i * 37 % 2000).collect();
    let run = |rung: &naive_decode::Rung| -> Vec<Step> {
        let settings = Settings { capacity: 160, prefill_chunk: None, threads: None };
        let mut decoder = (rung.start)(model.clone(), settings).expect("the rung starts");
        let sampler = Sampler::new(Sampling::default()).expect("greedy is valid");
        let request = Request { prompt: prompt.clone(), tokens: 32, end_tokens: Vec::new() };
        let steps = generate(&mut *decoder, sampler, request).expect("the request fits");
        steps.collect::<naive_decode::Result<_>>().expect("every step works")
    };
    let mut group = criterion.benchmark_group("32 tokens after 128");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    let expected: Vec<u32> = run(&rungs()[0]).iter().map(|step| step.token).collect();
    for rung in rungs() {
        // Equality first, then time.
        let tokens: Vec<u32> = run(&rung).iter().map(|step| step.token).collect();
        assert_eq!(tokens, expected, "{}: {}", rung.package, rung.change);
        group.bench_function(rung.change, |bencher| bencher.iter(|| run(&rung)));
    }
    group.finish();
}

criterion_group!(benches, every_rung);
criterion_main!(benches);
