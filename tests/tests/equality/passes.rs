//! What a pass may hold besides one plain span, against naive attention over plain spans.

use crate::judge::{Judge, assert_same_bits};
use crate::models::{SHAPES, noise, target};
use flash_attention::FlashCache;
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape, ListStore};
use naive_decode::{
    Element, Isa, KvSize, Model, NaiveAttention, Pass, Projected, Projection, Result, Rope, Span,
    Visible, Want,
};
use ndarray::{Array2, Array3, ArrayView2};
use paged_cache::{PagedCache, Room};
use std::sync::Arc;

/// Every cache that can be driven pass by pass, with room for so many sequences.
fn caches(
    model: &Model,
    capacity: usize,
    sequences: usize,
) -> [(&'static str, Box<dyn KvCache>); 5] {
    let shape = KvShape::of(model);
    let paged = |block| -> Box<dyn KvCache> {
        let room = Room { block, ..Room::for_tokens(model, sequences * (capacity + 256)).unwrap() };
        let mut cache = PagedCache::new(model, room).unwrap();
        for _ in 0..sequences {
            cache.open();
        }
        Box::new(cache)
    };
    [
        ("lists", Box::new(Cached::new(ListStore::new(shape, capacity, sequences), model.isa))),
        (
            "contiguous",
            Box::new(Cached::new(
                ContiguousStore::new(shape, capacity, sequences).unwrap(),
                model.isa,
            )),
        ),
        ("tiles", Box::new(FlashCache::new(model, capacity, sequences).unwrap())),
        ("blocks of 8", paged(8)),
        ("blocks of 128", paged(128)),
    ]
}

/// Feeds each judge's tokens as one sequence of the cache, in passes that hold a chunk of every
/// sequence that is not at its end, and checks every row's logits.
fn check_batches(name: &str, cache: &mut dyn KvCache, judges: &[Judge], chunks: &[usize]) {
    let model = &judges[0].model;
    let unfinished = |cache: &dyn KvCache, s: usize| cache.len(s) < judges[s].tokens.len();
    for pass_number in 0.. {
        let spans: Vec<Span> = (0..judges.len())
            .filter(|&s| unfinished(cache, s))
            .map(|s| {
                let held = cache.len(s);
                let rest = &judges[s].tokens[held..];
                let chunk = chunks[(pass_number + s) % chunks.len()].min(rest.len());
                Span::new(s, held, &rest[..chunk], Want::All)
            })
            .collect();
        if spans.is_empty() {
            break;
        }
        let pass = Pass { spans };
        let logits = model.forward(&pass, cache).unwrap();
        for (span, rows) in pass.spans_with_rows() {
            for (row, slot) in rows.zip(span.start..) {
                let place = format!("{name}, pass {pass_number}, {}, slot {slot}", span.sequence);
                assert_same_bits(logits.row(row), judges[span.sequence].logits.row(slot), &place);
            }
        }
    }
}

#[test]
fn sequences_in_one_pass_are_as_if_alone() {
    for model in [target(Isa::best()), SHAPES[2].model(Isa::best(), Element::F16)] {
        let text = noise(530, model.config.vocab_size);
        let judges: Vec<Judge> = [530, 1, 40, 97]
            .into_iter()
            .map(|length| Judge::new(model.clone(), text[530 - length..].to_vec()))
            .collect();
        for chunks in [[1, 1, 1], [200, 1, 33], [17, 600, 2]] {
            for (name, mut cache) in caches(&model, 530, judges.len()) {
                check_batches(name, cache.as_mut(), &judges, &chunks);
            }
        }
        // Naive attention takes them whole.
        let spans = judges.iter().enumerate().map(|(s, j)| Span::new(s, 0, &j.tokens, Want::All));
        let pass = Pass { spans: spans.collect() };
        let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap();
        for (span, rows) in pass.spans_with_rows() {
            for (row, slot) in rows.zip(0..) {
                let place = format!("naive, sequence {}, slot {slot}", span.sequence);
                assert_same_bits(logits.row(row), judges[span.sequence].logits.row(slot), &place);
            }
        }
    }
}

// --- Draft trees -------------------------------------------------------------------------------

/// Each node's parent; nodes without one follow the text itself. Three branches, two of which
/// part again, so that most nodes stand in other slots than they would have alone.
const PARENTS: [Option<usize>; 9] =
    [None, None, Some(0), Some(1), Some(1), Some(2), Some(4), None, Some(6)];

/// A node's ancestors and itself, from the root down.
fn path(node: usize) -> Vec<usize> {
    let mut path: Vec<usize> = std::iter::successors(Some(node), |&n| PARENTS[n]).collect();
    path.reverse();
    path
}

/// The nodes as one span after `start` tokens: a slot each, a position by depth.
fn tree_span(start: usize, nodes: &[u32]) -> Span {
    let paths: Vec<Vec<usize>> = (0..nodes.len()).map(path).collect();
    let see = |path: &Vec<usize>| Visible {
        range: 0..start,
        also: path.iter().map(|node| start + node).collect(),
    };
    Span {
        positions: paths.iter().map(|path| start + path.len() - 1).collect(),
        sees: paths.iter().map(see).collect(),
        ..Span::new(0, start, nodes, Want::All)
    }
}

/// Text and tree in one span from the first slot, as naive attention needs it.
fn whole_span(text: &[u32], tree: &Span) -> Span {
    let before = Span::new(0, 0, text, Want::All);
    Span {
        tokens: [before.tokens, tree.tokens.clone()].concat(),
        positions: [before.positions, tree.positions.clone()].concat(),
        sees: [before.sees, tree.sees.clone()].concat(),
        ..before
    }
}

fn check_tree(model: &Arc<Model>, length: usize) {
    let tokens = noise(length + PARENTS.len(), model.config.vocab_size);
    let (text, nodes) = tokens.split_at(length);
    let alone: Vec<Judge> = (0..nodes.len())
        .map(|node| {
            let branch: Vec<u32> = path(node).into_iter().map(|n| nodes[n]).collect();
            Judge::new(model.clone(), [text, &branch].concat())
        })
        .collect();
    let tree = tree_span(length, nodes);
    let check = |name: &str, logits: ndarray::ArrayView2<f32>| {
        for (node, judge) in alone.iter().enumerate() {
            let place = format!("{name}: node {node} of a tree after {length} tokens");
            let expected = judge.logits.row(judge.tokens.len() - 1);
            assert_same_bits(logits.row(node), expected, &place);
        }
    };
    let pass = Pass::one(whole_span(text, &tree));
    let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap();
    check("naive", logits.slice(ndarray::s![length.., ..]));
    for (name, mut cache) in caches(model, tokens.len(), 1) {
        let prefill = Pass::one(Span::new(0, 0, text, Want::Nothing));
        model.forward(&prefill, cache.as_mut()).unwrap();
        let logits = model.forward(&Pass::one(tree.clone()), cache.as_mut()).unwrap();
        check(name, logits.view());
    }
}

#[test]
fn each_branch_of_a_tree_is_as_if_alone() {
    for shape in SHAPES {
        let model = shape.model(Isa::best(), Element::Bf16);
        // The second tree lies across the end of a split, alone or not.
        for length in [1, 13, 508] {
            check_tree(&model, length);
        }
    }
    check_tree(&target(Isa::best()), 300);
}

#[test]
fn each_branch_of_a_tree_is_as_if_alone_under_windows() {
    for window in [1, 2, 3, 12, 510] {
        let model = windowed(&[Some(window), None, Some(window + 1)]);
        for length in [7, 509] {
            check_tree(&model, length);
        }
    }
}

// --- Windows and shared layers -----------------------------------------------------------------

/// A random model whose layers see so far back.
fn windowed(windows: &[Option<usize>; 3]) -> Arc<Model> {
    change_blocks(|model| {
        for (block, &window) in model.blocks.iter_mut().zip(windows) {
            block.window = window;
        }
    })
}

fn change_blocks(change: impl FnOnce(&mut Model)) -> Arc<Model> {
    let mut model = SHAPES[1].model(Isa::best(), Element::Bf16);
    change(Arc::get_mut(&mut model).expect("nobody else has it yet"));
    model
}

/// Layer-sharing: the queries of `own`, the keys and values of an earlier layer.
struct Sharing {
    own: Box<dyn Projection>,
}

impl Projection for Sharing {
    fn kv(&self) -> Option<KvSize> {
        None
    }
    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        Ok(Projected { kv: None, ..self.own.project(x, positions, rope)? })
    }
    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        self.own.output(attended)
    }
    fn bytes(&self) -> usize {
        self.own.bytes()
    }
}

/// A random model in which the given layers share the keys and values of the nearest other one.
fn sharing(layers: &[usize]) -> Arc<Model> {
    change_blocks(|model| {
        let blocks = std::mem::take(&mut model.blocks).into_iter().enumerate();
        let share = |(index, mut block): (usize, naive_decode::Block)| {
            if layers.contains(&index) {
                block.projection = Box::new(Sharing { own: block.projection });
            }
            block
        };
        model.blocks = blocks.map(share).collect();
    })
}

fn check_cached(model: &Arc<Model>) {
    let judge = [Judge::new(model.clone(), noise(540, model.config.vocab_size))];
    for chunks in [[1, 1], [7, 64], [513, 3]] {
        for (name, mut cache) in caches(model, 540, 1) {
            check_batches(name, cache.as_mut(), &judge, &chunks);
        }
    }
}

#[test]
fn windowed_layers_are_the_same_with_a_cache() {
    for windows in [[Some(1); 3], [Some(5), None, Some(16)], [None, Some(511), Some(513)]] {
        check_cached(&windowed(&windows));
    }
}

#[test]
fn layers_that_share_are_the_same_with_a_cache() {
    let text = noise(30, SHAPES[1].vocab);
    let logits = |model| Judge::new(model, text.clone()).logits;
    let unshared = logits(sharing(&[]));
    for layers in [[1, 1], [2, 2], [1, 2]] {
        let model = sharing(&layers);
        assert_ne!(logits(model.clone()), unshared, "{layers:?}: sharing makes a difference");
        check_cached(&model);
    }
}

#[test]
fn a_window_reaches_as_far_as_it_says_and_no_further() {
    // Three layers that each look two tokens back carry news six tokens on.
    let model = windowed(&[Some(3); 3]);
    let text = noise(20, SHAPES[1].vocab);
    let mut other = text.clone();
    other[4] = (other[4] + 1) % SHAPES[1].vocab as u32;
    let [a, b] = [text, other].map(|tokens| Judge::new(model.clone(), tokens).logits);
    let differs: Vec<usize> = (0..20).filter(|&row| a.row(row) != b.row(row)).collect();
    assert_eq!(differs, (4..=10).collect::<Vec<_>>());
}
