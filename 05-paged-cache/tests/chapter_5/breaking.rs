//! What breaks, and who notices.

use crate::{executor, run};
use embedded_models::TARGET;
use naive_decode::{Config, CpuExecutor, LoadOptions, Model};
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

/// A block's bytes, and those that it would have if another text had been written to it, layer by layer.
#[test]
fn half_a_block_is_the_lower_layers() {
    let config = Config::from_json("config.json", TARGET.config).unwrap();
    let model = Arc::new(Model::random(config, 1, LoadOptions::default()).unwrap());
    let attention = crate::pool(&model, 2, 16);
    let mut executor = CpuExecutor { model, attention };
    let sequence = executor.attention.open();
    run(&mut executor, &[(sequence, 32)]).unwrap();
    let bytes = |cache: &mut PagedCache, place: usize| {
        let block = cache.tables(sequence).unwrap().groups[0].block(place).unwrap();
        let mut bytes = Vec::new();
        cache.parts().1.copy_out(block, &mut bytes).unwrap();
        bytes
    };
    let [whole, other] = [0, 1].map(|place| bytes(&mut executor.attention, place));
    let mut torn = whole.clone();
    torn[whole.len() / 2..].copy_from_slice(&other[whole.len() / 2..]);
    let layer = whole.len() / 6;
    let differs = |&index: &usize| {
        let bytes = index * layer..(index + 1) * layer;
        torn[bytes.clone()] != whole[bytes]
    };
    let wrong: Vec<usize> = (0..6).filter(differs).collect();
    assert_eq!(wrong, [3, 4, 5]);
}
