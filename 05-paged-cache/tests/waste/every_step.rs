//! Any requests, in any memory: every slot is accounted for in every step.

use super::allocators;
use paged_cache::waste::{Moment, Request, Simulation, Slots, simulate};
use proptest::prelude::*;

/// Each slot of the memory belongs to one request at most, and the counts are what a look at each slot
/// says.
fn check(simulation: &Simulation<'_>, requests: &[Request], moment: &Moment) {
    let memory = simulation.allocator().memory();
    let mut owners = vec![None; memory];
    let mut seen = Slots::default();
    for (id, tokens) in simulation.running() {
        let places = simulation.allocator().places(id);
        let slots: Vec<usize> = places.into_iter().flatten().collect();
        assert_eq!(slots.len(), simulation.allocator().set_aside(id));
        assert!(slots.len() >= tokens, "request {id} has tokens without a slot");
        for (nth, slot) in slots.into_iter().enumerate() {
            assert_eq!(owners[slot].replace(id), None, "slot {slot} has two owners");
            let count = match nth {
                nth if nth < tokens => &mut seen.tokens,
                nth if nth < requests[id].length() => &mut seen.reserved,
                _ => &mut seen.internal,
            };
            *count += 1;
        }
    }
    let unowned = owners.iter().filter(|owner| owner.is_none()).count();
    (seen.external, seen.free) = (moment.slots.external, unowned - moment.slots.external);
    assert_eq!(moment.slots, seen);
    assert_eq!(moment.slots.total(), memory);
}

fn requests(longest: usize) -> impl Strategy<Value = Vec<Request>> {
    let request = (0..4usize, 0..=longest / 2, 1..=longest / 2);
    prop::collection::vec(request, 1..40).prop_map(|drawn| {
        let mut arrival = 0;
        let request = drawn.into_iter().map(|(gap, prompt, output)| {
            arrival += gap * gap;
            Request { arrival, prompt, output }
        });
        request.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_slot_is_accounted_for_in_every_step(
        requests in requests(32),
        memory in 64..200usize,
        block_size in 1..=20usize,
    ) {
        for (nth, mut allocator) in allocators(memory, 32, block_size).into_iter().enumerate() {
            let mut simulation = Simulation::new(&mut *allocator, &requests).unwrap();
            let (mut step, mut tokens) = (None, 0);
            while let Some(moment) = simulation.admit() {
                prop_assert!(step.is_none_or(|step| moment.step > step), "time goes on");
                prop_assert!(moment.running > 0, "somebody always fits into an empty memory");
                let in_order = simulation.running().is_sorted_by_key(|(id, _)| id);
                prop_assert!(in_order, "first come, first served");
                check(&simulation, &requests, &moment);
                step = Some(moment.step);
                tokens += moment.running;
                simulation.advance();
            }
            // Every request got every token; who had to leave in a step got none in it.
            let output: usize = requests.iter().map(|request| request.output).sum();
            prop_assert_eq!(tokens, output + simulation.preemptions());
            // A memory that everybody has left is as good as new.
            let again = simulate(&mut *allocator, &requests).unwrap();
            let fresh = &mut *allocators(memory, 32, block_size)[nth];
            prop_assert_eq!(again, simulate(fresh, &requests).unwrap());
        }
    }
}
