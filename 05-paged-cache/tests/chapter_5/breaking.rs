//! What breaks, and who notices.

use crate::{executor, run};
use embedded_models::TARGET;
use naive_decode::{Attention, Config, CpuExecutor, LayerSpec, LoadOptions, Model, Pass, Span};
use ndarray::Array3;
use paged_cache::PagedCache;
use std::sync::Arc;

#[test]
fn a_dangling_block_shows_in_counts_and_not_in_logits() {
    let next = |freed: bool| {
        let mut executor = executor(16, 16);
        let sequence = executor.attention.open();
        run(&mut executor, &[(sequence, 40)]).unwrap();
        if freed {
            let held: Vec<_> = executor.attention.tables(sequence).unwrap().held().collect();
            let (blocks, _) = executor.attention.parts();
            blocks.release(held[0]);
        }
        (run(&mut executor, &[(sequence, 1)]).unwrap(), executor.attention)
    };
    let (clean, _) = next(false);
    let (logits, cache) = next(true);
    let same_logits = logits == clean;
    let counts_agree = cache.check_integrity([]).is_ok();
    assert_eq!((same_logits, counts_agree), (true, false));
}

/// What attention of each layer says to the same query, before and after the break-it's damage to a block.
#[test]
fn half_a_block_is_the_lower_layers() {
    let config = Config::from_json("config.json", TARGET.config).unwrap();
    let Config { layers, heads, kv_heads, head_dim, .. } = config;
    let model = Arc::new(Model::random(config, 1, LoadOptions::default()).unwrap());
    let attention = crate::pool(&model, 3, 16);
    let mut executor = CpuExecutor { model, attention };
    let sequence = executor.attention.open();
    run(&mut executor, &[(sequence, 32)]).unwrap();
    let mut cache = executor.attention;
    let pass = Pass::one(Span::new(sequence, 32, &[0], naive_decode::Want::Last));
    cache.begin(&pass).unwrap();
    let row = |heads: usize| Array3::<f32>::ones((1, heads, head_dim));
    let (q, kv, window, score_cap) = (row(heads), row(kv_heads), None, None);
    let answers = |cache: &mut PagedCache| -> Vec<Array3<f32>> {
        let answer = |index: usize| {
            let layer = LayerSpec { index, kv_layer: index, window, scale: 0.1, score_cap };
            cache.attend(layer, &pass, q.view(), kv.view(), kv.view()).unwrap()
        };
        (0..layers).map(answer).collect()
    };
    let whole = answers(&mut cache);
    let held: Vec<_> = cache.tables(sequence).unwrap().held().collect();
    let (_, memory) = cache.parts();
    let [mut torn, other] = [0, 1].map(|place: usize| {
        let mut bytes = Vec::new();
        memory.copy_out(held[place], &mut bytes).unwrap();
        bytes
    });
    let half = torn.len() / 2;
    torn[half..].copy_from_slice(&other[half..]);
    memory.copy_in(held[0], &torn).unwrap();
    let broken = answers(&mut cache);
    let wrong: Vec<usize> = (0..layers).filter(|&layer| broken[layer] != whole[layer]).collect();
    assert_eq!(wrong, [3, 4, 5]);
}
