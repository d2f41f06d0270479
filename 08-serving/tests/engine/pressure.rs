//! A pool that is too small: preemption, parking, nothing lost.

use crate::world::{
    Answer, Asked, CONTEXT, Dice, assert_as_alone, assert_empty, crowd, engine, model, options,
    run, serve,
};
use naive_decode::{CpuExecutor, Sampling};
use paged_cache::{Behind, Layout, PagedCache, Room};
use serving::engine::{Engine, EngineOptions, EngineRequest, Step};

/// Texts that grow to a few hundred tokens each.
fn long(count: usize) -> Vec<Asked> {
    let mut dice = Dice(77);
    let mut ask = |i: u64| {
        let sampling = Sampling { temperature: 1.0, seed: i, ..Sampling::default() };
        let sampling = if i.is_multiple_of(2) { sampling } else { Sampling::default() };
        let length = 10 + dice.below(30) as usize;
        Asked { sampling, ..Asked::new(dice.tokens(length), 150) }
    };
    (0..count as u64).map(&mut ask).collect()
}

/// Tokens that all of them together come to.
fn demand(asked: &[Asked]) -> usize {
    asked.iter().map(|asked| asked.prompt.len() + asked.tokens).sum()
}

#[test]
fn a_quarter_of_what_is_needed_is_enough() {
    let asked = long(16);
    for (host_bytes, prefixes) in [(0, true), (0, false), (1 << 24, true), (1 << 14, true)] {
        let options = options(demand(&asked) / 4);
        let mut engine = engine(EngineOptions { host_bytes, prefixes, ..options });
        let answers = serve(&mut engine, &asked);
        let place = format!("{host_bytes} bytes of the host, prefixes: {prefixes}");
        assert_as_alone(&asked, &answers, &place);
        assert_empty(&engine);
        let counters = engine.state().counters;
        assert!(counters.preemptions > 0, "{place}");
        // Each of them makes room for at least a block, and blocks are asked for once a token at most.
        let most = answers.iter().map(|answer| answer.usage().preemptions).max().unwrap();
        assert!(counters.preemptions <= 4 * 16 && most <= 16, "{counters:?}, {most}");
        assert_eq!(counters.parked > 0, host_bytes > 0, "{place}");
        let whole: usize = answers.iter().map(|answer| answer.usage().preemptions).sum();
        assert_eq!(counters.preemptions as usize, whole);
    }
}

/// An engine over a pool that is there: so many blocks, of so many tokens each.
fn over_a_pool(count: usize, block: usize, options: EngineOptions) -> Engine {
    let (model, behind) = (model(), Behind::Kept);
    let kept = model.kv_element.into();
    let bytes = count * Layout::new(&model, block, kept, behind).unwrap().block_bytes();
    let room = Room { bytes, block, capacity: CONTEXT, kept, behind, rollback: 0 };
    let attention = PagedCache::new(&model, room).unwrap();
    Engine::over(Box::new(CpuExecutor { model, attention }), options).unwrap()
}

#[test]
fn a_pool_that_is_there_says_itself_how_large_its_blocks_are() {
    let asked = long(6);
    let tokens = demand(&asked) / 3;
    // Options that take the blocks for larger, and for smaller.
    for (block, believed) in [(8, 16), (16, 4)] {
        let options = EngineOptions { block: believed, ..options(tokens) };
        let mut engine = over_a_pool(tokens / block, block, options);
        let answers = serve(&mut engine, &asked);
        assert_as_alone(&asked, &answers, &format!("blocks of {block}, said to be of {believed}"));
        assert_empty(&engine);
        assert_eq!(engine.state().blocks.tokens, block);
        assert!(engine.state().counters.preemptions > 0, "there was room for all");
    }
}

#[test]
fn a_pool_for_one_serves_all_one_after_the_other() {
    let asked = long(5);
    let longest = asked.iter().map(|a| a.prompt.len() + a.tokens - 1).max().unwrap();
    let mut engine = engine(options(longest.next_multiple_of(4)));
    let answers = serve(&mut engine, &asked);
    assert_as_alone(&asked, &answers, "a pool for one");
    assert_empty(&engine);
}

#[test]
fn what_is_known_makes_room_for_what_is_needed() {
    // Many texts after each other: together far more than the pool holds.
    let mut engine = engine(options(400));
    for seed in 0..12 {
        let asked = crowd(seed, 3);
        let answers = serve(&mut engine, &asked);
        assert_as_alone(&asked, &answers, "one crowd after the other");
        assert_empty(&engine);
    }
}

/// Whoever wants to know how likely its prompt was reads all of it, known or not. What was known must not stay beside that
/// in a pool that has room for one of the two.
#[test]
fn one_alone_fits_beside_what_it_has_read_again() {
    let mut dice = Dice(41);
    let shared = dice.tokens(16);
    let mut engine = engine(EngineOptions { draft: 0, ..options(64) });
    serve(&mut engine, &[Asked::new(shared.clone(), 1)]);
    let asked = Asked::new([shared, dice.tokens(8)].concat(), 41);
    let request = EngineRequest { prompt_logprobs: Some(0), ..asked.request() };
    let mut answers = [Answer::of(engine.submit(request).unwrap())];
    run(&mut engine, &mut answers);
    assert_as_alone(&[asked], &answers, "one alone");
    assert_empty(&engine);
}

#[test]
fn whoever_matters_more_pushes_others_out() {
    let mut dice = Dice(31);
    let first: Vec<Asked> = (0..4).map(|_| Asked::new(dice.tokens(40), 60)).collect();
    let urgent = Asked { priority: 5, ..Asked::new(dice.tokens(80), 20) };
    let mut engine = engine(EngineOptions { draft: 0, ..options(400) });
    let submit = |asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
    let mut answers: Vec<Answer> = first.iter().map(submit).collect();
    for _ in 0..40 {
        engine.step().unwrap();
    }
    answers.push(Answer::of(engine.submit(urgent.request()).unwrap()));
    let mut passes = 0;
    while answers[4].end.is_none() {
        engine.step().unwrap();
        engine.check_integrity().unwrap();
        answers.iter_mut().for_each(Answer::read);
        passes += 1;
    }
    assert!(passes <= 25, "it came in at once: {passes} passes");
    run(&mut engine, &mut answers);
    let all = [first, vec![urgent]].concat();
    assert_as_alone(&all, &answers, "one that matters more");
    assert_eq!(answers[4].usage().preemptions, 0);
    assert!(answers[..4].iter().any(|answer| answer.usage().preemptions > 0));
}

/// What an urgent one shares with the one that would have to go for it stays taken: there is no room, and nobody goes.
#[test]
fn nobody_goes_for_blocks_that_are_wanted_themselves() {
    let mut dice = Dice(33);
    let shared = dice.tokens(100);
    let stays = Asked { priority: 5, ..Asked::new(dice.tokens(60), 24) };
    let begins_alike = Asked::new(shared.clone(), 16);
    let urgent = Asked { priority: 1, ..Asked::new([shared, dice.tokens(60)].concat(), 4) };
    // 21 blocks of the first and 29 of the second. The third needs 40, of which 25 are the second's.
    let mut engine = engine(EngineOptions { draft: 0, ..options(200) });
    let submit =
        |engine: &Engine, asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
    let mut answers = vec![submit(&engine, &stays), submit(&engine, &begins_alike)];
    (0..3).for_each(|_| drop(engine.step().unwrap()));
    answers.push(submit(&engine, &urgent));
    run(&mut engine, &mut answers);
    assert_as_alone(&[stays, begins_alike, urgent], &answers, "one that begins alike");
    assert_eq!(engine.state().counters.preemptions, 0);
}

/// Two whose levels are both beyond what counts are equals: the earlier one, which had lost its place while nobody read
/// what it wrote, does not take that of the later one.
#[test]
fn levels_that_do_not_count_push_nobody_out() {
    let mut dice = Dice(32);
    let beyond = Asked { priority: 1000, ..Asked::new(dice.tokens(60), 80) };
    let most = Asked { priority: 100, ..Asked::new(dice.tokens(100), 60) };
    let mut engine = engine(EngineOptions { events: 16, draft: 0, ..options(200) });
    let submit =
        |engine: &Engine, asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
    let mut answers = vec![submit(&engine, &beyond)];
    while !matches!(engine.step().unwrap(), Step::Idle(_)) {}
    answers.push(submit(&engine, &most));
    loop {
        let Step::Ran(record) = engine.step().unwrap() else { panic!("nobody lost a place") };
        answers[1].read();
        if !record.preempted.is_empty() {
            break;
        }
    }
    run(&mut engine, &mut answers);
    assert_as_alone(&[beyond, most], &answers, "levels that do not count");
    assert_eq!([0, 1].map(|i| answers[i].usage().preemptions), [1, 0]);
}

#[test]
fn of_equals_the_later_one_gives_up_its_place() {
    let asked = long(4);
    let mut engine = engine(EngineOptions { draft: 0, ..options(360) });
    let answers = serve(&mut engine, &asked);
    assert_as_alone(&asked, &answers, "equals");
    assert_eq!(answers[0].usage().preemptions, 0, "the first one never does");
    let totals: Vec<_> = answers.iter().map(|answer| answer.usage().total).collect();
    assert!(totals[0] < totals[3]);
}

/// Whoever comes back from the host's memory with a copy of what others have in the pool takes the room of all of it once
/// more, and nobody comes in before.
#[test]
fn parking_takes_no_room_from_those_who_share() {
    let mut dice = Dice(51);
    let shared = dice.tokens(106);
    let mut ask = |_| Asked::new([&shared[..], &dice.tokens(2)].concat(), 20);
    let asked: Vec<Asked> = (0..40).map(&mut ask).collect();
    let passes = |host_bytes| {
        // Room for what is shared, and for three answers.
        let options = EngineOptions { host_bytes, draft: 0, ..options(4 * 44) };
        let mut engine = engine(options);
        let answers = serve(&mut engine, &asked);
        assert_as_alone(&asked, &answers, &format!("{host_bytes} bytes of the host"));
        assert_empty(&engine);
        let counters = engine.state().counters;
        assert!(counters.preemptions > 0, "{counters:?}");
        assert_eq!(counters.parked, 0, "each shares with another");
        counters.passes
    };
    let (without, with) = (passes(0), passes(1 << 26));
    assert!(
        with <= without + without / 10,
        "{with} passes with the host's memory, {without} without"
    );
}

/// What was parked when nobody else held it, and is held by somebody when it could come back.
#[test]
fn what_others_hold_by_now_is_not_brought_back() {
    let mut dice = Dice(61);
    let shared = dice.tokens(100);
    let parked = Asked::new(shared.clone(), 40);
    let other = Asked { priority: 1, ..Asked::new(dice.tokens(120), 10) };
    let sharing = Asked { priority: 1, ..Asked::new(shared, 60) };
    // Room for one of them and for what a second has for itself, but not for two prompts.
    let options = EngineOptions { host_bytes: 1 << 24, draft: 0, ..options(4 * 52) };
    let mut engine = engine(options);
    let submit =
        |engine: &Engine, asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
    let mut answers = vec![submit(&engine, &parked)];
    (0..5).for_each(|_| drop(engine.step().unwrap()));
    answers.push(submit(&engine, &other));
    engine.step().unwrap();
    answers.push(submit(&engine, &sharing));
    while answers[2].end.is_none() {
        engine.step().unwrap();
        engine.check_integrity().unwrap();
        answers.iter_mut().for_each(Answer::read);
    }
    assert!(answers[0].end.is_some(), "it waited until nobody else was there");
    assert_as_alone(&[parked, other, sharing], &answers, "one that was parked");
    assert_eq!(engine.state().counters.parked, 1);
}
