//! What is refused, ends, log-probabilities.

use crate::world::{Answer, Asked, CONTEXT, Dice, VOCAB, Wild, engine, model, options, run};
use naive_decode::{CpuExecutor, Executor, NaiveAttention, Pass, Sampling, Span, Want};
use serving::engine::{EngineOptions, EngineRequest, FinishReason, KvFile, Refused};
use std::sync::Arc;

#[test]
fn what_could_never_be_answered_is_refused() {
    let engine = engine(options(120));
    let request = |prompt: Vec<u32>, tokens| EngineRequest::new(prompt, tokens);
    let said = |request| engine.submit(request).err().unwrap().to_string();
    assert_eq!(said(request(vec![], 3)), "prompt is empty, expected at least one token");
    assert!(said(request(vec![1, VOCAB], 3)).contains("a token of the prompt is 61"));
    let bias = Sampling { logit_bias: vec![(99, 1.0)], ..Sampling::default() };
    assert!(said(EngineRequest { sampling: bias, ..request(vec![1], 3) }).contains("logit_bias"));
    let hot = Sampling { temperature: f32::NAN, ..Sampling::default() };
    assert!(said(EngineRequest { sampling: hot, ..request(vec![1], 3) }).contains("temperature"));
    let ends = EngineRequest { end_tokens: vec![61], ..request(vec![1], 3) };
    assert!(said(ends).contains("an end token is 61"));
    // The pool holds 120 tokens, and the last one generated is never run.
    assert!(engine.submit(request(vec![1; 100], 21)).is_ok());
    let long = engine.submit(request(vec![1; 100], 22)).err().unwrap();
    assert!(matches!(long, Refused::TooLong { prompt: 100, max_tokens: 22, limit: 120 }));
    assert!(engine.submit(request(vec![1], usize::MAX)).is_err());
    assert_eq!(engine.limits().context, 120);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let refused = |options| serving::engine::Engine::new(model(), options).err().unwrap();
    let said = |options: EngineOptions| refused(options).to_string();
    assert!(said(EngineOptions { running: 0, ..options(100) }).contains("at least 1"));
    assert!(said(EngineOptions { rows: 3, running: 4, ..options(100) }).contains("at least 4"));
    assert!(said(EngineOptions { events: 2, ..options(100) }).contains("unread"));
    assert!(said(EngineOptions { pool_bytes: 10, ..options(100) }).contains("bytes of the pool"));
    assert!(said(EngineOptions { block: 3, ..options(100) }).contains("power of two"));
    let folder = tempfile::tempdir().unwrap();
    let kv_file = KvFile { directory: folder.path().into(), bytes: 1 << 20, model: [0; 32] };
    let said = said(EngineOptions { prefixes: false, kv_file: Some(kv_file), ..options(100) });
    assert!(said.contains("prefixes, which are not to be kept"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was begun");
}

#[test]
fn the_whole_context_can_be_used() {
    let proposer: serving::engine::MakeProposer = Arc::new(|| Box::new(Wild(Dice(2))));
    let mut engine = engine(EngineOptions { proposer, ..options(1_000) });
    for (prompt, tokens) in [(CONTEXT, 1), (1, CONTEXT), (CONTEXT - 1, 2)] {
        let asked = Asked::new(Dice(3).tokens(prompt), tokens);
        let mut answers = [Answer::of(engine.submit(asked.request()).unwrap())];
        run(&mut engine, &mut answers);
        assert_eq!(answers[0].tokens, asked.alone(), "{prompt} and {tokens}");
    }
}

#[test]
fn no_tokens_asked_for_is_an_answer() {
    let mut engine = engine(options(400));
    let nothing = engine.submit(EngineRequest::new(vec![1, 2], 0)).unwrap();
    let mut answers = [Answer::of(nothing)];
    assert!(run(&mut engine, &mut answers).is_empty(), "no pass is run for it");
    assert_eq!((answers[0].reason(), answers[0].tokens.len()), (FinishReason::Length, 0));
}

#[test]
fn an_end_token_ends_the_text_but_not_too_early() {
    let mut asked = Asked::new(Dice(5).tokens(10), 50);
    let text = asked.alone();
    asked.end_tokens = vec![text[20]];
    let first = text.iter().position(|token| *token == text[20]).unwrap();
    let mut engine = engine(options(1_000));
    let mut answers = [Answer::of(engine.submit(asked.request()).unwrap())];
    run(&mut engine, &mut answers);
    assert_eq!(
        (&answers[0].tokens[..], answers[0].reason()),
        (&text[..=first], FinishReason::Stop)
    );
    let request = EngineRequest { min_tokens: 40, ..asked.request() };
    let mut answers = [Answer::of(engine.submit(request).unwrap())];
    run(&mut engine, &mut answers);
    assert!(answers[0].tokens.len() > 40);
    assert!(!answers[0].tokens[..40].contains(&text[20]));
    assert_eq!(answers[0].tokens[..first], text[..first]);
}

/// ln of the softmax of every row of a text's logits, by the naive loop and in f64.
fn log_probabilities(text: &[u32]) -> Vec<Vec<f64>> {
    let model = model();
    let attention = NaiveAttention::new(model.isa);
    let pass = Pass::one(Span::new(0, 0, text, Want::All));
    let logits = CpuExecutor { model, attention }.execute(&pass).unwrap();
    let row = |row: ndarray::ArrayView1<f32>| {
        let total: f64 = row.iter().map(|&x| libm::exp(f64::from(x))).sum();
        row.iter().map(|&x| f64::from(x) - libm::log(total)).collect()
    };
    logits.outer_iter().map(row).collect()
}

#[test]
fn log_probabilities_are_the_models_own_whatever_was_sampled() {
    let mut dice = Dice(16);
    let prompt = dice.tokens(30);
    let sampling = Sampling { temperature: 1.7, top_k: Some(30), seed: 3, ..Sampling::default() };
    // Somebody has asked before: the prompt is known, and is read all the same.
    for (rows, pool) in [(256, 2_000), (33, 2_000), (33, 132)] {
        let mut engine = engine(EngineOptions { rows, ..options(pool) });
        let mut answers = Vec::new();
        for _ in 0..2 {
            let request = EngineRequest {
                sampling: sampling.clone(),
                logprobs: Some(3),
                prompt_logprobs: Some(2),
                ..EngineRequest::new(prompt.clone(), 40)
            };
            let other = EngineRequest::new(dice.tokens(60), 60);
            answers.push(Answer::of(engine.submit(request).unwrap()));
            answers.push(Answer::of(engine.submit(other).unwrap()));
        }
        run(&mut engine, &mut answers);
        for answer in [&answers[0], &answers[2]] {
            let text = [&prompt[..], &answer.tokens].concat();
            let expected = log_probabilities(&text);
            let scored = answer.prompt.as_ref().unwrap();
            assert_eq!((scored.len(), answer.cached), (prompt.len() - 1, Some(0)));
            for (i, event) in scored.iter().chain(&answer.events).enumerate() {
                assert_eq!(event.token, text[i + 1]);
                let near = |found: f32, token: u32| {
                    let expected = expected[i][token as usize];
                    assert!((f64::from(found) - expected).abs() < 1e-5, "{found} {expected}");
                };
                near(event.logprob.unwrap(), event.token);
                let most = if i < scored.len() { 2 } else { 3 };
                assert_eq!(event.top.len(), most);
                event.top.iter().for_each(|&(token, logprob)| near(logprob, token));
                let likelier =
                    |than: f32| expected[i].iter().filter(|&&p| p > f64::from(than) + 1e-5).count();
                assert!(likelier(event.top[most - 1].1) < most);
                assert_eq!(event.rank, Some(likelier(event.logprob.unwrap()) + 1));
            }
        }
    }
}

#[test]
fn a_prompt_that_is_read_twice_is_scored_once() {
    let prompt = Dice(18).tokens(60);
    let scores = |pushed_out: bool| {
        let mut engine = engine(EngineOptions { rows: 8, running: 1, ..options(400) });
        let request =
            EngineRequest { prompt_logprobs: Some(0), ..EngineRequest::new(prompt.clone(), 3) };
        let mut answers = vec![Answer::of(engine.submit(request).unwrap())];
        for _ in 0..4 {
            engine.step().unwrap();
        }
        if pushed_out {
            let urgent = EngineRequest { priority: 1, ..EngineRequest::new(vec![1, 2, 3], 3) };
            answers.push(Answer::of(engine.submit(urgent).unwrap()));
        }
        run(&mut engine, &mut answers);
        assert_eq!(answers[0].usage().preemptions, usize::from(pushed_out));
        answers.swap_remove(0).prompt.unwrap()
    };
    let whole = scores(false);
    assert_eq!(whole.len(), 59);
    assert_eq!(scores(true), whole);
}

#[test]
fn a_prompt_can_be_scored_without_writing_anything() {
    let prompt = Dice(17).tokens(9);
    let mut engine = engine(options(400));
    let request =
        EngineRequest { prompt_logprobs: Some(0), ..EngineRequest::new(prompt.clone(), 0) };
    let mut answers = [Answer::of(engine.submit(request).unwrap())];
    run(&mut engine, &mut answers);
    let scored = answers[0].prompt.as_ref().unwrap();
    assert_eq!((scored.len(), answers[0].tokens.len()), (8, 0));
    assert!(scored.iter().all(|event| event.logprob.unwrap() < 0.0 && event.top.is_empty()));
    assert_eq!(answers[0].reason(), FinishReason::Length);
}
