//! What is refused, and how.

use crate::world::Shelf;
use flash_attention::tile_attention::KvType;
use gqa_mla::Maker;
use kv_cache::KvCache;
use naive_decode::{
    Attention, Config, Element, Isa, KvSize, LoadOptions, Model, Pass, Request, Span, Want,
};
use paged_cache::crowd::{Crowd, Preemption};
use paged_cache::{Behind, Layout, PagedCache, Room};
use std::sync::Arc;

fn model() -> Arc<Model> {
    let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 16,
        "vocab_size": 20, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
        "tie_word_embeddings": true}"#;
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    let options = LoadOptions { context: Some(64), isa: Isa::best(), ..LoadOptions::default() };
    Arc::new(Model::random(config, 1, options).unwrap())
}

/// Bytes of one block of `block` tokens: 8 numbers for a key, 16 (a whole register) for a value.
fn room(model: &Model, blocks: usize, block: usize) -> Room {
    let kept = model.kv_element.into();
    let bytes = blocks * block * (8 + 16) * model.kv_element.bytes();
    Room { bytes, block, capacity: 64, kept, behind: Behind::Kept, rollback: 0 }
}

fn pass(sequence: usize, start: usize, rows: usize) -> Pass {
    Pass::one(Span::new(sequence, start, &vec![1; rows], Want::Last))
}

#[test]
fn a_pool_without_room_for_a_block_is_refused() {
    let model = model();
    let said = |room: Room| PagedCache::new(&model, room).err().unwrap().to_string();
    let Room { bytes, .. } = room(&model, 1, 16);
    let short = Room { bytes: bytes - 1, ..room(&model, 1, 16) };
    let expected =
        format!("bytes of the pool is {}, expected at least {bytes}, one block", bytes - 1);
    assert_eq!(said(short), expected);
    let endless = Room { bytes: usize::MAX, ..room(&model, 1, 16) };
    assert!(said(endless).contains("no more than the system has to give"));
    let endless = Room::for_tokens(&model, usize::MAX).unwrap();
    assert!(said(endless).contains("no more than the system has to give"));
    for block in [0, 12, 512] {
        let expected = "expected a power of two from 1 to 256";
        assert_eq!(
            said(Room { block, ..room(&model, 1, 16) }),
            format!("block size in tokens is {block}, {expected}")
        );
    }
}

#[test]
fn layers_without_keys_are_refused() {
    for (heads, key_dim) in [(0, 8), (2, 0)] {
        let size = KvSize { heads, key_dim, value_dim: 16 };
        let made = [Some(Maker { size, window: None })];
        let said = Layout::of(&made, 16, Element::F32.into()).unwrap_err().to_string();
        let expected = "expected at least 1 head of 1 number";
        assert_eq!(
            said,
            format!("keys of a layer is {heads} heads of {key_dim} numbers, {expected}")
        );
    }
}

#[test]
fn a_pool_that_is_full_refuses_and_changes_nothing() {
    let model = model();
    let mut cache = PagedCache::new(&model, room(&model, 3, 4)).unwrap();
    let (a, b) = (cache.open(), cache.open());
    model.forward(&pass(a, 0, 7), &mut cache).unwrap();
    let said = model.forward(&pass(b, 0, 5), &mut cache).unwrap_err().to_string();
    assert_eq!(said, "the pool of blocks holds 12 tokens; 16 were asked for");
    cache.check_integrity([]).unwrap();
    assert_eq!((cache.len(b), cache.blocks().used()), (0, 2));
    model.forward(&pass(b, 0, 4), &mut cache).unwrap();
    assert_eq!(cache.blocks().free(), 0);
}

/// Eight blocks for layers of these windows.
fn eight_blocks(windows: &[Option<usize>], block: usize, kept: impl Into<KvType>) -> PagedCache {
    let size = KvSize { heads: 1, key_dim: 8, value_dim: 16 };
    let made: Vec<_> = windows.iter().map(|&window| Maker { size, window }).collect();
    eight_blocks_of(&made, block, kept.into())
}

/// The same for layers of any sizes.
fn eight_blocks_of(made: &[Maker], block: usize, kept: KvType) -> PagedCache {
    let made: Vec<_> = made.iter().copied().map(Some).collect();
    let layout = Layout::of(&made, block, kept).unwrap();
    let bytes = 8 * layout.block_bytes();
    let room = Room { bytes, block, capacity: 64, kept, behind: Behind::Freed, rollback: 0 };
    PagedCache::over(layout, room, Isa::best()).unwrap()
}

fn begin_and_commit(cache: &mut PagedCache, pass: &Pass) {
    cache.begin(pass).unwrap();
    cache.commit(pass);
}

#[test]
fn a_token_counts_once_however_many_groups_have_a_place_for_it() {
    let mut cache = eight_blocks(&[None, Some(64)], 4, Element::F32);
    let (a, b) = (cache.open(), cache.open());
    let said = cache.begin(&pass(a, 0, 20)).unwrap_err().to_string();
    assert_eq!(said, "the pool of blocks holds 16 tokens; 20 were asked for");
    begin_and_commit(&mut cache, &pass(a, 0, 12));
    let mut tier = Shelf::default();
    let parked = cache.park(a, &mut tier).unwrap();
    begin_and_commit(&mut cache, &pass(b, 0, 8));
    let said = cache.unpark(&parked, &mut tier).unwrap_err().to_string();
    assert_eq!(said, "the free part of the pool holds 8 tokens; 12 were asked for");
    // Of a token's places one may be there and the other not: what is asked for is still more than there is.
    let mut cache = eight_blocks(&[None, Some(1)], 1, Element::F32);
    let a = cache.open();
    for row in 0..7 {
        begin_and_commit(&mut cache, &pass(a, row, 1));
    }
    let said = cache.begin(&pass(a, 7, 1)).unwrap_err().to_string();
    assert_eq!(said, "the pool of blocks holds 4 tokens; 5 were asked for");
}

#[test]
fn what_was_parked_comes_back_to_blocks_of_the_same_layout() {
    let mut cache = eight_blocks(&[None, None], 8, Element::F32);
    let a = cache.open();
    begin_and_commit(&mut cache, &pass(a, 0, 20));
    let mut tier = Shelf::default();
    let parked = cache.park(a, &mut tier).unwrap();
    let mut said = |mut other: PagedCache| {
        let said = other.unpark(&parked, &mut tier).unwrap_err().to_string();
        assert_eq!((other.blocks().used(), other.open_sequences()), (0, 0));
        said
    };
    let size = |heads, key_dim, value_dim| KvSize { heads, key_dim, value_dim };
    let of = |sizes: &[KvSize]| {
        let made: Vec<_> = sizes.iter().map(|&size| Maker { size, window: None }).collect();
        eight_blocks_of(&made, 8, Element::F32.into())
    };
    let each = "layers x heads x (key + value)";
    let is = format!("blocks of a parked sequence is of 8 tokens as f32, {each}: 2 x 1 x (8 + 16)");
    for (other, tokens, layers) in [
        (eight_blocks(&[None, None], 4, Element::F32), "4 tokens as f32", "2 x 1 x (8 + 16)"),
        // Just as many bytes.
        (eight_blocks(&[None, None], 16, Element::Bf16), "16 tokens as bf16", "2 x 1 x (8 + 16)"),
        (of(&[size(2, 8, 16)]), "8 tokens as f32", "1 x 2 x (8 + 16)"),
        (
            of(&[size(1, 16, 16), size(1, 16, 0)]),
            "8 tokens as f32",
            "1 x 1 x (16 + 16) + 1 x 1 x (16 + 0)",
        ),
        // The same keys and values, of which what is behind the window need not be there.
        (
            eight_blocks(&[Some(9), Some(9)], 8, Element::F32),
            "8 tokens as f32",
            "2 x 1 x (8 + 16) in a window of 9",
        ),
        (
            eight_blocks(&[None, Some(9)], 8, Element::F32),
            "8 tokens as f32",
            "1 x 1 x (8 + 16); 1 x 1 x (8 + 16) in a window of 9",
        ),
    ] {
        assert_eq!(said(other), format!("{is}, expected of {tokens}, {each}: {layers}"));
    }
    let back = cache.unpark(&parked, &mut tier).unwrap();
    assert_eq!(cache.len(back), 20);
}

#[test]
fn a_pass_that_fails_keeps_no_block() {
    let model = model();
    let mut cache = PagedCache::new(&model, room(&model, 3, 4)).unwrap();
    let a = cache.open();
    cache.begin(&pass(a, 0, 12)).unwrap();
    // Nothing is committed: the next pass begins from what there was.
    model.forward(&pass(a, 0, 2), &mut cache).unwrap();
    assert_eq!(cache.blocks().used(), 1);
    cache.check_integrity([]).unwrap();
}

#[test]
fn sequences_that_are_not_there_are_refused() {
    let model = model();
    let mut cache = PagedCache::new(&model, room(&model, 3, 4)).unwrap();
    let a = cache.open();
    cache.close(a).unwrap();
    let expected = "sequence is 0, expected one that is open";
    assert_eq!(cache.begin(&pass(a, 0, 1)).unwrap_err().to_string(), expected);
    assert_eq!(cache.fork(a).unwrap_err().to_string(), expected);
    assert_eq!(cache.close(a).unwrap_err().to_string(), expected);
    assert_eq!(cache.truncate(a, 0).unwrap_err().to_string(), expected);
    assert_eq!(cache.park(a, &mut Shelf::default()).unwrap_err().to_string(), expected);
    // One that never was.
    let said = cache.park(99, &mut Shelf::default()).unwrap_err().to_string();
    assert_eq!(said, "sequence is 99, expected one that is open");
    assert!(cache.begin(&pass(5, 0, 1)).is_err());
    let again = cache.open();
    assert_eq!(again, a, "its number is used again");
    let said = cache.truncate(again, 1).unwrap_err().to_string();
    assert!(said.contains("length to truncate sequence 0 to is 1"), "{said}");
}

#[test]
fn blocks_to_begin_with_must_be_as_many_as_the_tokens_need() {
    let model = model();
    let mut cache = PagedCache::new(&model, room(&model, 9, 4)).unwrap();
    let block = cache.parts().0.take().unwrap();
    let said = cache.adopt(&[block], 5).unwrap_err().to_string();
    assert_eq!(said, "blocks to begin with is 1, expected 2, for 5 tokens");
    let said = cache.adopt(&[block; 17], 65).unwrap_err().to_string();
    assert_eq!(said, "a sequence of this cache holds 64 tokens; 65 were asked for");
    cache.check_integrity([block]).unwrap();
    let sequence = cache.adopt(&[block], 3).unwrap();
    assert_eq!(cache.len(sequence), 3);
    cache.check_integrity([]).unwrap();
}

#[test]
fn blocks_past_a_sequences_tokens_are_exchanged_for_no_others() {
    let model = model();
    let mut cache = PagedCache::new(&model, room(&model, 9, 4)).unwrap();
    let (a, b) = (cache.open(), cache.open());
    model.forward(&pass(a, 0, 8), &mut cache).unwrap();
    model.forward(&pass(b, 0, 4), &mut cache).unwrap();
    // A pass that was not committed has left a second place. Others' blocks there would be written to by the next.
    cache.begin(&pass(b, 4, 4)).unwrap();
    let same: Vec<_> = cache.tables(a).unwrap().held().collect();
    let said = cache.exchange(b, &same).unwrap_err().to_string();
    assert_eq!(said, "blocks for the beginning of sequence 1 is 2, expected at most its 1");
    cache.exchange(b, &same[..1]).unwrap();
    cache.check_integrity([]).unwrap();
}

#[test]
fn a_crowd_begins_with_an_empty_cache() {
    let model = model();
    let mut cache = PagedCache::new(&model, room(&model, 3, 4)).unwrap();
    let sequence = cache.open();
    model.forward(&pass(sequence, 0, 5), &mut cache).unwrap();
    // There is one block left for a request that needs two.
    let request = Request { prompt: vec![1; 5], tokens: 1, end_tokens: vec![] };
    let crowd = Crowd::new(model, cache, vec![request], Preemption::Recompute);
    let said = crowd.err().unwrap().to_string();
    assert_eq!(said, "blocks of the cache in use is 2, expected 0: an empty cache for the crowd");
}

#[test]
fn requests_that_can_never_be_answered_are_refused() {
    let model = model();
    let said = |prompt: usize, tokens: usize| {
        let cache = PagedCache::new(&model, room(&model, 3, 4)).unwrap();
        let request = Request { prompt: vec![1; prompt], tokens, end_tokens: vec![] };
        let crowd = Crowd::new(model.clone(), cache, vec![request], Preemption::Recompute);
        crowd.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(0, 1), "prompt of request 0 is empty, expected at least one token");
    assert_eq!(said(1, 0), "number of tokens of request 0 is 0, expected at least 1");
    assert_eq!(said(10, 4), "the pool, for request 0, holds 12 tokens; 13 were asked for");
    assert_eq!(
        said(60, 6),
        "the model's context, for request 0, holds 64 tokens; 65 were asked for"
    );
    assert_eq!(said(10, 3), "");
}
