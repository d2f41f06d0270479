//! The policies again: blocks that several have. What comes free when some of them go is compared with sets of blocks.

use crate::numbers::view;
use proptest::prelude::*;
use serving::engine::policy::{Budget, Continuous, Plan, Policy, State, View};
use speculative::PassTimes;
use std::collections::HashSet;

/// Tokens of a block.
const BLOCK: usize = 4;

/// Blocks of a family's beginning, at most.
const BEGINNING: usize = 12;

/// Somebody: family, blocks of its beginning, own blocks, priority, seconds at which it came, whether it is stalled.
type Somebody = (u32, usize, usize, i32, u64, bool);

fn somebody() -> impl Strategy<Value = Somebody> {
    (0u32..3, 0..=BEGINNING, 1usize..8, -2i32..3, 0u64..40, any::<bool>())
}

/// Blocks of a beginning.
fn beginning(family: u32, blocks: usize) -> Vec<u32> {
    (0..blocks as u32).map(|at| family * BEGINNING as u32 + at).collect()
}

/// One who is inside and writes, all of whose blocks others could have.
fn inside(id: u64, (family, shared, own, priority, came, is_stalled): Somebody) -> View {
    let places = shared + own;
    let text = places * BLOCK;
    let mut common = beginning(family, shared);
    common.extend((0..own as u32).map(|at| 1000 + 100 * id as u32 + at));
    let plain = view(id, priority, 1000 * came, text, text);
    View { is_running: true, is_stalled, held: text - 1, places, common, ..plain }
}

/// One who waits, and begins with so many blocks that are known.
fn waits(id: u64, (family, known, own, priority, came, _): Somebody) -> View {
    let text = (known + own) * BLOCK;
    let plain = view(id, priority, 1000 * came, text, text);
    View { held: known * BLOCK, common: beginning(family, known), ..plain }
}

fn all<'a>(views: impl IntoIterator<Item = &'a View>) -> HashSet<u32> {
    views.into_iter().flat_map(|view| view.common.iter().copied()).collect()
}

/// Leaves only what the engine tells of: blocks of several, and of those who wait.
fn as_told(mut requests: Vec<View>) -> Vec<View> {
    let told = requests.clone();
    for view in requests.iter_mut().filter(|view| view.is_running) {
        let others = all(told.iter().filter(|other| other.id != view.id));
        view.common.retain(|block| others.contains(block));
    }
    requests
}

/// Who has to go for one that waits, the first to go first; none if that does not help. As sets of blocks tell it.
fn has_to_go(mut stay: Vec<&View>, new: &View, total: usize, running: usize) -> Option<Vec<u64>> {
    stay.sort_by_key(|view| (view.is_stalled, view.rank));
    let mut gone = Vec::new();
    loop {
        let held = all(stay.iter().copied());
        let found = new.common.iter().filter(|block| held.contains(block)).count();
        // One for each in the next pass, besides what it takes now.
        let needed = new.text.div_ceil(BLOCK) - found + stay.len() + 1;
        let fits = stay.len() < running && held.len() + needed <= total;
        if fits || stay.is_empty() {
            return Some(gone);
        }
        let last = stay.pop()?;
        let gives_way = last.priority < new.priority && new.rank < last.rank;
        if !last.is_stalled && !gives_way {
            return None;
        }
        gone.push(last.id);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// The policy finds the room that there is, takes no more of it than it needs to, and none that is not there.
    #[test]
    fn room_is_what_sets_of_blocks_say(
        running in prop::collection::vec(somebody(), 0..7), new in somebody(),
        more in 0usize..30, most in 1usize..9, all_told in any::<bool>(),
    ) {
        let mut requests: Vec<View> = (0..).zip(running).map(|(id, who)| inside(id, who)).collect();
        let new = waits(99, new);
        let held = all(&requests).len();
        let total = all(requests.iter().chain([&new])).len().max(new.text / BLOCK) + more;
        let expected = has_to_go(requests.iter().collect(), &new, total, most);
        requests.push(new);
        let requests = if all_told { requests } else { as_told(requests) };
        let (free, times) = (total - held, PassTimes::default());
        let state = State { requests, free, cached: 0, block: BLOCK, times };
        let Plan { preempt, admit, .. } =
            Continuous.schedule(&state, Budget { rows: 1000, running: most });
        let (gone, came) = match expected {
            Some(gone) => (gone, vec![99]),
            None => (vec![], vec![]),
        };
        prop_assert_eq!((preempt, admit), (gone, came));
    }
}

/// Two who come together and begin with the same: it is there once.
#[test]
fn those_who_come_together_share_what_they_begin_with() {
    let somebody = |id| waits(id, (0, 10, 2, 0, id, false));
    let state = |free| State {
        requests: vec![somebody(0), somebody(1)],
        free,
        cached: 10,
        block: BLOCK,
        times: PassTimes::default(),
    };
    let admitted =
        |free| Continuous.schedule(&state(free), Budget { rows: 100, running: 4 }).admit.len();
    // Two of its own for each, and one for each in the next pass.
    assert_eq!([5, 6].map(admitted), [1, 2]);
}
