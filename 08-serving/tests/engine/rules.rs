//! Tokens that a request does not want: alone and in any company.

use crate::forms::InTurn;
use crate::world::{
    Answer, Asked, Dice, VOCAB, Wild, assert_as_alone, assert_empty, engine, model, options, run,
};
use naive_decode::{CpuExecutor, Executor, NaiveAttention, Pass, Sampler, Sampling, Span, Want};
use serving::engine::{EngineOptions, EngineRequest, FinishReason, MakeProposer, Rules, TokenSet};
use std::sync::Arc;

/// What a request has alone, where only some tokens may come after what was written: the naive loop.
fn alone_where(asked: &Asked, may_come: impl Fn(&[u32], u32) -> bool) -> Vec<u32> {
    let mut text = asked.prompt.clone();
    let begin = text.len();
    let sampler = Sampler::new(asked.sampling.clone()).unwrap();
    let mut sampler = sampler.with_prompt_length(begin);
    while text.len() < begin + asked.tokens {
        let attention = NaiveAttention::new(model().isa);
        let mut executor = CpuExecutor { model: model(), attention };
        let pass = Pass::one(Span::new(0, 0, &text, Want::Last));
        let mut scores = executor.execute(&pass).unwrap().row(0).to_vec();
        let out = (0..VOCAB).filter(|&token| !may_come(&text[begin..], token));
        out.for_each(|token| scores[token as usize] = f32::NEG_INFINITY);
        text.push(sampler.sample(&scores, &text).unwrap());
    }
    text.split_off(begin)
}

fn set(tokens: impl Iterator<Item = u32>) -> TokenSet {
    let mut set = TokenSet::none(VOCAB as usize);
    tokens.for_each(|token| set.insert(token));
    set
}

fn ruled(asked: &Asked, rules: Rules) -> EngineRequest {
    EngineRequest { rules: Some(Arc::new(rules)), ..asked.request() }
}

#[test]
fn rules_hold_with_guesses_and_forms_and_through_preemption() {
    let mut dice = Dice(21);
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for seed in 0..6 {
        let temperature = if seed < 2 { 0.0 } else { 1.0 };
        let sampling = Sampling { temperature, seed, ..Sampling::default() };
        let asked = Asked { sampling, ..Asked::new(dice.tokens(20), 70) };
        // What it would say without them: words of one, two and three tokens.
        let text = asked.alone();
        let forbidden: Vec<Vec<u32>> =
            vec![vec![text[2]], text[5..7].to_vec(), text[9..12].to_vec()];
        let words = forbidden.clone();
        let is_no_word = move |written: &[u32], token: u32| {
            let so_far = [written, &[token]].concat();
            !words.iter().any(|word| so_far.ends_with(word))
        };
        let is_allowed = |token: u32| !token.is_multiple_of(5);
        let allowed = Some(set((0..VOCAB).filter(|&token| is_allowed(token))));
        let (rules, constraint, alone) = match seed % 3 {
            0 => (Rules { forbidden, allowed: None }, None, alone_where(&asked, is_no_word)),
            1 => {
                let may_come = |_: &[u32], token| is_allowed(token);
                (Rules { allowed, forbidden: vec![] }, None, alone_where(&asked, may_come))
            }
            _ => {
                let may_come = |written: &[u32], token: u32| {
                    let is_in_turn = (token % 2 == 1) == written.len().is_multiple_of(2);
                    is_in_turn && is_allowed(token) && is_no_word(written, token)
                };
                let constraint: Option<Box<dyn serving::engine::Constraint>> =
                    Some(Box::new(InTurn::FROM_ODD));
                (Rules { allowed, forbidden }, constraint, alone_where(&asked, may_come))
            }
        };
        assert_ne!(alone, text, "rules that change nothing show nothing");
        expected.push(alone);
        requests.push(EngineRequest { constraint, logprobs: Some(1), ..ruled(&asked, rules) });
    }
    let proposer: MakeProposer = Arc::new(|| Box::new(Wild(Dice(1))));
    let mut engine = engine(EngineOptions { proposer, ..options(220) });
    let submit = |request| Answer::of(engine.submit(request).unwrap());
    let mut answers: Vec<Answer> = requests.into_iter().map(submit).collect();
    run(&mut engine, &mut answers);
    let mut unlike = 0;
    for (seed, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
        assert_eq!(&answer.tokens, expected, "request {seed}");
        // What is told of likelihoods is the model's own: the likeliest may be one that was struck out.
        unlike += answer.events.iter().filter(|event| event.top[0].0 != event.token).count();
        let told = |event: &serving::engine::TokenEvent| event.logprob.unwrap().is_finite();
        assert!(answer.events.iter().all(told));
    }
    assert!(unlike > 0);
    assert!(engine.state().counters.preemptions > 0);
    assert!(engine.state().counters.accepted_tokens > 0);
    assert_empty(&engine);
}

#[test]
fn a_word_that_the_prompt_begins_is_not_forbidden() {
    let asked = Asked::new(Dice(5).tokens(10), 1);
    let next = asked.alone()[0];
    let word = |tokens: &[u32]| Rules { forbidden: vec![tokens.to_vec()], ..Rules::default() };
    let mut engine = engine(options(1_000));
    let mut first = |rules| {
        let mut answers = [Answer::of(engine.submit(ruled(&asked, rules)).unwrap())];
        run(&mut engine, &mut answers);
        answers[0].tokens[0]
    };
    assert_eq!(first(word(&[*asked.prompt.last().unwrap(), next])), next);
    assert_ne!(first(word(&[next])), next);
}

#[test]
fn where_nothing_is_left_the_answer_ends_and_no_other_does() {
    let asked = Asked { end_tokens: vec![7], ..Asked::new(vec![1, 2, 3], 10) };
    let only = |tokens: &[u32]| Some(set(tokens.iter().copied()));
    let mut engine = engine(options(600));
    // After 4 and 5 there is nothing.
    let nothing =
        Rules { allowed: only(&[4, 5]), forbidden: vec![vec![4, 4], vec![5], vec![4, 5]] };
    // Only the end is, though it comes early.
    let end = Rules { allowed: only(&[4, 7]), forbidden: vec![vec![4]] };
    let end = EngineRequest { min_tokens: 5, ..ruled(&asked, end) };
    let requests = [asked.request(), ruled(&asked, nothing), end];
    let mut answers = requests.map(|request| Answer::of(engine.submit(request).unwrap()));
    run(&mut engine, &mut answers);
    assert_as_alone(&[asked], &answers[..1], "beside others with rules");
    assert_eq!(answers[1].tokens, [4]);
    let problem = answers[1].end.take().unwrap().unwrap_err();
    assert!(Rules::are_to_blame(&problem), "{problem}");
    assert!(problem.to_string().contains("forbidden word"), "{problem}");
    assert_eq!((&answers[2].tokens[..], answers[2].reason()), (&[7][..], FinishReason::Stop));
    assert_empty(&engine);
}

#[test]
fn tokens_that_the_vocabulary_lacks_cannot_be_forbidden() {
    let rules = Rules { forbidden: vec![vec![1], vec![2, VOCAB]], ..Rules::default() };
    let refused = engine(options(600)).submit(ruled(&Asked::new(vec![1], 3), rules));
    let problem = refused.err().unwrap().to_string();
    assert!(problem.contains("a token of a forbidden word is 61"), "{problem}");
}
