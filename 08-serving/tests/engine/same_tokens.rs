//! Alone and in any batch, bit for bit.

use crate::world::{
    Answer, Asked, Dice, VOCAB, Wild, assert_as_alone, assert_empty, crowd, engine, options, run,
    serve,
};
use flash_attention::tile_attention::KvType;
use naive_decode::{Result, Sampler, Sampling};
use prefix_radix::Salt;
use proptest::prelude::*;
use serving::engine::policy::{Continuous, Policy, StaticBatches};
use serving::engine::{EngineOptions, EngineRequest, Kind, Step};
use speculative::{DraftTree, FromText, Proposer};
use std::sync::Arc;

const ROOMY: usize = 6_000;

#[test]
fn each_request_has_the_tokens_that_it_has_alone() {
    let asked = crowd(1, 24);
    for running in [1, 2, 7, 24] {
        for rows in [24, 256] {
            let mut engine = engine(EngineOptions { running, rows, ..options(ROOMY) });
            let answers = serve(&mut engine, &asked);
            assert_as_alone(&asked, &answers, &format!("{running} at once, {rows} rows"));
            assert_empty(&engine);
        }
    }
}

/// Naive and cached, alone and in any batch: the fast mode of attention has one order of sums, too.
#[test]
fn the_fast_mode_of_attention_is_itself_in_any_company() {
    let greedy =
        |asked: Asked| Asked { sampling: Sampling::default(), end_tokens: vec![], ..asked };
    let asked: Vec<Asked> = crowd(4, 16).into_iter().map(greedy).collect();
    let expected: Vec<_> = asked.iter().map(Asked::alone_in_fast_mode).collect();
    for (running, rows) in [(1, 24), (7, 24), (16, 256)] {
        let kept = KvType::Bf16Fast;
        let mut engine = engine(EngineOptions { running, rows, kept, ..options(ROOMY) });
        for (answer, expected) in serve(&mut engine, &asked).iter().zip(&expected) {
            assert_eq!(&answer.tokens, expected, "{running} at once, {rows} rows");
        }
        assert_empty(&engine);
    }
}

#[test]
fn prompts_may_be_cut_anywhere() {
    let asked = crowd(2, 6);
    for rows in [6, 7, 8, 9, 10, 11, 13, 16, 23, 40, 64, 100] {
        let mut engine = engine(EngineOptions { running: 6, rows, draft: 0, ..options(ROOMY) });
        let answers = serve(&mut engine, &asked);
        assert_as_alone(&asked, &answers, &format!("{rows} rows"));
    }
}

#[test]
fn guesses_change_no_token_however_wild() {
    let asked = crowd(3, 16);
    for (draft, block) in [(0, 4), (1, 4), (3, 1), (8, 4), (8, 16)] {
        let wild: serving::engine::MakeProposer = Arc::new(|| Box::new(Wild(Dice(5))));
        let proposers = [None, Some(wild)];
        for proposer in proposers.into_iter().flatten().chain([options(1).proposer]) {
            let options = EngineOptions { draft, block, proposer, ..options(ROOMY) };
            let mut engine = engine(options);
            let answers = serve(&mut engine, &asked);
            assert_as_alone(&asked, &answers, &format!("{draft} guesses, blocks of {block}"));
            let drafted: usize = answers.iter().map(|a| a.usage().drafted_tokens).sum();
            let accepted: usize = answers.iter().map(|a| a.usage().accepted_tokens).sum();
            assert_eq!(drafted > 0, draft > 0, "are there guesses?");
            assert!(accepted <= drafted);
            assert_empty(&engine);
        }
    }
}

/// Says the text's last token again, and then what no model of this vocabulary knows.
struct Strange;

impl FromText for Strange {}

impl Proposer for Strange {
    fn name(&self) -> &'static str {
        "strange guesses"
    }

    fn propose(&mut self, context: &[u32], _: usize, _: &mut Sampler) -> Result<DraftTree> {
        let mut tree = DraftTree::chain(&[VOCAB, 3]);
        tree.add_chain(None, &[*context.last().unwrap(), u32::MAX]);
        Ok(tree)
    }
}

#[test]
fn guesses_that_the_model_does_not_know_are_left_out() {
    let asked = crowd(3, 8);
    let proposer: serving::engine::MakeProposer = Arc::new(|| Box::new(Strange));
    let mut engine = engine(EngineOptions { proposer, ..options(ROOMY) });
    let answers = serve(&mut engine, &asked);
    assert_as_alone(&asked, &answers, "strange guesses");
    assert!(answers.iter().any(|answer| answer.usage().drafted_tokens > 0));
    assert_empty(&engine);
}

/// Knows what comes next, and says it after two wrong tokens.
struct RightInTheEnd(Vec<u32>);

impl FromText for RightInTheEnd {}

impl Proposer for RightInTheEnd {
    fn name(&self) -> &'static str {
        "right in the end"
    }

    fn propose(&mut self, context: &[u32], _: usize, _: &mut Sampler) -> Result<DraftTree> {
        let right = self.0[context.len()];
        let mut tree = DraftTree::chain(&[(right + 1) % VOCAB; 2]);
        tree.add_chain(None, &[right]);
        Ok(tree)
    }
}

#[test]
fn the_likeliest_guesses_of_a_tree_are_those_that_run() {
    let asked = Asked::new(Dice(15).tokens(10), 60);
    let text = [asked.prompt.clone(), asked.alone()].concat();
    let proposer: serving::engine::MakeProposer =
        Arc::new(move || Box::new(RightInTheEnd(text.clone())));
    // Two guesses have room in a pass: the first of each branch, not the two of the first.
    let (running, rows) = (1, 3);
    let mut engine = engine(EngineOptions { running, rows, proposer, ..options(ROOMY) });
    let asked = [asked];
    let answers = serve(&mut engine, &asked);
    assert_as_alone(&asked, &answers, "right in the end");
    assert!(answers[0].usage().accepted_tokens > 0);
}

#[test]
fn penalties_count_guessed_tokens_only_once_they_are_text() {
    let sampling = |seed| Sampling {
        temperature: 0.9,
        repetition_penalty: 1.2,
        presence_penalty: 0.7,
        frequency_penalty: 0.5,
        seed,
        ..Sampling::default()
    };
    let mut dice = Dice(11);
    let asked: Vec<Asked> = (0..8)
        .map(|seed| Asked { sampling: sampling(seed), ..Asked::new(dice.tokens(12), 80) })
        .collect();
    let proposer: serving::engine::MakeProposer = Arc::new(|| Box::new(Wild(Dice(6))));
    let mut engine = engine(EngineOptions { proposer, ..options(ROOMY) });
    let answers = serve(&mut engine, &asked);
    assert_as_alone(&asked, &answers, "penalties and guesses");
    assert!(answers.iter().any(|answer| answer.usage().accepted_tokens > 0));
}

#[test]
fn a_known_prefix_changes_no_token_and_is_not_read_again() {
    let mut dice = Dice(4);
    let beginning = dice.tokens(64);
    let ask = |more: Vec<u32>| Asked::new([beginning.clone(), more].concat(), 20);
    let asked: Vec<Asked> = (0..6).map(|i| ask(dice.tokens(i))).collect();
    let mut engine = engine(options(ROOMY));
    assert_as_alone(&asked[..1], &serve(&mut engine, &asked[..1]), "the first");
    let rows = engine.state().counters.rows;
    let answers = serve(&mut engine, &asked);
    assert_as_alone(&asked, &answers, "the others");
    for (asked, answer) in asked.iter().zip(&answers) {
        // Whole blocks, and never the last token.
        assert_eq!(answer.cached, Some((asked.prompt.len() - 1).min(64) / 4 * 4));
    }
    let read = engine.state().counters.rows - rows;
    assert!(read < 6 * (20 + 10) + 60, "{read} rows");
}

#[test]
fn what_one_salt_knows_another_does_not_find() {
    let asked = Asked::new(Dice(14).tokens(40), 5);
    let mut engine = engine(options(ROOMY));
    let mut cached = |secret: &[u8]| {
        let salt = Salt::of(secret);
        let request = EngineRequest { salt, ..asked.request() };
        let mut answers = [Answer::of(engine.submit(request).unwrap())];
        run(&mut engine, &mut answers);
        assert_eq!(answers[0].tokens, asked.alone());
        answers[0].cached.unwrap()
    };
    assert_eq!([&b"ada"[..], b"ada", b"bob", b"ada", b"bob"].map(&mut cached), [0, 36, 0, 36, 36]);
}

#[test]
fn requests_that_begin_alike_read_their_beginning_once() {
    let mut dice = Dice(8);
    let prompt = dice.tokens(100);
    let sampling = |seed| Sampling { temperature: 1.0, seed, ..Sampling::default() };
    let asked: Vec<Asked> = (0..5)
        .map(|seed| Asked { sampling: sampling(seed), ..Asked::new(prompt.clone(), 10) })
        .collect();
    for rows in [32, 256] {
        let mut engine = engine(EngineOptions { rows, ..options(ROOMY) });
        let answers = serve(&mut engine, &asked);
        assert_as_alone(&asked, &answers, "five answers to one question");
        let cached: Vec<_> = answers.iter().map(|answer| answer.cached.unwrap()).collect();
        assert_eq!(cached[0], 0);
        assert!(cached[1..].iter().all(|&cached| cached == 96), "{cached:?}");
    }
}

/// However many they are: none reads what another is reading, or is about to.
#[test]
fn any_number_of_answers_read_the_question_once() {
    let asked = Asked::new(Dice(9).tokens(200), 10);
    // In rows of one pass, or of several.
    for (n, rows) in [(1, 256), (8, 256), (32, 256), (32, 64), (32, 2048), (40, 2048)] {
        let mut engine = engine(EngineOptions { rows, draft: 0, ..options(ROOMY) });
        let asked = vec![asked.clone(); n];
        let answers = serve(&mut engine, &asked);
        assert_as_alone(&asked, &answers, &format!("{n} answers to one question"));
        // All but the first find 49 blocks of four. An answer's last token is not run.
        let expected = 200 + (n - 1) * 4 + n * 9;
        assert_eq!(engine.state().counters.rows as usize, expected, "{n} answers, {rows} rows");
    }
}

#[test]
fn static_batches_have_the_same_tokens() {
    let asked = crowd(5, 12);
    let policy = Arc::new(StaticBatches);
    let mut engine = engine(EngineOptions { policy, running: 4, ..options(ROOMY) });
    let answers = serve(&mut engine, &asked);
    assert_as_alone(&asked, &answers, "static batches");
}

#[test]
fn nobody_comes_into_a_static_batch_before_it_is_done() {
    let asked: Vec<Asked> =
        [3, 30, 5, 7].map(|tokens| Asked::new(Dice(tokens as u32).tokens(9), tokens)).into();
    let policy = Arc::new(StaticBatches);
    let mut engine = engine(EngineOptions { policy, running: 2, draft: 0, ..options(ROOMY) });
    let tickets: Vec<_> = asked.iter().map(|a| engine.submit(a.request()).unwrap()).collect();
    let mut inside: Vec<Vec<u64>> = Vec::new();
    while let Step::Ran(record) = engine.step().unwrap() {
        inside.push(record.spans.iter().map(|span| span.id).collect());
    }
    // The second writes 27 tokens alone, although two wait.
    assert_eq!(inside.iter().filter(|ids| ids[..] == [1]).count(), 27);
    assert!(inside.iter().all(|ids| !(ids.contains(&1) && ids.contains(&2))));
    drop(tickets);
}

#[test]
fn static_batches_take_half_as_many_passes_again() {
    let asked = crowd(10, 32);
    let passes = |policy: Arc<dyn Policy>| {
        let mut engine =
            engine(EngineOptions { policy, running: 4, rows: 64, draft: 0, ..options(ROOMY) });
        let submit = |asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
        let mut answers: Vec<Answer> = asked.iter().map(submit).collect();
        run(&mut engine, &mut answers).len()
    };
    let (in_turn, together) = (passes(Arc::new(StaticBatches)), passes(Arc::new(Continuous)));
    assert!(2 * in_turn > 3 * together, "{in_turn} and {together}");
}

#[test]
fn a_prompt_that_is_read_makes_no_text_wait() {
    let mut dice = Dice(9);
    let mut engine = engine(EngineOptions { running: 8, rows: 16, draft: 0, ..options(ROOMY) });
    let first = engine.submit(Asked::new(dice.tokens(5), 60).request()).unwrap();
    engine.step().unwrap();
    let second = engine.submit(Asked::new(dice.tokens(150), 5).request()).unwrap();
    let mut mixed = 0;
    while let Step::Ran(record) = engine.step().unwrap() {
        let has = |kind| record.spans.iter().any(|span| span.kind == kind);
        if has(Kind::Prefill) {
            assert!(has(Kind::Decode), "the text has its row beside the prompt's");
            assert!(record.spans.iter().map(|span| span.rows).sum::<usize>() <= 16);
            mixed += 1;
        }
    }
    assert_eq!(mixed, 10, "150 rows in chunks of 15");
    drop((first, second));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any crowd, any options, arrivals at any time.
    #[test]
    fn any_crowd_in_any_engine(
        seed in any::<u32>(),
        count in 1usize..12,
        running in 1usize..9,
        more_rows in 0usize..40,
        draft in 0usize..6,
        pool in 260usize..1500,
        block in prop::sample::select(vec![1usize, 4, 16]),
        prefixes in any::<bool>(),
        gaps in prop::collection::vec(0usize..6, 12),
    ) {
        let asked = crowd(seed, count);
        let mut engine = engine(EngineOptions {
            running, rows: running + more_rows, draft, block, prefixes, ..options(pool)
        });
        let mut answers = Vec::new();
        for (asked, gap) in asked.iter().zip(gaps) {
            answers.push(Answer::of(engine.submit(asked.request()).unwrap()));
            for _ in 0..gap {
                engine.step().unwrap();
                engine.check_integrity().unwrap();
                answers.iter_mut().for_each(Answer::read);
            }
        }
        run(&mut engine, &mut answers);
        assert_as_alone(&asked, &answers, "in a random engine");
        assert_empty(&engine);
    }
}
