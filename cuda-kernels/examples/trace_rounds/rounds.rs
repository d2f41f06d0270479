//! Acts in rounds: each takes one, and begins when the kernel's barriers let it.

use super::acts::{Act, Acts};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// What something is busy with, or a place full of, round by round.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) cells: Vec<Cell>,
}

/// One round of it.
#[derive(Serialize)]
pub(crate) struct Cell {
    pub(crate) round: usize,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// What is shown in one colour.
#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A tile on its way.
    Copy,
    /// A tile that is there.
    There,
    /// Work on a tile: by everybody, or by the first group.
    First,
    /// Work on a tile by the second group.
    Second,
}

/// Rounds after which something is wrong with the barriers, or with this.
const MOST_ROUNDS: usize = 100;

impl Row {
    fn new(name: &str) -> Self {
        Self { name: name.into(), cells: Vec::new() }
    }

    fn put(&mut self, round: usize, kind: Kind, text: impl Into<String>) {
        self.cells.push(Cell { round, kind, text: text.into() });
    }
}

/// Steps 2 to 4, where all warps do the same: how many rounds, and memory and warps in each.
pub(crate) fn one_kind(acts: &Acts) -> (usize, Vec<Row>) {
    let (mut memory, mut warps) = (Row::new("memory"), Row::new("all warps"));
    let (mut fetched, mut worked) = (0, 0);
    // The round in which something begins next, and the one after what was fetched last.
    let (mut now, mut there) = (0, 0);
    for act in acts {
        match act {
            Act::Load | Act::Fetch(_) => {
                memory.put(now, Kind::Copy, fetched.to_string());
                fetched += 1;
                there = now + 1;
                if *act == Act::Load {
                    now = there;
                }
            }
            Act::WaitForFetches => now = now.max(there),
            Act::Work => {
                warps.put(now, Kind::First, worked.to_string());
                worked += 1;
                now += 1;
            }
            other => unreachable!("{other:?} in a kernel whose warps are all alike"),
        }
    }
    (now, vec![memory, warps])
}

/// An mbarrier: what this phase waits for, and how many phases are over.
struct Barrier {
    count: u64,
    arrivals: u64,
    is_fetching: bool,
    phase: u64,
}

impl Barrier {
    fn settle(&mut self) {
        if self.arrivals == 0 && !self.is_fetching {
            self.arrivals = self.count;
            self.phase += 1;
        }
    }
}

/// A product that a group has begun.
struct Product {
    group: usize,
    text: String,
}

/// Step 6: the fetching warp and a warp of each group.
struct World {
    barriers: BTreeMap<u64, Barrier>,
    /// Arrivals at named barriers that nobody has made use of yet.
    turns: BTreeMap<u64, usize>,
    fetches: VecDeque<u64>,
    products: VecDeque<Product>,
    /// For each agent, products begun of scores and of output.
    begun: Vec<[usize; 2]>,
}

/// How many rounds, and in each: copies, tensor cores, both groups, and what lies in the stages.
pub(crate) fn specialised(acts: &[Acts]) -> (usize, Vec<Row>) {
    let mut world = World {
        barriers: BTreeMap::new(),
        turns: BTreeMap::new(),
        fetches: VecDeque::new(),
        products: VecDeque::new(),
        begun: vec![[0; 2]; acts.len()],
    };
    let mut next = vec![0; acts.len()];
    let mut weighed = vec![0; acts.len()];
    let [mut copies, mut cores] = ["copies (TMA)", "tensor cores"].map(Row::new);
    let mut groups = vec![Row::new("softmax, group 1"), Row::new("softmax, group 2")];
    let mut stages =
        ["keys, stage 0", "keys, stage 1", "values, stage 0", "values, stage 1"].map(Row::new);
    let mut fetched: BTreeMap<u64, usize> = BTreeMap::new();
    for round in 0..MOST_ROUNDS {
        // Everybody goes on until there is something that takes a round, or a wait.
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for (agent, acts) in acts.iter().enumerate() {
                while let Some(act) = acts.get(next[agent])
                    && *act != Act::Softmax
                    && world.does(agent, *act)
                {
                    next[agent] += 1;
                    goes_on = true;
                }
            }
        }
        // The barriers in the order of their addresses: full and empty, of queries, keys and values.
        let places: Vec<u64> = world.barriers.keys().copied().collect();
        let full = [places[1], places[2], places[5], places[6]];
        let empty = [places[3], places[4], places[7], places[8]];
        if acts.iter().zip(&next).all(|(acts, next)| *next == acts.len())
            && world.products.is_empty()
        {
            return (round, [copies, cores].into_iter().chain(groups).chain(stages).collect());
        }
        let landing = world.fetches.pop_front();
        for (stage, row) in stages.iter_mut().enumerate() {
            let times = fetched.get(&full[stage]).copied().unwrap_or(0);
            let tile = |time: usize| (2 * time + stage % 2).to_string();
            if landing == Some(full[stage]) {
                row.put(round, Kind::Copy, tile(times));
            } else if times as u64 > world.barriers[&empty[stage]].phase {
                row.put(round, Kind::There, tile(times - 1));
            }
        }
        if let Some(at) = landing {
            let times = fetched.entry(at).or_default();
            let name = match full.iter().position(|full| *full == at) {
                None => "Q".into(),
                Some(stage) => {
                    format!("{}{}", if stage < 2 { "K" } else { "V" }, 2 * *times + stage % 2)
                }
            };
            *times += 1;
            copies.put(round, Kind::Copy, name);
        }
        if let Some(product) = world.products.front() {
            let kind = if product.group == 1 { Kind::First } else { Kind::Second };
            cores.put(round, kind, product.text.clone());
        }
        let mut weighing = Vec::new();
        for agent in 1..acts.len() {
            if acts[agent].get(next[agent]) == Some(&Act::Softmax) {
                let kind = if agent == 1 { Kind::First } else { Kind::Second };
                groups[agent - 1].put(round, kind, weighed[agent].to_string());
                weighing.push(agent);
            }
        }
        // The round is over.
        world.products.pop_front();
        for agent in weighing {
            next[agent] += 1;
            weighed[agent] += 1;
        }
        if let Some(barrier) = landing.and_then(|at| world.barriers.get_mut(&at)) {
            barrier.is_fetching = false;
            barrier.settle();
        }
    }
    panic!("nobody goes on: {next:?} of {:?}", acts.iter().map(Vec::len).collect::<Vec<_>>())
}

impl World {
    /// Does an act that takes no time. False if it has to be waited for.
    fn does(&mut self, agent: usize, act: Act) -> bool {
        match act {
            Act::Init(at, count) => {
                let barrier = Barrier { count, arrivals: count, is_fetching: false, phase: 0 };
                self.barriers.insert(at, barrier);
            }
            Act::Fetch(Some(at)) => {
                self.fetches.push_back(at);
            }
            Act::Expect(at) => {
                let barrier = self.barriers.get_mut(&at).expect("an mbarrier that was made");
                barrier.is_fetching = true;
                barrier.arrivals -= 1;
            }
            Act::Arrive(at) => {
                let barrier = self.barriers.get_mut(&at).expect("an mbarrier that was made");
                barrier.arrivals -= 1;
                barrier.settle();
            }
            // As the ISA has it: over if the phase under way has the other parity.
            Act::Wait(at, parity) => {
                return self
                    .barriers
                    .get(&at)
                    .is_some_and(|barrier| barrier.phase % 2 != parity % 2);
            }
            Act::WaitForTurn(number) => {
                let turns = self.turns.entry(number).or_default();
                if *turns == 0 {
                    return false;
                }
                *turns -= 1;
            }
            Act::EndTurn(number) => *self.turns.entry(number).or_default() += 1,
            Act::Scores | Act::Output => {
                let which = usize::from(act == Act::Output);
                let tile = self.begun[agent][which];
                self.begun[agent][which] += 1;
                let text = format!("{}{tile}", ["S", "O"][which]);
                self.products.push_back(Product { group: agent, text });
            }
            Act::WaitForProducts(most) => {
                let under_way = self.products.iter().filter(|product| product.group == agent);
                return under_way.count() <= most;
            }
            other => unreachable!("{other:?} in a kernel with warps of two kinds"),
        }
        true
    }
}
