//! Prompts that another engine reads, where several wait for the same, and for how long.

use crate::elsewhere::{Desk, begins_known, push_out_what_is_known, read, reader, writer};
use crate::world::{Answer, Asked, Dice, assert_as_alone, options, run};
use serving::engine::{Engine, EngineOptions, EngineRequest, Step};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Whoever has asked: what has come is for whoever of those who wait for it comes in first.
#[test]
fn what_has_come_is_there_for_the_first_in_rank() {
    let desk = Desk::default();
    let mut reader = reader(options(900));
    let mut writer = writer(&desk, EngineOptions { running: 1, draft: 0, ..options(900) });
    let prompt = Dice(4).tokens(100);
    let runs = Asked { priority: 1, ..Asked::new(Dice(5).tokens(20), 30) };
    // The one that asks goes on for longer than the other.
    let asks = Asked::new([&prompt[..], &Dice(6).tokens(30)].concat(), 5);
    let urgent = Asked { priority: 1, ..Asked::new(prompt, 5) };
    let asked = [runs, asks, urgent];
    let mut answers = asked.each_ref().map(|a| Answer::of(writer.submit(a.request()).unwrap()));
    writer.step().unwrap();
    let pending = desk.take();
    pending.courier.deliver(read(&mut reader, &pending.wanted));
    let mut order = Vec::new();
    while order.len() < 2 {
        let Step::Ran(record) = writer.step().unwrap() else { panic!("somebody waits in vain") };
        order.extend(record.admitted);
        answers.iter_mut().for_each(Answer::read);
    }
    assert_eq!(order, [2, 1].map(|i: usize| answers[i].ticket.id()));
    assert!(pending.is_wanted.strong_count() == 0, "all that came has been taken");
    run(&mut writer, &mut answers);
    assert_as_alone(&asked, &answers, "by rank");
    // 96 of the urgent one's 100 tokens; and of the other's 130, those behind the hundred that were here by then.
    assert_eq!((writer.state().counters.brought_tokens, desk.len()), (96 + 28, 0));
}

#[test]
fn whoever_asked_may_go_while_others_wait_for_the_same() {
    let desk = Desk::default();
    let mut reader = reader(options(900));
    let mut writer = writer(&desk, options(900));
    let asked = Asked::new(Dice(4).tokens(100), 8);
    let gone = writer.submit(asked.request()).unwrap();
    let mut answers = [Answer::of(writer.submit(asked.request()).unwrap())];
    writer.step().unwrap();
    drop(gone);
    run(&mut writer, &mut answers);
    let pending = desk.take();
    assert_eq!((pending.is_wanted.strong_count(), desk.len()), (1, 0), "it is still wanted, once");
    pending.courier.deliver(read(&mut reader, &pending.wanted));
    run(&mut writer, &mut answers);
    assert_as_alone(&[asked], &answers, "alone now");
    assert_eq!(writer.state().counters.brought_tokens, 96);
}

#[test]
fn who_comes_after_an_empty_delivery_asks_anew() {
    let desk = Desk::default();
    let mut writer = writer(&desk, EngineOptions { running: 1, draft: 0, ..options(900) });
    let asked = Asked::new(Dice(4).tokens(100), 8);
    let runs = Asked::new(Dice(5).tokens(20), 30);
    let submit =
        |engine: &Engine, asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
    let _answers = [submit(&writer, &runs), submit(&writer, &asked)];
    writer.step().unwrap();
    desk.take().courier.deliver(HashMap::new());
    let _next = submit(&writer, &asked);
    writer.step().unwrap();
    assert_eq!(desk.len(), 1);
}

/// However slowly blocks come, there is a moment at which the rest is read here.
#[test]
fn what_is_read_elsewhere_has_a_time_for_all_of_it() {
    let desk = Desk::default();
    let mut writer = writer(&desk, options(900));
    let prompt = Dice(4).tokens(101);
    let began = Instant::now();
    let ask = |prompt: &[u32], deadline| {
        let request = EngineRequest::new(prompt.to_vec(), 3);
        writer.submit(EngineRequest { deadline, ..request }).unwrap()
    };
    let soon = began + Duration::from_secs(15);
    let _tickets = [
        ask(&prompt, None),
        ask(&Dice(5).tokens(101), Some(soon)),
        // It could wait for what the first has asked for, but has less time.
        ask(&prompt, Some(soon)),
        ask(&prompt, None),
    ];
    let submitted = Instant::now();
    writer.step().unwrap();
    let deadlines: Vec<Instant> = (0..desk.len()).map(|_| desk.take().wanted.deadline).collect();
    // Twice ten seconds, and ten milliseconds for each of a hundred tokens.
    let most = Duration::from_secs(22);
    let first = deadlines[0];
    assert!(began + most <= first && first <= submitted + most, "{:?}", first - began);
    assert_eq!(deadlines[1..], [soon; 2]);
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one_that_begins_alike() {
    let desk = Desk::default();
    let mut writer = writer(&desk, options(900));
    let long = Dice(4).tokens(220);
    // Of 219 tokens 216 are asked for, which is more than twice 104.
    for (length, asked) in [(220, 1), (113, 1), (105, 2)] {
        let ticket = writer.submit(Asked::new(long[..length].to_vec(), 3).request()).unwrap();
        std::mem::forget(ticket);
        writer.step().unwrap();
        assert_eq!(desk.len(), asked, "{length} tokens");
    }
}

/// What was known when the first asked is gone when the second comes: what comes for the first has not the beginning.
#[test]
fn what_comes_without_the_beginning_is_not_waited_for() {
    let desk = Desk::default();
    let mut reader = reader(options(900));
    let mut writer = writer(&desk, options(220));
    let next = begins_known(&mut writer);
    let mut answers = [Answer::of(writer.submit(next.request()).unwrap())];
    writer.step().unwrap();
    push_out_what_is_known(&mut writer);
    let mut second = [Answer::of(writer.submit(next.request()).unwrap())];
    writer.step().unwrap();
    let [pending, all] = [desk.take(), desk.take()];
    assert!(pending.wanted.known == 15 && all.wanted.known < 15, "{} are left", all.wanted.known);
    all.courier.deliver(read(&mut reader, &all.wanted));
    run(&mut writer, &mut second);
    pending.courier.deliver(HashMap::new());
    run(&mut writer, &mut answers);
    assert_as_alone(std::slice::from_ref(&next), &second, "with all of it");
    assert_as_alone(&[next], &answers, "without its beginning");
}
