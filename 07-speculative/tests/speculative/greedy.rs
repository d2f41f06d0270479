//! Greedy text is plain decoding's, whoever proposes, whatever the prompt.

use crate::models::{Tapped, draft, encode, medusa, mtp, plain, random, tapped};
use naive_decode::{Model, Request, Sampler, Sampling, Settings, generate};
use paged_cache::{PagedCache, Room};
use speculative::proposers::{Ahead, DraftModel, Lookahead, PromptLookup};
use speculative::tasks::Task;
use speculative::{
    Adaptive, Depth, GuessingDecoder, Nothing, Proposer, Speculation, with_room_for_trees,
};
use std::sync::Arc;

/// Every proposer that goes with any target, over a draft.
fn proposers(draft: &Arc<Model>, target: &Model, prompt: &[u32]) -> Vec<Box<dyn Proposer>> {
    let model = || DraftModel::new(draft.clone(), target).unwrap();
    vec![
        Box::new(Nothing),
        Box::new(model()),
        Box::new(model().with_widths(&[3, 2, 1]).unwrap()),
        Box::new(Ahead::new(model()).unwrap()),
        Box::new(PromptLookup::new()),
        Box::new(PromptLookup::with_reference(prompt).with_branches(3)),
        Box::new(Lookahead::new()),
    ]
}

/// And those that were trained on the embedded one.
pub(crate) fn heads(target: &Tapped) -> Vec<Box<dyn Proposer>> {
    vec![
        Box::new(medusa(target)),
        Box::new(medusa(target).with_widths(&[4, 1, 2]).unwrap()),
        Box::new(mtp(target)),
        Box::new(mtp(target).with_widths(&[2, 2, 1]).unwrap()),
    ]
}

/// Every proposer there is, for the embedded target.
pub(crate) fn all(target: &Tapped, draft: &Arc<Model>, prompt: &[u32]) -> Vec<Box<dyn Proposer>> {
    let mut all = proposers(draft, &target.0, prompt);
    all.extend(heads(target));
    all
}

fn depths() -> [Depth; 3] {
    [Depth::Fixed(1), Depth::Fixed(5), Depth::Adaptive(Adaptive::new(6))]
}

/// Runs a request under each of some proposers and every depth.
fn check(
    target: &Arc<Model>,
    proposers: impl Fn() -> Vec<Box<dyn Proposer>>,
    request: &Request,
    sampling: &Sampling,
) {
    let cache = || with_room_for_trees(target, target.context()).unwrap();
    check_at(&depths(), (target, cache), proposers, request, sampling);
}

/// The same at some depths, each time in a new cache.
fn check_at(
    depths: &[Depth],
    (target, cache): (&Arc<Model>, impl Fn() -> PagedCache),
    proposers: impl Fn() -> Vec<Box<dyn Proposer>>,
    request: &Request,
    sampling: &Sampling,
) {
    let expected = plain(target, request, sampling);
    for depth in depths {
        for proposer in proposers() {
            let name = proposer.name();
            let sampler = Sampler::new(sampling.clone()).unwrap();
            let (model, request) = (target.clone(), request.clone());
            let mut text =
                Speculation::new(model, cache(), proposer, sampler, depth.clone(), request)
                    .unwrap();
            let mut found = Vec::new();
            while let Some(cycle) = text.advance().unwrap() {
                found.extend(cycle.tokens);
                text.check_integrity([]).unwrap();
            }
            assert_eq!(found, expected, "{name}, {depth:?}");
        }
    }
}

#[test]
fn greedy_text_of_a_trained_pair_is_plain_decodings() {
    let (target, draft) = (tapped(), draft());
    for prompt in [
        "Remember these words. The word of Ada is amber. The word of Leo is honey.\nQuestion: What is the word of Ada?\nAnswer:",
        "Once upon a time",
        "fn main() {\n    let x = 1;\n    let y = 2;\n    println!(\"{}\", x",
        "é",
    ] {
        let request = Request { prompt: encode(prompt), tokens: 40, end_tokens: vec![] };
        let all = || all(&target, &draft, &request.prompt);
        check(&target.0, all, &request, &Sampling::default());
    }
}

/// Whoever proposes nothing would pass every other test here.
#[test]
fn everybody_guesses_something_that_is_kept() {
    let (target, draft) = (tapped(), draft());
    // Questions and answers: every guesser brings two tokens a pass and more.
    let prompt = encode(&Task::Recall.prompt(0));
    for proposer in all(&target, &draft, &prompt) {
        let name = proposer.name();
        let cache = with_room_for_trees(&target.0, target.0.context()).unwrap();
        let sampler = Sampler::new(Sampling::default()).unwrap();
        let request = Request { prompt: prompt.clone(), tokens: 96, end_tokens: vec![] };
        let (model, depth) = (target.0.clone(), Depth::Fixed(4));
        let text = Speculation::new(model, cache, proposer, sampler, depth, request).unwrap();
        let kept: usize = text.map(|cycle| cycle.unwrap().kept).sum();
        assert_eq!(kept > 0, name != "nothing", "{name} has kept {kept}");
    }
}

#[test]
fn greedy_text_of_strangers_is_plain_decodings() {
    for seed in 0..3 {
        let (target, draft) = (random(16, seed), random(12, seed + 100));
        for length in [1, 15, 16, 40] {
            let prompt = (0..length).map(|i| (i * 7 + 3 * seed as u32) % 61).collect();
            // Some token ends the text, wherever it comes.
            let request = Request { prompt, tokens: 50, end_tokens: vec![11] };
            let all = || proposers(&draft, &target, &request.prompt);
            check(&target, all, &request, &Sampling::default());
        }
    }
}

#[test]
fn penalties_apply_to_drafts_as_they_do_to_text() {
    let sampling = Sampling {
        repetition_penalty: 1.3,
        presence_penalty: 0.4,
        frequency_penalty: 0.7,
        logit_bias: vec![(5, f32::NEG_INFINITY), (9, 1.0)],
        ..Sampling::default()
    };
    let (target, draft) = (random(16, 4), random(12, 5));
    let request = Request { prompt: vec![1, 2, 3, 1, 2], tokens: 60, end_tokens: vec![] };
    let all = || proposers(&draft, &target, &request.prompt);
    check(&target, all, &request, &sampling);
}

#[test]
fn a_text_may_fill_the_context_to_the_last_token() {
    let (target, draft) = (random(16, 6), random(12, 7));
    let request = Request { prompt: vec![3; 200], tokens: 57, end_tokens: vec![] };
    let all = || proposers(&draft, &target, &request.prompt);
    check(&target, all, &request, &Sampling::default());
    let target = tapped();
    let prompt = encode("The word of Ada is amber.\n").into_iter().cycle().take(470).collect();
    let request = Request { prompt, tokens: 43, end_tokens: vec![] };
    check(&target.0, || heads(&target), &request, &Sampling::default());
}

/// A prompt that fills most of a context of 256, whose last two tokens stood there 58 times, each time before another.
fn frames() -> Request {
    let prompt = (3..61).flat_map(|next| [1, 2, next]).chain([1, 2]).collect();
    Request { prompt, tokens: 81, end_tokens: vec![] }
}

#[test]
fn a_tree_is_cut_to_what_caches_have_room_for() {
    let depths = [Depth::Fixed(4), Depth::Fixed(8)];
    let (target, draft) = (random(16, 6), random(12, 7));
    let wide = || -> Vec<Box<dyn Proposer>> {
        let model = DraftModel::new(draft.clone(), &target).unwrap();
        vec![
            Box::new(model.with_widths(&[4]).unwrap()),
            Box::new(PromptLookup::new().with_branches(60)),
        ]
    };
    let cache = || with_room_for_trees(&target, target.context()).unwrap();
    check_at(&depths, (&target, cache), wide, &frames(), &Sampling::default());
    let target = tapped();
    let prompt = encode("The word of Ada is amber.\n").into_iter().cycle().take(500).collect();
    let request = Request { prompt, tokens: 13, end_tokens: vec![] };
    let wide =
        || -> Vec<Box<dyn Proposer>> { vec![Box::new(mtp(&target).with_widths(&[4]).unwrap())] };
    let cache = || with_room_for_trees(&target.0, target.0.context()).unwrap();
    check_at(&depths, (&target.0, cache), wide, &request, &Sampling::default());
}

#[test]
fn a_cache_may_end_with_the_context() {
    let (target, draft) = (random(16, 6), random(12, 7));
    let request = Request { prompt: vec![3; 200], tokens: 57, end_tokens: vec![] };
    let all = || proposers(&draft, &target, &request.prompt);
    let cache = || {
        let room = Room::for_tokens(&target, target.context()).unwrap();
        PagedCache::new(&target, room).unwrap()
    };
    check_at(&depths(), (&target, cache), all, &request, &Sampling::default());
}

#[test]
fn a_guess_is_cut_to_what_the_cache_has_room_for() {
    let (target, request) = (random(16, 6), frames());
    let settings = Settings { capacity: target.context(), prefill_chunk: None, threads: None };
    let lookup = PromptLookup::new().with_branches(60);
    let mut guessing = GuessingDecoder::new(target.clone(), settings, lookup, 8).unwrap();
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let steps = generate(&mut guessing, sampler, request.clone()).unwrap();
    let found: Vec<u32> = steps.map(|step| step.unwrap().token).collect();
    assert_eq!(found, plain(&target, &request, &Sampling::default()));
}
