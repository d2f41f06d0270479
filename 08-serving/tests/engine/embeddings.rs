//! Embeddings: the hidden state that the text has alone, bit for bit, in any company.

use crate::world::{
    Answer, Dice, assert_as_alone, assert_empty, crowd, engine, model, options, run,
};
use naive_decode::{NaiveAttention, Pass, Span, Want};
use serving::engine::{EngineOptions, EngineRequest, Event, FinishReason, Refused};

/// What the model gives its head after a text, alone and by the naive loop.
fn alone(text: &[u32]) -> Vec<u32> {
    let pass = Pass::one(Span::new(0, 0, text, Want::Last));
    let hidden = model().hidden(&pass, &mut NaiveAttention::new(model().isa)).unwrap();
    assert_eq!(hidden.dim(), (1, model().config.hidden_size));
    hidden.iter().map(|x| x.to_bits()).collect()
}

fn bits(answer: &Answer) -> Vec<u32> {
    answer.embedding.as_ref().unwrap().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn in_any_company_a_text_has_the_embedding_that_it_has_alone() {
    let mut dice = Dice(12);
    let shared = dice.tokens(37);
    let text = |i: usize| match i % 3 {
        0 => dice.tokens(1 + i * 7),
        1 => [&shared[..], &dice.tokens(i)].concat(),
        _ => shared.clone(),
    };
    let texts: Vec<Vec<u32>> = (0..12).map(text).collect();
    let others = crowd(21, 12);
    // Room for all, chunks, a pool that throws somebody out, one without prefixes.
    for (rows, pool, prefixes) in
        [(256, 3_000, true), (33, 3_000, true), (40, 260, true), (64, 400, false)]
    {
        let place = format!("{rows} rows, {pool} tokens, prefixes: {prefixes}");
        let mut engine = engine(EngineOptions { rows, prefixes, ..options(pool) });
        let mut answers = Vec::new();
        for (text, other) in texts.iter().zip(&others) {
            for request in [EngineRequest::embedding(text.clone()), other.request()] {
                answers.push(Answer::of(engine.submit(request).unwrap()));
            }
        }
        run(&mut engine, &mut answers);
        assert_empty(&engine);
        let (embeddings, texts_written): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.embedding.is_some());
        assert_as_alone(&others, &texts_written, &place);
        for (text, answer) in texts.iter().zip(&embeddings) {
            assert_eq!(bits(answer), alone(text), "{} tokens, {place}", text.len());
            assert!(answer.tokens.is_empty() && answer.reason() == FinishReason::Length);
            assert_eq!(answer.usage().generated_tokens, 0);
        }
        // What was read for one is known to the next, but for the last token: unless its place was needed.
        let request = EngineRequest::embedding(texts[9].clone());
        let mut again = [Answer::of(engine.submit(request).unwrap())];
        run(&mut engine, &mut again);
        assert_eq!(bits(&again[0]), alone(&texts[9]));
        if pool == 3_000 {
            assert_eq!(again[0].cached, Some((texts[9].len() - 1) / 4 * 4), "{place}");
        }
    }
}

#[test]
fn an_embedding_is_asked_for_alone() {
    let engine = engine(options(400));
    for request in [
        EngineRequest { max_tokens: 3, ..EngineRequest::embedding(vec![1, 2]) },
        EngineRequest { prompt_logprobs: Some(0), ..EngineRequest::embedding(vec![1, 2]) },
    ] {
        let refused = engine.submit(request).err().unwrap();
        assert!(matches!(refused, Refused::Invalid(_)), "{refused}");
        assert!(refused.to_string().contains("an embedding is asked for together with"));
    }
    assert!(matches!(
        engine.submit(EngineRequest::embedding(vec![])).err().unwrap(),
        Refused::Invalid(_)
    ));
}

#[test]
fn whoever_goes_away_before_his_embedding_leaves_nothing() {
    let mut dice = Dice(3);
    let mut engine = engine(EngineOptions { rows: 33, ..options(600) });
    let stays = dice.tokens(150);
    let mut answers = [Answer::of(engine.submit(EngineRequest::embedding(stays.clone())).unwrap())];
    let mut gone = engine.submit(EngineRequest::embedding(dice.tokens(150))).unwrap();
    engine.step().unwrap();
    engine.step().unwrap();
    assert!(!matches!(gone.try_recv(), Ok(Event::Embedding(_))));
    drop(gone);
    run(&mut engine, &mut answers);
    assert_eq!(bits(&answers[0]), alone(&stays));
    assert_empty(&engine);
    assert_eq!(engine.state().counters.cancelled, 1);
}
