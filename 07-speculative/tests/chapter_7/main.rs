//! What chapter 7 of the book says, made to come true: the answers of its quiz, the trace that its stepper replays.

mod model;
#[path = "../../examples/trace_speculation.rs"]
mod trace_speculation;

use naive_decode::{Request, Result, Sampler, Sampling};
use ndarray::Array2;
use speculative::expected::{best_length, speed_up, tokens_per_cycle};
use speculative::proposers::DraftModel;
use speculative::{
    Depth, DraftTree, Node, Nothing, Proposer, Speculation, accept, with_room_for_trees,
};
use std::sync::Arc;

fn greedy() -> Sampler {
    Sampler::new(Sampling::default()).unwrap()
}

#[test]
fn four_tokens_at_eight_tenths() {
    let tokens = tokens_per_cycle(0.8, 4);
    assert_eq!((100.0 * tokens).round() / 100.0, 3.36);
}

/// Two tokens: the draft says 0.5 and 0.5, the target 0.3 and 0.7.
#[test]
fn refused_one_time_in_five() {
    const PASSES: usize = 20_000;
    let sampling = Sampling { temperature: 1.0, seed: 1, ..Sampling::default() };
    let mut sampler = Sampler::new(sampling).unwrap();
    let q: Arc<[f32]> = Arc::from([0.5, 0.5]);
    let said = [0.3f32.ln(), 0.7f32.ln()];
    let logits = Array2::from_shape_vec((2, 2), [said, said].concat()).unwrap();
    let (mut refused, mut second) = (0, 0);
    for _ in 0..PASSES {
        let mut tree = DraftTree::empty();
        let token = sampler.draw(&q);
        tree.add(Node { token, parent: None, drawn_from: Some(q.clone()) });
        let accepted = accept(&mut sampler, &mut vec![0], &tree, logits.view()).unwrap();
        refused += usize::from(accepted.path.is_empty());
        let first = if accepted.path.is_empty() { accepted.next } else { token };
        second += usize::from(first == 1);
    }
    let of_100 = |count: usize| (100.0 * count as f64 / PASSES as f64).round() as usize;
    let (refused, second) = (of_100(refused), of_100(second));
    assert_eq!(refused, 20);
    assert_eq!(second, 70, "what comes out is the target's");
}

#[test]
fn rows_of_a_tree() {
    let (target, draft) = (model::random(16, 1), model::random(12, 2));
    let mut draft = DraftModel::new(draft, &target).unwrap().with_widths(&[3, 2, 1]).unwrap();
    let text = [1, 2, 3];
    let tree = draft.propose(&text, 3, &mut greedy()).unwrap();
    let rows = tree.span(0, &text).unwrap().rows();
    assert_eq!(rows, 16);
}

#[test]
fn branches_stand_side_by_side() {
    let mut tree = DraftTree::chain(&[50, 51, 52]);
    tree.add_chain(None, &[60, 61, 62]);
    let span = tree.span(0, &(0..20).collect::<Vec<u32>>()).unwrap();
    let row = span.tokens.iter().position(|&token| token == 60).unwrap();
    let (position, slot) = (span.positions[row], span.start + row);
    assert_eq!((position, slot), (20, 23));
}

/// Proposes what the target will not say.
struct Wrong {
    text: Vec<u32>,
}

impl Proposer for Wrong {
    fn name(&self) -> &'static str {
        "always wrong"
    }

    fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
        let right = &self.text[context.len()..(context.len() + depth).min(self.text.len())];
        Ok(DraftTree::chain(&right.iter().map(|token| (token + 1) % 61).collect::<Vec<_>>()))
    }
}

fn write(proposer: impl Proposer) -> (Vec<u32>, usize) {
    let target = model::random(16, 3);
    let cache = with_room_for_trees(&target, target.context()).unwrap();
    let request = Request { prompt: vec![7, 8, 9], tokens: 40, end_tokens: vec![] };
    let mut text =
        Speculation::new(target, cache, proposer, greedy(), Depth::Fixed(4), request).unwrap();
    let mut passes = 0;
    while text.advance().unwrap().is_some() {
        passes += 1;
    }
    (text.context().to_vec(), passes)
}

#[test]
fn every_guess_is_wrong() {
    let (plain, _) = write(Nothing);
    let (text, passes) = write(Wrong { text: plain.clone() });
    assert_eq!((text, passes), (plain, 40));
}

#[test]
fn the_best_length() {
    let best = best_length(0.8, 0.1, 16);
    assert_eq!(best, 6);
    let of = |length| speed_up(0.8, length, 0.1);
    assert_eq!((100.0 * of(6)).round() / 100.0, 2.47);
    assert!((4..=8).all(|length| of(length) > 0.96 * of(6)));
}

/// `cargo run --release -p speculative --example trace_speculation > 07-speculative/traces/accepting.json`
#[test]
fn the_stepper_replays_what_the_rule_does() {
    assert_eq!(include_str!("../../traces/accepting.json"), trace_speculation::trace().unwrap());
}
