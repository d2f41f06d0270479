//! The policies as functions: no model, no pool, thousands of states.

use crate::numbers::{World, view, world};
use proptest::prelude::*;
use serving::engine::policy::{Continuous, Plan, Policy, State, StaticBatches, View, share_out};
use speculative::PassTimes;
use std::collections::HashMap;
use std::time::Duration;

/// Rows with which every prompt is read in the pass in which its request comes in.
const ROWS_FOR_ALL: usize = 30 * 150;

/// A load: when each comes, its priority, its prompt, its answer and its family.
type Load = Vec<(u64, i32, usize, usize, usize)>;

fn load() -> impl Strategy<Value = Load> {
    let family = prop::sample::select(vec![0usize, 0, 20, 40, 80]);
    prop::collection::vec((0u64..300, -3i32..4, 1usize..90, 1usize..60, family), 1..30)
}

/// Runs a load to its end, a millisecond a pass. Gives when each came in first and when it was done, in passes.
fn simulate(
    policy: &dyn Policy,
    load: &Load,
    mut world: World,
) -> (HashMap<u64, (u64, u64)>, usize) {
    let (mut times, mut first, mut preemptions) = (HashMap::new(), HashMap::new(), 0);
    let mut last = HashMap::new();
    let mut now = 0;
    while times.len() < load.len() {
        for (id, &(at, priority, prompt, answer, family)) in (0..).zip(load) {
            if at == now {
                let end = prompt + answer;
                world.add_to(family, view(id, priority, at, prompt, end - 1));
            }
        }
        let mut is_paused = false;
        for request in &mut world.requests {
            let view = &mut request.view;
            let turn = now * 7 + view.id;
            view.is_paused = view.is_running && view.pending() == 1 && turn % 5 < world.pauses;
            is_paused |= view.is_paused;
        }
        let plan = policy.schedule(&world.state(), world.budget);
        assert_eq!(
            plan,
            policy.schedule(&world.state(), world.budget),
            "the same state, the same plan"
        );
        let is_stuck = plan.spans.is_empty() && !world.requests.is_empty();
        assert!(!is_stuck || is_paused, "nothing runs, and somebody could: {:?}", world.state());
        preemptions += plan.preempt.len();
        for id in &plan.preempt {
            let came_in = last[id];
            let is_at_once = now == came_in + 1 && world.budget.rows >= ROWS_FOR_ALL;
            let equal = load.iter().all(|(_, priority, ..)| *priority == 0);
            assert!(!is_at_once || !equal, "in and out again");
        }
        plan.admit.iter().for_each(|id| {
            first.entry(*id).or_insert(now);
            last.insert(*id, now);
        });
        for id in world.carry_out(&plan) {
            times.insert(id, (first[&id], now));
        }
        now += 1;
        assert!(now < 200_000, "somebody starves");
    }
    (times, preemptions)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Plans can be carried out, budgets hold, everyone is served, and nobody gives up a place more often
    /// than blocks are taken.
    #[test]
    fn every_load_is_served(
        load in load(), block in prop::sample::select(vec![1usize, 4, 16]),
        more in 0usize..400, rows in 1usize..64, running in 1usize..12, pauses in 0u64..4,
    ) {
        let world = || {
            let mut world = world(block, more, rows, running);
            world.pauses = pauses;
            world
        };
        let tokens: usize = load.iter().map(|(_, _, prompt, answer, _)| prompt + answer).sum();
        let (_, preemptions) = simulate(&Continuous, &load, world());
        prop_assert!(preemptions <= tokens / block + 4 * load.len(), "{preemptions} of {tokens}");
        let (_, none) = simulate(&StaticBatches, &load, world());
        prop_assert_eq!(none, 0, "static batches set everything aside");
    }

    /// With one priority, requests come in in the order in which they came, and none is thrown out by the very
    /// next pass.
    #[test]
    fn equals_come_in_in_order(
        load in load(), more in 0usize..400, running in 1usize..12,
        rows in prop_oneof![1usize..64, Just(ROWS_FOR_ALL)],
    ) {
        let load: Vec<_> = load.into_iter().map(|(at, _, p, a, family)| (at, 0, p, a, family)).collect();
        for policy in [&Continuous as &dyn Policy, &StaticBatches] {
            let (times, _) = simulate(policy, &load, world(4, more, rows, running));
            let mut order: Vec<u64> = (0..load.len() as u64).collect();
            order.sort_by_key(|&id| (load[id as usize].0, id));
            let firsts: Vec<u64> = order.iter().map(|id| times[id].0).collect();
            prop_assert!(firsts.is_sorted(), "{firsts:?}");
        }
    }
}

/// A low request among high ones that never stop coming: its turn comes when they rank behind it.
#[test]
fn nobody_starves_however_many_of_a_higher_priority_come() {
    // With one place, whoever comes in next could take the low one's.
    for running in [2, 1] {
        serves_the_low_one(running);
    }
}

fn serves_the_low_one(running: usize) {
    let level = serving::engine::policy::LEVEL.as_millis() as u64;
    let mut world = world(4, 50, 16, running);
    world.add(view(0, 0, 5, 20, 29));
    let mut id = 1;
    for now in 0..3 * level {
        // As many of priority 2 as there is room for, always.
        while world.requests.iter().filter(|r| r.view.id > 0 && !r.view.is_running).count() < 3 {
            world.add(view(id, 2, now, 12, 20));
            id += 1;
        }
        let plan = Continuous.schedule(&world.state(), world.budget);
        if world.carry_out(&plan).contains(&0) {
            assert!(now > level, "the others go first for a while");
            assert!(now <= 2 * level + 500, "two levels are made up for: {now}");
            return;
        }
    }
    panic!("it was never served, with {running} at once");
}

#[test]
fn who_is_behind_waits_for_what_the_first_one_reads() {
    let mut world = world(4, 400, 32, 4);
    for id in 0..2 {
        world.add(view(id, 0, id, 60, 69));
    }
    world.request(1).view.behind = Some(0);
    let mut admitted = Vec::new();
    for _ in 0..4 {
        let plan = Continuous.schedule(&world.state(), world.budget);
        admitted.push(plan.admit.clone());
        world.carry_out(&plan);
    }
    assert_eq!(admitted, [vec![0], vec![], vec![1], vec![]], "60 rows take two passes of 32");
}

/// Passes until a request of so many tokens of prompt, which comes while a prompt of 400 is being read four rows a pass, has
/// been read.
fn passes_until_read(priority: i32, arrived: u64, prompt: usize) -> u64 {
    let mut world = world(4, 800, 4, 4);
    world.add(view(0, 0, 0, 400, 409));
    for now in 0.. {
        if now == 3 {
            world.add(view(1, priority, arrived, prompt, prompt + 8));
        }
        let plan = Continuous.schedule(&world.state(), world.budget);
        assert_eq!(plan.rows(), 4, "the pass is full: {plan:?}");
        world.carry_out(&plan);
        if now >= 3 && world.request(1).view.text > prompt {
            assert_eq!(world.request(0).preemptions, 0, "a prompt that pauses keeps its blocks");
            return now - 2;
        }
    }
    unreachable!()
}

#[test]
fn a_prompt_that_is_read_pauses_for_a_more_urgent_one() {
    assert_eq!(passes_until_read(1, 3, 12), 3, "it has all rows");
    assert_eq!(passes_until_read(1, 3, 2), 1, "or as many as it needs");
    // 400 rows are 100 passes, of which three have run.
    assert_eq!(passes_until_read(0, 3, 12), 97 + 4, "equals read one after the other");
    let late = serving::engine::policy::LEVEL.as_millis() as u64 + 1;
    assert_eq!(passes_until_read(1, late, 12), 97 + 4, "who has waited for a level goes first");
}

#[test]
fn whoever_pauses_keeps_the_place() {
    let mut world = world(4, 0, 4, 1);
    for id in 0..2 {
        world.add(view(id, 0, id, 8, 20));
    }
    let first = world.request(0);
    (first.view.is_running, first.view.held) = (true, 7);
    first.view.is_paused = true;
    world.request(0).table = vec![world.take(), world.take()];
    assert_eq!(Continuous.schedule(&world.state(), world.budget), Plan::default());
    // With a place for each, both come to run.
    world.budget.running = 2;
    let plan = Continuous.schedule(&world.state(), world.budget);
    assert_eq!((&plan.preempt[..], &plan.admit[..], plan.rows()), (&[][..], &[1][..], 4));
    // Who is stalled keeps it only as long as nobody wants it.
    (world.budget.running, world.request(0).view.is_stalled) = (1, true);
    let plan = Continuous.schedule(&world.state(), world.budget);
    assert_eq!((&plan.preempt[..], &plan.admit[..]), (&[0][..], &[1][..]));
}

#[test]
fn nobody_waits_for_one_that_pauses() {
    let mut world = world(4, 800, 4, 4);
    for (id, priority) in [(0, 0), (1, 1)] {
        world.add(view(id, priority, id, 40, 49));
    }
    world.request(0).view.is_running = true;
    // Behind the one that the urgent one pauses, and more urgent still.
    world.add(View { behind: Some(0), ..view(2, 2, 2, 8, 9) });
    world.request(1).view.is_running = true;
    let plan = Continuous.schedule(&world.state(), world.budget);
    assert_eq!((&plan.admit[..], plan.spans.len()), (&[2][..], 1), "{plan:?}");
    assert_eq!((plan.spans[0].id, plan.spans[0].rows), (2, 4));
}

/// Seconds of passes that cost 1 ms, and so much more for each row.
fn times(per_row: f64) -> PassTimes {
    let mut times = PassTimes::default();
    for rows in 1..200 {
        times.observe(rows, Duration::from_secs_f64(1e-3 * (1.0 + per_row * rows as f64)));
    }
    times
}

/// Guesses that are given for so many texts of one row each.
fn guessed(texts: u64, per_row: f64, chances: &[f64], rows: usize, blocks: usize) -> Vec<usize> {
    let running = |id| View {
        is_running: true,
        held: 19,
        places: 5,
        guesses: chances.to_vec(),
        ..view(id, 0, 0, 20, 100)
    };
    let requests: Vec<View> = (0..texts).map(running).collect();
    let state = State { requests, free: blocks, cached: 0, block: 4, times: times(per_row) };
    let span = |id| serving::engine::policy::PlannedSpan { id, rows: 1, guesses: 0 };
    let mut spans: Vec<_> = (0..texts).map(span).collect();
    share_out(&mut spans, &state, rows, blocks);
    spans.iter().map(|span| span.guesses).collect()
}

#[test]
fn guesses_go_where_they_pay() {
    let good = [0.9, 0.8, 0.7, 0.6];
    // Rows for nothing: all of them. Rows that cost as much as a pass: none.
    assert_eq!(guessed(1, 0.0, &good, 100, 100), [4]);
    assert_eq!(guessed(1, 50.0, &good, 100, 100), [0]);
    assert_eq!(guessed(1, 0.0, &[0.01], 100, 100), [0], "not worth it");
    // One text's guesses pay where sixteen texts' do not.
    let fair = [0.3, 0.1];
    assert!(guessed(1, 0.05, &fair, 100, 100)[0] > 0);
    assert_eq!(guessed(32, 0.05, &fair, 100, 100), [0; 32]);
    // No more rows and no more blocks than there are: 20 tokens fill five blocks of four.
    assert_eq!(guessed(2, 0.0, &good, 3, 100).iter().sum::<usize>(), 3);
    assert_eq!(guessed(2, 0.0, &good, 100, 1), [4, 0]);
    assert_eq!(guessed(2, 0.0, &good, 100, 0), [0, 0]);
}
