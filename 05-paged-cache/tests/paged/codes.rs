//! Keys and values that are codes, or pairs: the same in blocks and in one stretch.

use crate::world::assert_same_bits;
use flash_attention::FlashCache;
use flash_attention::tile_attention::KvType;
use gqa_mla::Maker;
use kv_cache::KvCache;
use naive_decode::break_it::noise;
use naive_decode::{Attention, Isa, KvSize, LayerSpec, Pass, Span, Visible, Want};
use ndarray::Array3;
use paged_cache::{Behind, Layout, PagedCache, Room};

const CAPACITY: usize = 700;
const SIZES: [KvSize; 2] = [
    KvSize { heads: 2, key_dim: 24, value_dim: 20 },
    KvSize { heads: 1, key_dim: 40, value_dim: 0 },
];

fn kinds() -> impl Iterator<Item = (KvSize, KvType)> {
    SIZES.into_iter().flat_map(|size| [KvType::Int8, KvType::Bf16Fast].map(|kept| (size, kept)))
}

fn random(seed: u64, shape: (usize, usize, usize)) -> Array3<f32> {
    Array3::from_shape_vec(shape, noise(seed, shape.0 * shape.1 * shape.2)).unwrap()
}

/// Runs a pass whose rows are token `first` of a text and those after it, and gives what they were answered.
fn answer(cache: &mut dyn KvCache, size: KvSize, pass: &Pass, first: usize) -> Array3<f32> {
    let width = if size.value_dim == 0 { 32 } else { size.value_dim };
    cache.begin(pass).unwrap();
    let of = |seed: u64, heads: usize, dim: usize| {
        let all = random(seed, (CAPACITY, heads, dim));
        all.slice(ndarray::s![first..first + pass.rows(), .., ..]).to_owned()
    };
    let (q, k) = (of(1, size.heads * 3, size.key_dim), of(2, size.heads, size.key_dim));
    let v = match size.value_dim {
        0 => k.slice(ndarray::s![.., .., ..width]).to_owned(),
        _ => of(3, size.heads, width),
    };
    let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale: 2.0, score_cap: None };
    cache.attend(layer, pass, q.view(), k.view(), v.view()).unwrap()
}

/// Runs the passes and gives what each of their rows was answered.
fn answers(cache: &mut dyn KvCache, size: KvSize, passes: &[Span]) -> Vec<Array3<f32>> {
    let mut answers = Vec::new();
    for span in passes {
        let pass = Pass::one(span.clone());
        // Each slot has its own token, so that chunks of one text are parts of it.
        answers.push(answer(cache, size, &pass, span.start));
        if span.sees.iter().all(|sees| sees.also.is_empty()) {
            cache.commit(&pass);
        }
    }
    answers
}

fn passes(chunks: &[usize]) -> Vec<Span> {
    let mut held = 0;
    let mut passes = Vec::new();
    for &chunk in chunks {
        passes.push(Span::new(0, held, &vec![0; chunk], Want::All));
        held += chunk;
    }
    // Two branches, rolled back.
    let mut tree = Span::new(0, held, &[0; 3], Want::All);
    let see = |also: &[usize]| Visible { range: 0..held, also: also.to_vec() };
    tree.sees = vec![see(&[held]), see(&[held + 1]), see(&[held, held + 2])];
    passes.push(tree);
    passes.push(Span::new(0, held, &[0], Want::All));
    passes
}

#[test]
fn what_is_in_blocks_is_what_is_in_one_stretch() {
    for (size, kept) in kinds() {
        for block in [1, 2, 4, 16, 32, 256] {
            for isa in Isa::available() {
                let passes = passes(&[1, 30, 500, 17, 1, 9]);
                let mut tiles =
                    FlashCache::of_sizes(&[Some(size)], kept, isa, CAPACITY, 1).unwrap();
                let expected = answers(&mut tiles, size, &passes);
                let found = answers(&mut paged(size, block, kept, isa), size, &passes);
                for (pass, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let what = format!("{kept}, blocks of {block}, pass {pass}");
                    assert_same_bits(found, expected, &what);
                }
            }
        }
    }
}

/// Of a tree of two branches the second stays, and its rows move up: with their scales, and in pairs with others.
#[test]
fn rows_that_move_up_are_as_if_they_had_always_been_there() {
    for (size, kept) in kinds() {
        let run = |cache: &mut PagedCache, span: Span, first: usize| {
            let pass = Pass::one(span);
            let answer = answer(cache, size, &pass, first);
            cache.commit(&pass);
            answer
        };
        let rows = |start: usize, rows: usize| Span::new(0, start, &vec![0; rows], Want::All);
        // The first of them to the end of a block, to the first and to the second of a pair.
        for (block, held) in [1, 2, 16].into_iter().flat_map(|b| [15, 20, 21].map(|h| (b, h))) {
            let what = format!("{kept}, blocks of {block}, behind {held} tokens");
            let mut tree = rows(held, 3);
            let see = |also: &[usize]| Visible { range: 0..held, also: also.to_vec() };
            tree.sees = vec![see(&[held]), see(&[held + 1]), see(&[held + 1, held + 2])];
            let mut moved = paged(size, block, kept, Isa::best());
            run(&mut moved, rows(0, held), 0);
            let in_tree = run(&mut moved, tree, held);
            moved.keep(0, held, &[held + 1, held + 2]).unwrap();
            // The same branch, and nothing else.
            let mut in_line = paged(size, block, kept, Isa::best());
            run(&mut in_line, rows(0, held), 0);
            let expected = run(&mut in_line, rows(held, 2), held + 1);
            let branch = in_tree.slice(ndarray::s![1.., .., ..]).to_owned();
            assert_same_bits(&branch, &expected, &format!("{what}, in the tree"));
            let found = run(&mut moved, rows(held + 2, 1), held + 3);
            let expected = run(&mut in_line, rows(held + 2, 1), held + 3);
            assert_same_bits(&found, &expected, &format!("{what}, behind it"));
        }
    }
}

#[test]
fn keys_that_pairs_cannot_hold_are_refused() {
    let size = KvSize { heads: 1, key_dim: 30, value_dim: 32 };
    let made = [Some(Maker { size, window: None })];
    let said = Layout::of(&made, 16, KvType::Bf16Fast).unwrap_err().to_string();
    assert!(said.contains("bf16-fast is 30, expected a multiple of 4"), "{said}");
}

fn paged(size: KvSize, block: usize, kept: KvType, isa: Isa) -> PagedCache {
    let layout = Layout::of(&[Some(Maker { size, window: None })], block, kept).unwrap();
    let bytes = layout.blocks_for(CAPACITY) * layout.block_bytes();
    let behind = Behind::Kept;
    let room = Room { bytes, block, capacity: CAPACITY, kept, behind, rollback: 0 };
    let mut cache = PagedCache::over(layout, room, isa).unwrap();
    cache.open();
    cache
}
