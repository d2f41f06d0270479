//! What is refused, and how.

use crate::models::{plain, random};
use kv_cache::{KvCache, forward_kv_cache};
use naive_decode::{
    Attention, Decoder, Error, Request, Result, Rope, Sampler, Sampling, Settings,
    forward_attention, generate,
};
use paged_cache::PagedCache;
use speculative::proposers::{DraftModel, PromptLookup};
use speculative::{
    Adaptive, Cycle, Depth, GuessingDecoder, Nothing, Observation, Proposer, Speculation,
    TreeCache, with_room_for_trees,
};
use std::sync::Arc;
use std::time::Duration;

/// What a request is answered, or its first cycle.
fn said(prompt: Vec<u32>, tokens: usize) -> String {
    let model = random(16, 1);
    let cache = with_room_for_trees(&model, model.context()).unwrap();
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let request = Request { prompt, tokens, end_tokens: vec![] };
    let text = Speculation::new(model, cache, Nothing, sampler, Depth::Fixed(3), request);
    let cycle = text.and_then(|mut text| text.advance());
    cycle.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn requests_that_cannot_be_answered_are_refused() {
    assert_eq!(said(vec![], 1), "prompt is empty, expected at least one token");
    assert_eq!(said(vec![1], 0), "number of tokens to generate is 0, expected at least 1");
    assert_eq!(said(vec![1; 200], 58), "the model's context holds 256 tokens; 257 were asked for");
    assert_eq!(said(vec![1, 60], 1), "");
    // The prompt's last token is run in the first cycle.
    for prompt in [[99, 1], [1, 99]] {
        let said = said(prompt.to_vec(), 1);
        assert!(said.starts_with("token is 99"), "{said}");
    }
}

#[test]
fn a_sequence_that_is_not_there_is_refused() {
    let model = random(16, 1);
    // One that was closed, and one that never was.
    for sequence in [0, 99] {
        let mut cache = with_room_for_trees(&model, model.context()).unwrap();
        let closed = cache.open();
        cache.close(closed).unwrap();
        let sampler = Sampler::new(Sampling::default()).unwrap();
        let request = Request { prompt: vec![1], tokens: 1, end_tokens: vec![] };
        let (held, depth) = ((cache, sequence), Depth::Fixed(3));
        let text = Speculation::over(model.clone(), held, Nothing, sampler, depth, request);
        let expected = format!("sequence is {sequence}, expected one that is open");
        assert_eq!(text.err().unwrap().to_string(), expected);
    }
}

/// A cache that fails to keep what came true of a guess, once, and leaves all as it was.
struct Stumbling {
    cache: PagedCache,
    /// Times that it goes well before.
    before: usize,
}

impl TreeCache for Stumbling {
    fn keep(&mut self, sequence: usize, start: usize, kept: &[usize]) -> Result<()> {
        let stumbles = self.before == 0;
        self.before = self.before.wrapping_sub(1);
        match stumbles {
            true => Err(Error::file("a device", "is gone")),
            false => self.cache.keep(sequence, start, kept),
        }
    }
}

impl KvCache for Stumbling {
    forward_kv_cache!(cache: len capacity truncate bytes_per_token allocated_bytes);
}

impl Attention for Stumbling {
    forward_attention!(cache: begin attend commit);
}

/// What came true lies in several branches, so that it is not where the text has it until it has been moved.
#[test]
fn what_came_true_and_could_not_be_kept_is_read_again() {
    let model = random(16, 1);
    let text = [1, 2, 3, 4, 1, 2, 5, 6, 1, 2, 3, 7, 1, 2, 5, 8].repeat(3);
    let settings = Settings { capacity: 60, prefill_chunk: Some(3), threads: None };
    for before in 0..20 {
        let mut cache = with_room_for_trees(&model, model.context()).unwrap();
        let sequence = cache.open();
        let held = (Stumbling { cache, before }, sequence);
        let lookup = PromptLookup::new().with_branches(3);
        let mut guessing = GuessingDecoder::over(model.clone(), held, settings, lookup, 4).unwrap();
        let mut plain = (kv_cache::CONTIGUOUS.start)(model.clone(), settings).unwrap();
        let mut stumbled = 0;
        for token in text.chunks(1) {
            let found = guessing.feed(token).or_else(|_| {
                stumbled += 1;
                guessing.feed(token)
            });
            assert_eq!(found.unwrap(), plain.feed(token).unwrap(), "after {before}");
        }
        assert_eq!(stumbled, 1, "after {before}");
    }
}

#[test]
fn a_decoder_that_has_the_models_context_says_that_this_is_full() {
    let model = random(16, 1);
    for (capacity, full) in [
        (300, "the model's context holds 256 tokens; 257 were asked for"),
        (200, "the cache of sequence 0 holds 200 tokens; 257 were asked for"),
    ] {
        let settings = Settings { capacity, prefill_chunk: None, threads: None };
        let lookup = PromptLookup::new();
        let mut guessing = GuessingDecoder::new(model.clone(), settings, lookup, 4).unwrap();
        assert_eq!(guessing.feed(&[1; 257]).unwrap_err().to_string(), full);
    }
}

/// A file may claim any context; memory is set aside for what is asked for.
#[test]
fn room_is_set_aside_for_as_many_tokens_as_are_asked_for() {
    let mut model = Arc::into_inner(random(16, 1)).expect("nobody else has it");
    model.rope = Rope::new(model.config.rope_theta, model.config.head_dim, usize::MAX);
    let model = Arc::new(model);
    let start = |capacity: usize| {
        let settings = Settings { capacity, prefill_chunk: None, threads: None };
        GuessingDecoder::new(model.clone(), settings, PromptLookup::new(), 4)
    };
    let mut guessing = start(40).unwrap();
    assert_eq!(guessing.capacity(), 40);
    guessing.feed(&[7; 40]).unwrap();
    for capacity in [usize::MAX - 1, usize::MAX] {
        let said = start(capacity).err().unwrap().to_string();
        assert!(said.starts_with("bytes of the pool is "), "{said}");
    }
}

#[test]
fn a_draft_of_another_vocabulary_is_refused() {
    let (draft, target) = (random(16, 1), crate::models::target());
    let said = DraftModel::new(draft, &target).err().unwrap().to_string();
    assert_eq!(
        said,
        format!(
            "the draft's vocabulary is 61, expected {}, the target's",
            target.config.vocab_size
        )
    );
}

/// A reference that goes on with what is no token of the model's, where the text stands and later.
#[test]
fn guesses_that_the_model_does_not_know_are_left_out() {
    let model = random(16, 1);
    let request = Request { prompt: vec![8, 4, 5], tokens: 40, end_tokens: vec![] };
    let expected = plain(&model, &request, &Sampling::default());
    let strange =
        [&[4, 5, 61, 7, 4, 5, expected[0], 99, 1], &request.prompt[..], &expected].concat();
    let lookup = || PromptLookup::with_reference(&strange).with_branches(3);
    let sampler = || Sampler::new(Sampling::default()).unwrap();

    let cache = with_room_for_trees(&model, model.context()).unwrap();
    let (target, depth) = (model.clone(), Depth::Fixed(4));
    let text = Speculation::new(target, cache, lookup(), sampler(), depth, request.clone());
    let cycles: Vec<Cycle> = text.unwrap().map(Result::unwrap).collect();
    let found: Vec<u32> = cycles.iter().flat_map(|cycle| cycle.tokens.clone()).collect();
    assert_eq!(found, expected);
    assert!(cycles.iter().any(|cycle| cycle.kept > 0), "what is known stays");

    let settings = Settings { capacity: model.context(), prefill_chunk: None, threads: None };
    let mut guessing = GuessingDecoder::new(model.clone(), settings, lookup(), 4).unwrap();
    let steps = generate(&mut guessing, sampler(), request).unwrap();
    assert_eq!(steps.map(|step| step.unwrap().token).collect::<Vec<u32>>(), expected);
    assert!(guessing.rows() > 3 + 39, "something was guessed");
}

#[test]
fn an_empty_prompt_is_read_and_nothing_is_guessed_behind_it() {
    let model = random(16, 1);
    let mut draft = DraftModel::new(model.clone(), &model).unwrap();
    let mut sampler = Sampler::new(Sampling::default()).unwrap();
    draft.read(&[], 0);
    assert!(draft.propose(&[], 3, &mut sampler).unwrap().is_empty());
    assert_eq!(draft.propose(&[1, 2], 3, &mut sampler).unwrap().len(), 3);
}

#[test]
fn a_tree_of_more_nodes_than_there_are_numbers_is_the_largest_of_them() {
    let model = random(16, 1);
    let nodes = |widths: &[usize], depth: usize| {
        DraftModel::new(model.clone(), &model).unwrap().with_widths(widths).unwrap().nodes(depth)
    };
    assert_eq!([0, 1, 5, 63].map(|depth| nodes(&[2], depth)), [0, 2, 62, usize::MAX - 1]);
    assert_eq!([64, 500].map(|depth| nodes(&[2], depth)), [usize::MAX; 2]);
    assert_eq!(nodes(&[usize::MAX, 1], 3), usize::MAX);
    assert_eq!(PromptLookup::new().with_branches(usize::MAX).nodes(2), usize::MAX);
    // Nobody can afford one.
    let mut adaptive = Adaptive::new(80);
    let (draft, verify) = (Duration::ZERO, Duration::from_millis(1));
    for _ in 0..4 {
        adaptive.observe(Observation {
            asked: 0,
            proposed: 0,
            judged: 0,
            nodes: 0,
            kept: 0,
            draft,
            verify,
        });
    }
    assert_eq!(adaptive.depth(|_| usize::MAX), 0);
}

#[test]
fn a_tree_without_children_is_refused() {
    for widths in [&[][..], &[2, 0]] {
        let model = random(16, 1);
        let draft = DraftModel::new(model.clone(), &model).unwrap();
        let said = draft.with_widths(widths).err().unwrap().to_string();
        assert_eq!(
            said,
            format!("children of a draft's nodes is {widths:?}, expected at least 1 each")
        );
    }
}
