//! The embedded models whose cache is smaller by design: random weights have flat attention, these have
//! made up their minds.

use crate::judge::{Feed, Judge};
use crate::matrix::{prompts, remembering};
use crate::models::{CONTEXT, noise};
use embedded_models::{HYBRID, MLA, recall::World};
use gqa_mla::hybrid;
use gqa_mla::mla::{self, Form};
use naive_decode::{Isa, LoadOptions, Model, argmax};
use std::sync::Arc;

fn options(isa: Isa) -> LoadOptions {
    LoadOptions { context: Some(CONTEXT), isa, ..LoadOptions::default() }
}

fn latent(form: Form, isa: Isa) -> Model {
    mla::embedded(MLA.name, MLA.config, MLA.weights, form, options(isa)).unwrap()
}

fn windowed(isa: Isa) -> Model {
    hybrid::embedded(HYBRID.name, HYBRID.config, HYBRID.weights, options(isa)).unwrap()
}

type Build = fn(Isa) -> Model;

const MODELS: [(&str, Build); 3] = [
    ("mla, explicit", |isa| latent(Form::Explicit, isa)),
    ("mla, absorbed", |isa| latent(Form::Absorbed, isa)),
    ("hybrid", windowed),
];

#[test]
fn every_rung_on_every_prompt() {
    for (model_name, build) in MODELS {
        let model = Arc::new(build(Isa::best()));
        for (name, prompt) in prompts() {
            let tokens = [prompt.as_slice(), &noise(4, model.config.vocab_size)].concat();
            let judge = Judge::new(model.clone(), tokens);
            let name = format!("{model_name}, {name}");
            for rung in remembering() {
                for prefill_chunk in [Some(7), None] {
                    let feed = Feed { prefill_chunk, ..Feed::new(&name, &model) };
                    judge.check(&rung, Feed { prompt: prompt.len(), ..feed });
                }
            }
        }
    }
}

/// The two forms are different sums of the same weights: never the same bits by right, but the same
/// likeliest token after every position of the whole corpus, as long as two tokens are further apart
/// than rounding can move them.
#[test]
fn absorption_changes_no_greedy_token() {
    let [explicit, absorbed] =
        [Form::Explicit, Form::Absorbed].map(|form| latent(form, Isa::best()));
    let [explicit, absorbed] = [explicit, absorbed].map(Arc::new);
    let tokenizer = naive_decode::Tokenizer::from_bytes(MLA.name, MLA.tokenizer).unwrap();
    let mut texts: Vec<Vec<u32>> = prompts().into_iter().map(|(_, prompt)| prompt).collect();
    texts.push(noise(560, explicit.config.vocab_size));
    for seed in 0..6 {
        let world = World::held_out(seed, 6, 2);
        let questions = (0..world.facts.len()).map(|i| world.question(i) + world.answer(i));
        let text = questions.fold(world.prompt().to_owned(), |text, question| text + &question);
        texts.push(tokenizer.encode(&text).unwrap());
    }
    let (mut furthest, mut closest) = (0.0f32, f32::INFINITY);
    for text in texts {
        mla::forms_agree(&absorbed, &explicit, &text).unwrap();
        let [explicit, absorbed] =
            [&explicit, &absorbed].map(|model| Judge::new(Arc::clone(model), text.clone()).logits);
        let largest = explicit.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
        for (a, b) in explicit.rows().into_iter().zip(absorbed.rows()) {
            let (a, b) = (a.as_slice().unwrap(), b.as_slice().unwrap());
            let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            furthest = furthest.max(apart / largest);
            let (first, margin) = (argmax(a).unwrap(), margin(a));
            closest = closest.min(margin);
            assert_eq!(first, argmax(b).unwrap(), "margin {margin:e}, logits {apart:e} apart");
        }
    }
    println!(
        "logits are {furthest:e} of the largest apart at most; the smallest top-2 margin is {closest:e}"
    );
    assert!(furthest > 0.0, "equal to the bit: one form is not what it says");
}

/// How far the likeliest token is ahead of the next.
fn margin(logits: &[f32]) -> f32 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted[0] - sorted[1]
}
