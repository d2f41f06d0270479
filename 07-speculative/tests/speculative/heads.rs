//! Heads that read the target's hidden states guess well, and the same however their rows came.

use crate::models::{encode, medusa, mtp, plain, tapped};
use naive_decode::break_it::Bench;
use naive_decode::{
    Checkpoint, CpuExecutor, Executor, Pass, Request, Sampler, Sampling, Span, dense,
};
use speculative::proposers::{Medusa, Mtp};
use speculative::{Cycle, Depth, DraftTree, Proposer, Speculation, with_room_for_trees};

fn sampler() -> Sampler {
    Sampler::new(Sampling::default()).unwrap()
}

fn tokens(tree: &DraftTree) -> Vec<u32> {
    tree.nodes().iter().map(|node| node.token).collect()
}

/// What a proposer says behind a text all of which the target has just run.
fn behind(text: &[u32], heads: impl Fn(&crate::models::Tapped) -> Box<dyn Proposer>) -> Vec<u32> {
    let target = tapped();
    let mut proposer = heads(&target);
    let attention = with_room_for_trees(&target.0, target.0.context()).unwrap();
    let mut executor = CpuExecutor { model: target.0, attention };
    let sequence = executor.attention.open();
    let before = &text[..text.len() - 1];
    executor.execute(&Pass::one(Span::new(sequence, 0, before, proposer.wants()))).unwrap();
    proposer.read(text, 0);
    tokens(&proposer.propose(text, 4, &mut sampler()).unwrap())
}

#[test]
fn guesses_do_not_depend_on_how_rows_came() {
    let target = tapped();
    let prompt = encode(&Bench::tale(1));
    for heads in [
        (|target: &_| Box::new(medusa(target)) as Box<dyn Proposer>) as fn(&_) -> _,
        |target: &_| Box::new(mtp(target)),
        |target: &_| Box::new(mtp(target).with_widths(&[2, 2, 1]).unwrap()),
    ] {
        let mut kept = Vec::new();
        // Who is asked between two cycles knows more than he was told: each text is asked about once, at its end.
        for cycles in 1.. {
            let request = Request { prompt: prompt.clone(), tokens: 30, end_tokens: vec![] };
            let cache = with_room_for_trees(&target.0, target.0.context()).unwrap();
            let (model, depth) = (target.0.clone(), Depth::Fixed(3));
            let mut text =
                Speculation::new(model, cache, heads(&target), sampler(), depth, request).unwrap();
            let last = text.by_ref().take(cycles).map(Result::unwrap).last();
            let context = text.context().to_vec();
            if context.len() >= prompt.len() + 20 {
                break;
            }
            let found = tokens(&text.proposer.propose(&context, 4, &mut sampler()).unwrap());
            assert_eq!(found, behind(&context, heads), "{} tokens", context.len());
            kept.extend(last.map(|cycle| cycle.kept));
        }
        // Rows came alone, and several at once.
        assert!(kept.contains(&0) && kept.iter().any(|&kept| kept > 0), "{kept:?}");
    }
}

#[test]
fn a_draft_that_went_wrong_leaves_nothing_behind() {
    let target = tapped();
    let request = Request { prompt: encode(&Bench::tale(1)), tokens: 30, end_tokens: vec![] };
    // Only token 0 may come, and not twice.
    let others = 1..target.0.config.vocab_size as u32;
    let strict = Sampling {
        logit_bias: others.map(|token| (token, f32::NEG_INFINITY)).collect(),
        presence_penalty: f32::MAX,
        frequency_penalty: f32::MAX,
        ..Sampling::default()
    };
    let mut strict = Sampler::new(strict).unwrap().with_prompt_length(request.prompt.len());
    let cache = with_room_for_trees(&target.0, target.0.context()).unwrap();
    let (model, depth) = (target.0.clone(), Depth::Fixed(3));
    let mut text =
        Speculation::new(model, cache, mtp(&target), sampler(), depth, request.clone()).unwrap();
    let said = text.proposer.propose(&request.prompt, 3, &mut strict).unwrap_err().to_string();
    assert!(said.starts_with("number of tokens that may come next is 0"), "{said}");
    let cycles: Vec<Cycle> = text.map(Result::unwrap).collect();
    let found: Vec<u32> = cycles.iter().flat_map(|cycle| cycle.tokens.clone()).collect();
    assert_eq!(found, plain(&target.0, &request, &Sampling::default()));
    assert!(cycles.iter().any(|cycle| cycle.kept > 0), "{cycles:?}");
}

/// How often the first of what is proposed is what the target says, in tales.
fn first_kept(heads: fn(&crate::models::Tapped) -> Box<dyn Proposer>) -> f64 {
    let target = tapped();
    let (mut kept, mut cycles) = (0, 0);
    for tale in 0..6 {
        let prompt = encode(&Bench::tale(tale));
        let request = Request { prompt, tokens: 60, end_tokens: vec![] };
        let cache = with_room_for_trees(&target.0, target.0.context()).unwrap();
        let (model, depth) = (target.0.clone(), Depth::Fixed(1));
        let text =
            Speculation::new(model, cache, heads(&target), sampler(), depth, request).unwrap();
        for cycle in text.map(Result::unwrap).filter(|cycle| cycle.proposed > 0) {
            kept += cycle.kept;
            cycles += 1;
        }
    }
    assert!(cycles > 100, "{cycles}");
    kept as f64 / f64::from(cycles)
}

#[test]
fn trained_heads_guess_tales() {
    let block = first_kept(|target| Box::new(mtp(target)));
    assert!(block > 0.7, "{block}");
    // Three guesses, one of which may be right.
    let heads = first_kept(|target| Box::new(medusa(target)));
    assert!(heads > 0.3, "{heads}");
}

#[test]
fn a_text_of_which_nothing_is_known_gets_no_guess() {
    let target = tapped();
    let text = encode("Once upon a time there was");
    for mut heads in crate::greedy::heads(&target) {
        assert!(heads.propose(&text, 4, &mut sampler()).unwrap().is_empty(), "{}", heads.name());
    }
    // The target has run something else since.
    let request = Request { prompt: text.clone(), tokens: 3, end_tokens: vec![] };
    plain(&target.0, &request, &Sampling::default());
    for mut heads in crate::greedy::heads(&target) {
        heads.read(&text, 0);
        let other = encode("Somebody else");
        assert!(heads.propose(&other, 4, &mut sampler()).unwrap().is_empty(), "{}", heads.name());
    }
}

#[test]
fn files_that_hold_no_heads_are_refused() {
    let (target, tap) = tapped();
    let checkpoint = |bytes| Checkpoint::embedded("heads.safetensors", bytes).unwrap();
    let mtp = checkpoint(embedded_models::HEADS.mtp);
    let said =
        Medusa::new(&target, tap.clone(), &mtp, &dense(target.isa)).err().unwrap().to_string();
    assert!(said.starts_with("Medusa heads in heads.safetensors is 0"), "{said}");
    let medusa = checkpoint(embedded_models::HEADS.medusa);
    let pack = dense(target.isa);
    let said = Mtp::new(target, tap, &medusa, &pack).err().unwrap().to_string();
    assert!(said.contains("model.layers.0.enorm.weight"), "{said}");
}
