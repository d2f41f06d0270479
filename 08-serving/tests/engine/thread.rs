//! The engine on its thread.

use crate::world::{Asked, Dice, crowd, engine, eventually, options};
use serving::engine::policy::{Budget, Plan, Policy, State};
use serving::engine::{EngineHandle, EngineOptions, Event, Refused, Ticket};
use std::sync::Arc;

fn tokens(mut ticket: Ticket) -> Vec<u32> {
    let mut tokens = Vec::new();
    loop {
        match ticket.blocking_recv().expect("an end comes before the engine goes") {
            Event::Token(token) => tokens.push(token.token),
            Event::Finished { .. } => return tokens,
            Event::Failed(error) => panic!("{error}"),
            Event::Started { .. } | Event::Prompt(_) | Event::Embedding(_) => {}
        }
    }
}

#[test]
fn clients_on_many_threads_get_their_own_tokens() {
    let handle = EngineHandle::start(engine(options(700))).unwrap();
    let clients: Vec<_> = crowd(6, 24)
        .into_iter()
        .map(|asked| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                let found = tokens(handle.submit(asked.request()).unwrap());
                assert_eq!(found, asked.alone());
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let state = handle.state();
    assert_eq!(state.counters.stopped + state.counters.full_length, 24);
}

#[test]
fn draining_finishes_what_there_is_and_takes_no_more() {
    let handle = EngineHandle::start(engine(options(2_000))).unwrap();
    let asked = Asked::new(Dice(41).tokens(20), 100);
    let tickets: Vec<_> = (0..4).map(|_| handle.submit(asked.request()).unwrap()).collect();
    handle.drain();
    assert!(matches!(handle.submit(asked.request()).err().unwrap(), Refused::Draining));
    for ticket in tickets {
        assert_eq!(tokens(ticket), asked.alone());
    }
    eventually("the engine is drained", || handle.is_drained());
    assert!(handle.state().draining);
}

#[test]
fn draining_waits_for_the_rest_of_a_series() {
    let handle = EngineHandle::start(engine(options(2_000))).unwrap();
    let asked = Asked::new(Dice(45).tokens(20), 30);
    let series = handle.begin_series().unwrap();
    let first = series.submit(asked.request()).unwrap();
    handle.drain();
    assert_eq!(tokens(first), asked.alone());
    eventually("its first is done", || handle.state().requests.is_empty());
    assert!(matches!(handle.submit(asked.request()).err().unwrap(), Refused::Draining));
    assert!(matches!(handle.begin_series().err().unwrap(), Refused::Draining));
    assert!(!handle.is_drained(), "more may come");
    assert_eq!(tokens(series.submit(asked.request()).unwrap()), asked.alone());
    drop(series);
    eventually("the engine is drained", || handle.is_drained());
}

#[test]
fn a_series_ends_when_all_are_cut_off_or_the_engine_is_gone() {
    let handle = EngineHandle::start(engine(options(2_000))).unwrap();
    let asked = Asked::new(Dice(46).tokens(20), 10);
    let series = handle.begin_series().unwrap();
    handle.cut_off();
    assert!(matches!(series.submit(asked.request()).err().unwrap(), Refused::Draining));
    drop(series);
    eventually("the engine is drained", || handle.is_drained());

    let broken = EngineOptions { policy: Arc::new(Broken), ..options(600) };
    let handle = EngineHandle::start(engine(broken)).unwrap();
    let series = handle.begin_series().unwrap();
    let _ticket = series.submit(asked.request()).unwrap();
    handle.drain();
    eventually("the engine is gone", || handle.is_drained());
    assert!(matches!(series.submit(asked.request()).err().unwrap(), Refused::Ended));
}

#[test]
fn a_dropped_ticket_frees_its_blocks_and_a_stalled_one_goes_on_when_it_is_read() {
    let handle =
        EngineHandle::start(engine(EngineOptions { events: 8, ..options(2_000) })).unwrap();
    let asked = Asked::new(Dice(42).tokens(20), 200);
    let (gone, kept) = (handle.submit(asked.request()), handle.submit(asked.request()));
    eventually("both stall, and the engine sleeps", || handle.state().stalled == 2);
    drop(gone.unwrap());
    eventually("its blocks are free", || handle.state().requests.len() == 1);
    assert_eq!(handle.state().counters.cancelled, 1);
    assert_eq!(tokens(kept.unwrap()), asked.alone());
    eventually("nothing is left", || handle.state().blocks.used() == 0);
}

#[test]
fn the_thread_ends_with_the_last_handle_but_not_before_the_last_text() {
    let asked = Asked::new(Dice(43).tokens(20), 100);
    let ticket = {
        let handle = EngineHandle::start(engine(options(600))).unwrap();
        handle.submit(asked.request()).unwrap()
    };
    assert_eq!(tokens(ticket), asked.alone());
}

/// As soon as somebody is there, plans for somebody who is not: an invariant that does not hold.
struct Broken;

impl Policy for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn schedule(&self, state: &State, _: Budget) -> Plan {
        let preempt = if state.requests.is_empty() { Vec::new() } else { vec![u64::MAX] };
        Plan { preempt, ..Plan::default() }
    }
}

#[test]
fn an_engine_that_is_gone_says_so_and_not_that_it_shuts_down() {
    let broken = EngineOptions { policy: Arc::new(Broken), ..options(600) };
    let engine = engine(broken);
    let asked = Asked::new(Dice(44).tokens(20), 10);
    let mut waiting = engine.submit(asked.request()).unwrap();
    let handle = EngineHandle::start(engine).unwrap();
    let Some(Event::Failed(error)) = waiting.blocking_recv() else { panic!("it is told") };
    let found = u64::MAX;
    let expected = format!(
        "a defect of this program: a request in the plan is {found}, expected one that is not done"
    );
    assert_eq!(error.to_string(), expected);
    // Whoever looks at it from outside sees that nobody is left.
    let state = handle.state();
    assert_eq!((state.running, state.waiting, state.counters.failed), (0, 0, 1));
    eventually("the engine is gone", || handle.is_drained());
    assert!(matches!(handle.submit(asked.request()).err().unwrap(), Refused::Ended));
    handle.drain();
    assert!(matches!(handle.submit(asked.request()).err().unwrap(), Refused::Ended));
}
