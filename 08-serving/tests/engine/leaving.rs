//! Cancellation at every point, deadlines, readers that stall, draining.

use crate::world::{
    Answer, Asked, CONTEXT, Dice, VOCAB, assert_as_alone, assert_empty, engine, model, options,
    run, serve,
};
use naive_decode::{Config, LoadOptions, Model, Sampling, dense, random_tensors};
use serving::engine::{Engine, EngineOptions, EngineRequest, FinishReason, Refused, Step};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn whoever_goes_away_at_any_point_gives_all_blocks_back() {
    let mut dice = Dice(21);
    let asked: Vec<Asked> = (0..4).map(|i| Asked::new(dice.tokens(30 + i), 40)).collect();
    // Too small for all: some wait, some are preempted.
    let small = EngineOptions { rows: 34, host_bytes: 1 << 16, ..options(160) };
    for after in 0..60 {
        for leaving in 0..4 {
            let mut engine = engine(small.clone());
            let submit = |asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
            let mut answers: Vec<Answer> = asked.iter().map(submit).collect();
            for _ in 0..after {
                engine.step().unwrap();
            }
            answers.iter_mut().for_each(Answer::read);
            let gone = answers.remove(leaving);
            let was_done = gone.end.is_some();
            drop(gone);
            engine.step().unwrap();
            engine.check_integrity().unwrap();
            let state = engine.state();
            assert!(state.requests.iter().all(|row| row.id != leaving as u64));
            run(&mut engine, &mut answers);
            let mut others = asked.clone();
            others.remove(leaving);
            if after % 20 == 7 {
                assert_as_alone(&others, &answers, "somebody has left");
            }
            assert_empty(&engine);
            let counters = engine.state().counters;
            assert_eq!(counters.cancelled, u64::from(!was_done), "{after}, {leaving}");
            assert_eq!(counters.full_length, 3 + u64::from(was_done));
        }
    }
}

#[test]
fn a_text_ends_when_its_time_is_up() {
    let mut engine = engine(EngineOptions { running: 1, ..options(600) });
    let mut dice = Dice(22);
    let mut request = |deadline| EngineRequest {
        deadline: Some(deadline),
        ..EngineRequest::new(dice.tokens(20), 200)
    };
    let later = Instant::now() + Duration::from_secs(2);
    let mut running = Answer::of(engine.submit(request(later)).unwrap());
    let mut waiting = Answer::of(engine.submit(request(Instant::now())).unwrap());
    for _ in 0..5 {
        engine.step().unwrap();
    }
    std::thread::sleep(later.saturating_duration_since(Instant::now()));
    assert!(matches!(engine.step().unwrap(), Step::Idle(None)));
    for answer in [&mut running, &mut waiting] {
        answer.read();
        assert_eq!(answer.reason(), FinishReason::Deadline);
    }
    assert!(running.tokens.len() >= 5 && running.tokens.len() < 200);
    assert_eq!((waiting.tokens.len(), waiting.cached), (0, None));
    assert_eq!(engine.state().counters.expired, 2);
    assert_empty(&engine);
}

#[test]
fn a_reader_that_stalls_holds_up_nobody_but_himself() {
    let mut dice = Dice(23);
    let asked: Vec<Asked> = (0..3).map(|_| Asked::new(dice.tokens(10), 120)).collect();
    let mut engine = engine(EngineOptions { events: 16, ..options(2_000) });
    let mut answers: Vec<Answer> =
        asked.iter().map(|a| Answer::of(engine.submit(a.request()).unwrap())).collect();
    // Nobody reads the first one's events.
    let mut others = answers.split_off(1);
    while others.iter().any(|answer| answer.end.is_none()) {
        assert!(matches!(engine.step().unwrap(), Step::Ran(_)));
        engine.check_integrity().unwrap();
        others.iter_mut().for_each(Answer::read);
    }
    let Step::Idle(Some(_)) = engine.step().unwrap() else { panic!("it waits for the reader") };
    assert_as_alone(&asked[1..], &others, "beside one that stalls");
    let state = engine.state();
    assert_eq!((state.stalled, state.requests.len()), (1, 1));
    assert!(state.requests[0].generated_tokens <= 16, "no more than its queue holds");
    // He reads again, and it goes on.
    while answers[0].end.is_none() {
        answers.iter_mut().for_each(Answer::read);
        engine.step().unwrap();
        engine.check_integrity().unwrap();
    }
    assert_as_alone(&asked[..1], &answers, "after a pause");
    assert_empty(&engine);
}

#[test]
fn a_stalled_request_gives_its_blocks_to_others_and_does_not_fill_the_queue() {
    let mut dice = Dice(24);
    let stalled = Asked::new(dice.tokens(60), 100);
    let other = Asked::new(dice.tokens(100), 60);
    let small = EngineOptions { events: 16, queue: 1, draft: 0, ..options(200) };
    let mut engine = engine(small);
    let mut first = vec![Answer::of(engine.submit(stalled.request()).unwrap())];
    while !matches!(engine.step().unwrap(), Step::Idle(_)) {}
    assert_eq!(engine.state().stalled, 1);
    let mut second = vec![Answer::of(engine.submit(other.request()).unwrap())];
    run(&mut engine, &mut second);
    assert_as_alone(&[other], &second, "in the place of one that stalls");
    assert_eq!(engine.state().counters.preemptions, 1);
    // There is room in the queue, although the stalled one waits for a place.
    drop(engine.submit(stalled.request()).unwrap());
    while first[0].end.is_none() {
        first.iter_mut().for_each(Answer::read);
        engine.step().unwrap();
        engine.check_integrity().unwrap();
    }
    assert_as_alone(&[stalled], &first, "stalled and preempted");
    assert_empty(&engine);
}

/// Blocks that only stalled requests have are there for others, though each of them shares them with the next.
#[test]
fn what_stalled_requests_share_goes_to_others_as_well() {
    let mut dice = Dice(28);
    let question = dice.tokens(120);
    let sampled = |seed| Sampling { temperature: 1.0, seed, ..Sampling::default() };
    let stalled =
        [1, 2].map(|seed| Asked { sampling: sampled(seed), ..Asked::new(question.clone(), 60) });
    let others = [Asked::new(dice.tokens(8), 60), Asked::new(dice.tokens(100), 60)];
    let mut engine = engine(EngineOptions { events: 16, draft: 0, ..options(200) });
    let submit =
        |engine: &Engine, asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
    let mut first = stalled.each_ref().map(|asked| submit(&engine, asked));
    while !matches!(engine.step().unwrap(), Step::Idle(_)) {}
    let state = engine.state();
    assert_eq!((state.stalled, state.blocks.free < 25), (2, true), "30 of 50 blocks are of both");
    // The first of them comes in beside both, so the second is not alone without them.
    let mut second = others.each_ref().map(|asked| submit(&engine, asked));
    let came_and_went = [0, 1].map(|_| match engine.step().unwrap() {
        Step::Ran(record) => (record.admitted.len(), record.preempted.len()),
        Step::Idle(_) => panic!("nobody comes in"),
    });
    assert_eq!(came_and_went, [(1, 0), (1, 2)]);
    run(&mut engine, &mut second);
    assert_as_alone(&others, &second, "in the place of two that stall");
    while first.iter().any(|answer| answer.end.is_none()) {
        run(&mut engine, &mut first);
    }
    assert_as_alone(&stalled, &first, "stalled and preempted");
    assert_empty(&engine);
}

#[test]
fn a_client_that_never_reads_fails_in_the_end() {
    let patience = Duration::from_millis(30);
    let mut engine = engine(EngineOptions { events: 8, patience, ..options(600) });
    let ticket = engine.submit(Asked::new(Dice(25).tokens(5), 100).request()).unwrap();
    while !matches!(engine.step().unwrap(), Step::Idle(_)) {}
    std::thread::sleep(2 * patience);
    assert!(matches!(engine.step().unwrap(), Step::Idle(None)));
    assert_empty(&engine);
    let mut answer = Answer::of(ticket);
    answer.read();
    let said = answer.end.unwrap().unwrap_err().to_string();
    assert!(said.contains("events left unread"), "{said}");
    assert_eq!(engine.state().counters.failed, 1);
}

#[test]
fn a_client_may_be_waited_for_without_end() {
    let mut engine = engine(EngineOptions { events: 8, patience: Duration::MAX, ..options(600) });
    let asked = Asked::new(Dice(25).tokens(5), 30);
    let mut answers = [Answer::of(engine.submit(asked.request()).unwrap())];
    while !matches!(engine.step().unwrap(), Step::Idle(None)) {}
    assert_eq!(engine.state().stalled, 1, "nothing is to happen before it reads");
    while answers[0].end.is_none() {
        run(&mut engine, &mut answers);
    }
    assert_as_alone(&[asked], &answers, "waited for");
}

#[test]
fn a_client_that_reads_slowly_is_waited_for_as_long_as_it_reads() {
    let patience = Duration::from_millis(900);
    let mut engine = engine(EngineOptions { events: 16, patience, draft: 0, ..options(600) });
    let asked = Asked::new(Dice(27).tokens(5), 20);
    let mut answer = Answer::of(engine.submit(asked.request()).unwrap());
    let mut pauses = 0;
    while answer.end.is_none() {
        while !matches!(engine.step().unwrap(), Step::Idle(_)) {}
        if engine.state().stalled > 0 {
            std::thread::sleep(patience / 3);
            pauses += 1;
        }
        assert!(answer.read_one(), "it neither goes on nor waits for its reader");
    }
    assert_as_alone(&[asked], &[answer], "read slowly");
    // It goes on when half of the queue is empty, which takes longer than anybody waits for one event.
    assert!(pauses > 3, "{pauses}");
}

#[test]
fn a_full_queue_refuses() {
    let mut engine = engine(EngineOptions { queue: 3, running: 1, ..options(600) });
    let asked = Asked::new(vec![1, 2, 3], 10);
    // The first one's place is free, and it need not wait for it.
    let tickets: Vec<_> = (0..4).map(|_| engine.submit(asked.request()).unwrap()).collect();
    let refused = engine.submit(asked.request()).err().unwrap();
    assert!(matches!(refused, Refused::Full { waiting: 4, asked: 1, limit: 4 }));
    // It comes in, and the others wait.
    engine.step().unwrap();
    let refused = engine.submit(asked.request()).err().unwrap();
    assert!(matches!(refused, Refused::Full { waiting: 3, asked: 1, limit: 3 }));
    // It is done, and one more may wait.
    let mut answers: Vec<Answer> = tickets.into_iter().map(Answer::of).collect();
    while answers[0].end.is_none() {
        engine.step().unwrap();
        answers.iter_mut().for_each(Answer::read);
    }
    answers.push(Answer::of(engine.submit(asked.request()).unwrap()));
    assert!(engine.submit(asked.request()).is_err());
    run(&mut engine, &mut answers);
    assert!(answers.iter().all(|answer| answer.tokens.len() == 10));
    assert_eq!(engine.state().counters.submitted, 5);
}

#[test]
fn whoever_comes_to_a_free_place_does_not_wait_in_the_queue() {
    let mut engine = engine(EngineOptions { queue: 1, running: 8, draft: 0, ..options(2_000) });
    // Long enough that nobody is done before all are there.
    let asked = Asked::new(vec![1, 2, 3], 40);
    let mut taken = 0;
    // Whether or not the engine looks in between.
    for looks in [false, true] {
        let mut answers = Vec::new();
        for _ in 0..9 {
            answers.push(Answer::of(engine.submit(asked.request()).unwrap()));
            if looks {
                engine.step().unwrap();
            }
            taken += 1;
        }
        assert!(matches!(engine.submit(asked.request()), Err(Refused::Full { .. })));
        run(&mut engine, &mut answers);
        assert!(answers.iter().all(|answer| answer.tokens.len() == 40));
    }
    assert_eq!(engine.state().counters.submitted, taken);
}

/// A token that the model cannot run.
const ROTTEN: u32 = VOCAB - 1;

/// A model of the same shape, in which what stands for that token is no number.
fn with_a_rotten_token() -> Arc<Model> {
    let config = Config { tied_head: false, ..model().config.clone() };
    let rotten = |name: &str, shape: &[usize]| {
        let mut numbers = random_tensors(7)(name, shape)?;
        if name.contains("embed_tokens") {
            numbers[ROTTEN as usize * shape[1]..].fill(f32::INFINITY);
        }
        Ok(numbers)
    };
    let options = LoadOptions { context: Some(CONTEXT), ..LoadOptions::default() };
    Arc::new(Model::assemble(config, options, &rotten, &dense(options.isa)).unwrap())
}

/// A pass fails as a whole, and of that nobody learns whose rows it was: each request then runs alone.
#[test]
fn whoever_the_model_cannot_run_fails_and_nobody_beside_it() {
    let model = with_a_rotten_token();
    let usual = EngineOptions::for_model(&model).unwrap();
    let mut dice = Dice(28);
    let mut sound = || -> Vec<u32> { (0..20).map(|_| dice.below(ROTTEN)).collect() };
    let prompts = [sound(), [sound(), vec![ROTTEN], sound()].concat(), sound()];
    // Nobody chooses the token that cannot be run.
    let sampling = Sampling { logit_bias: vec![(ROTTEN, -1e6)], ..Sampling::default() };
    let request = |prompt: &[u32]| EngineRequest {
        sampling: sampling.clone(),
        ..EngineRequest::new(prompt.to_vec(), 30)
    };
    let alone = |prompt: &[u32]| {
        let mut engine = Engine::new(model.clone(), usual.clone()).unwrap();
        let mut answers = [Answer::of(engine.submit(request(prompt)).unwrap())];
        run(&mut engine, &mut answers);
        answers[0].tokens.clone()
    };
    // All in one pass, and in passes of a few rows each; an embedding takes another way through the model.
    for (rows, embeds) in [(256, false), (9, false), (256, true)] {
        let options = EngineOptions { rows, running: 4, draft: 0, ..usual.clone() };
        let mut engine = Engine::new(model.clone(), options).unwrap();
        let submit = |request| Answer::of(engine.submit(request).unwrap());
        let mut answers: Vec<Answer> = prompts.iter().map(|p| submit(request(p))).collect();
        if embeds {
            answers.push(submit(EngineRequest::embedding(prompts[0].clone())));
        }
        run(&mut engine, &mut answers);
        let said = answers[1].end.take().unwrap().unwrap_err().to_string();
        assert!(said.starts_with("a key or value of layer 0 is NaN"), "{said}");
        for other in [0, 2] {
            assert_eq!(answers[other].tokens, alone(&prompts[other]), "{rows} rows");
            assert_eq!(answers[other].reason(), FinishReason::Length);
        }
        if embeds {
            assert!(answers[3].embedding.as_ref().unwrap().iter().all(|x| x.is_finite()));
        }
        assert_eq!(engine.state().counters.failed, 1);
        assert_empty(&engine);
    }
}

#[test]
fn a_reader_who_has_all_that_he_wants_has_not_gone_away() {
    let mut engine = engine(options(600));
    let asked = Asked::new(Dice(26).tokens(5), 100);
    let mut ticket = engine.submit(asked.request()).unwrap();
    while ticket.try_recv().is_err() {
        engine.step().unwrap();
    }
    ticket.done();
    while !matches!(engine.step().unwrap(), Step::Idle(_)) {}
    assert_empty(&engine);
    let counters = engine.state().counters;
    assert_eq!((counters.stopped, counters.cancelled, counters.full_length), (1, 0, 0));
}

#[test]
fn a_prompt_that_never_came_to_run_is_not_counted_and_one_that_did_is_once() {
    // A pool in which the second gives up its place.
    let mut engine = engine(EngineOptions { draft: 0, ..options(100) });
    let asked =
        [(27, 40), (28, 40)].map(|(seed, tokens)| Asked::new(Dice(seed).tokens(30), tokens));
    drop(engine.submit(asked[0].request()).unwrap());
    let answers = serve(&mut engine, &asked);
    let preemptions: usize = answers.iter().map(|answer| answer.usage().preemptions).sum();
    assert!(preemptions > 0, "nobody came in twice");
    assert_eq!(engine.state().counters.prompt_tokens, 60);
}
