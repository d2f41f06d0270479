//! Blocks and tables.

use crate::{executor, run, small};
use embedded_models::TARGET;
use naive_decode::{Config, Element, LoadOptions, Model, Settings};
use paged_cache::{Behind, Layout};

#[test]
fn a_prompt_of_100_and_30_more() {
    let mut executor = executor(20, 16);
    let sequence = executor.attention.open();
    run(&mut executor, &[(sequence, 100)]).unwrap();
    // The prompt's pass gives the first of thirty.
    for _ in 1..30 {
        run(&mut executor, &[(sequence, 1)]).unwrap();
    }
    let held = executor.attention.blocks().used();
    let empty = held * 16 - kv_cache::KvCache::len(&executor.attention, sequence);
    assert_eq!((held, empty), (9, 15));
}

#[test]
fn empty_slots_of_a_last_block() {
    let mut executor = executor(4, 16);
    let sequence = executor.attention.open();
    let empty: Vec<usize> = (1..=64)
        .map(|tokens| {
            run(&mut executor, &[(sequence, 1)]).unwrap();
            executor.attention.blocks().used() * 16 - tokens
        })
        .collect();
    assert_eq!(empty.iter().max(), Some(&15));
    assert_eq!(empty.iter().sum::<usize>() as f64 / 64.0, 7.5);
}

#[test]
fn a_block_of_the_embedded_model() {
    let config = Config::from_json("config.json", TARGET.config).unwrap();
    let options = LoadOptions { kv_element: Element::F32, ..LoadOptions::default() };
    let model = Model::random(config, 1, options).unwrap();
    let layout = Layout::new(&model, 16, Element::F32.into(), Behind::Kept).unwrap();
    assert_eq!(layout.block_bytes(), 49_152);
    assert_eq!(layout.groups().len(), 1);
}

/// In two passes, the second of which begins inside a block of any size but 1.
#[test]
fn block_sizes_change_no_bit() {
    let model = small();
    let tokens: Vec<u32> = (0..500).map(crate::token).collect();
    let settings = Settings { capacity: 512, prefill_chunk: None, threads: None };
    let mut slab = (flash_attention::TILES.start)(model, settings).unwrap();
    let whole = slab.feed(&tokens).unwrap();
    let logits = |block| {
        let mut executor = executor(512 / block, block);
        let sequence = executor.attention.open();
        run(&mut executor, &[(sequence, 123)]).unwrap();
        run(&mut executor, &[(sequence, 377)]).unwrap()
    };
    for block in [1, 4, 16, 256] {
        assert_eq!(logits(block), whole, "blocks of {block}");
    }
}

#[test]
fn a_pass_that_does_not_fit_takes_nothing() {
    let mut executor = executor(11, 16);
    let [a, b] = [executor.attention.open(), executor.attention.open()];
    run(&mut executor, &[(a, 80), (b, 80)]).unwrap();
    let refused = run(&mut executor, &[(a, 1), (b, 1)]);
    let cache = &executor.attention;
    assert_eq!((refused.is_err(), cache.blocks().used()), (true, 10));
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, "the pool of blocks holds 176 tokens; 192 were asked for");
    // One of the two alone has room.
    run(&mut executor, &[(a, 1)]).unwrap();
}

/// The page's figure for Llama-2-70B: 80 layers, 8 heads of 128, two bytes a number.
#[test]
fn a_block_of_llama_2_70b() {
    let size = naive_decode::KvSize { heads: 8, key_dim: 128, value_dim: 128 };
    let made = vec![Some(gqa_mla::Maker { size, window: None }); 80];
    let layout = Layout::of(&made, 16, Element::Bf16.into()).unwrap();
    assert_eq!(layout.block_bytes(), 5_242_880);
}
