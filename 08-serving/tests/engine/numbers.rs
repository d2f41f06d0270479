//! Requests and blocks as numbers, for policies.

use serving::engine::policy::{Budget, Plan, Rank, State, View};
use speculative::PassTimes;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Requests as numbers, and blocks as numbers: what an engine does with a plan, without the engine.
pub(crate) struct World {
    pub(crate) requests: Vec<Request>,
    /// By family, the blocks of its beginning that are known, whoever has them.
    known: BTreeMap<usize, Vec<u32>>,
    /// How many have each block. A number is never given a second time.
    holders: Vec<u32>,
    /// Blocks that somebody has.
    used: usize,
    block: usize,
    total: usize,
    pub(crate) budget: Budget,
    /// In how many of five passes whoever writes has to pause.
    pub(crate) pauses: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) view: View,
    /// Tokens at which it is done. The last one is written, and never run.
    end: usize,
    /// Its blocks, in order.
    pub(crate) table: Vec<u32>,
    /// Tokens with which it begins.
    prompt: usize,
    /// Those whose prompts begin alike, for as many tokens as their number says.
    family: usize,
    pub(crate) preemptions: usize,
}

impl World {
    pub(crate) fn state(&self) -> State {
        let requests = self.requests.iter().map(|request| self.view(request)).collect();
        let cached = self.total - self.used;
        State { requests, free: 0, cached, block: self.block, times: PassTimes::default() }
    }

    fn view(&self, request: &Request) -> View {
        let (table, view) = (request.table.clone(), request.view.clone());
        if view.is_running {
            return View { places: table.len(), common: table, ..view };
        }
        let common = self.known_to(request);
        View { held: common.len() * self.block, common, ..view }
    }

    /// The blocks of its beginning that are known. The last token of the prompt is its own.
    fn known_to(&self, request: &Request) -> Vec<u32> {
        let known = self.known.get(&request.family).map_or(&[][..], |known| known);
        known.iter().take(request.shared() / self.block).copied().collect()
    }

    /// Carries out a plan as an engine would, and checks that it can be. Gives who is done.
    pub(crate) fn carry_out(&mut self, plan: &Plan) -> Vec<u64> {
        assert!(plan.rows() <= self.budget.rows, "{plan:?}");
        for id in &plan.preempt {
            let request = self.request(*id);
            assert!(request.view.is_running);
            request.preemptions += 1;
            (request.view.is_running, request.view.held) = (false, 0);
            let table = std::mem::take(&mut request.table);
            table.into_iter().for_each(|block| self.release(block));
        }
        for id in &plan.admit {
            let request = self.request(*id).clone();
            assert!(!request.view.is_running && !request.view.is_stalled);
            assert!(!plan.preempt.contains(id), "in and out in one step");
            let table = self.known_to(&request);
            table.iter().for_each(|&block| self.hold(block));
            let held = table.len() * self.block;
            let request = self.request(*id);
            (request.view.is_running, request.view.held, request.table) = (true, held, table);
        }
        let mut seen = HashSet::new();
        for span in &plan.spans {
            assert!(seen.insert(span.id), "two spans of one request");
            let block = self.block;
            let request = self.request(span.id);
            assert!(request.view.is_running && !request.view.is_stalled);
            assert!(!request.view.is_paused, "it was to have no rows");
            assert!(span.rows > 0 && span.rows <= request.view.pending());
            request.view.held += span.rows;
            let more = request.view.held.div_ceil(block).saturating_sub(request.table.len());
            let taken: Vec<u32> = (0..more).map(|_| self.take()).collect();
            self.request(span.id).table.extend(taken);
        }
        assert!(self.used <= self.total, "more blocks than there are");
        self.evict();
        let mut done = Vec::new();
        for span in &plan.spans {
            self.remember(span.id);
            let Request { view, end, .. } = self.request(span.id);
            if view.held == view.text {
                view.text += 1;
                if view.text == *end {
                    done.push(span.id);
                }
            }
        }
        let running = self.requests.iter().filter(|request| request.view.is_running).count();
        assert!(running <= self.budget.running);
        for request in
            self.requests.extract_if(.., |r| done.contains(&r.view.id)).collect::<Vec<_>>()
        {
            request.table.into_iter().for_each(|block| self.release(block));
        }
        done
    }

    /// A block that nobody has had.
    pub(crate) fn take(&mut self) -> u32 {
        self.holders.push(0);
        let block = self.holders.len() as u32 - 1;
        self.hold(block);
        block
    }

    fn hold(&mut self, block: u32) {
        let holders = &mut self.holders[block as usize];
        self.used += usize::from(*holders == 0);
        *holders += 1;
    }

    fn release(&mut self, block: u32) {
        let holders = &mut self.holders[block as usize];
        *holders -= 1;
        self.used -= usize::from(*holders == 0);
    }

    /// Whole blocks of the beginning are known from now on. Of what was known before it has the others' blocks.
    fn remember(&mut self, id: u64) {
        let block = self.block;
        let Request { view, family, table, .. } = self.request(id).clone();
        let whole = view.held.min(self.request(id).shared()) / block;
        for at in 0..whole {
            let known = self.known.entry(family).or_default();
            if at == known.len() {
                known.push(table[at]);
            }
            let earlier = known[at];
            self.hold(earlier);
            self.release(table[at]);
            self.request(id).table[at] = earlier;
        }
    }

    /// Lets go of what is known and nobody has, as far as there is no room for it: the ends first.
    fn evict(&mut self) {
        let mut room = self.total - self.used;
        let holders = &self.holders;
        for known in self.known.values_mut() {
            let is_held = |block: &&u32| holders[**block as usize] > 0;
            let held = known.iter().take_while(is_held).count();
            assert!(!known[held..].iter().any(|block| is_held(&block)), "no beginning");
            known.truncate(held + room);
            room -= known.len() - held;
        }
    }

    /// Somebody comes, who is done one token after the last that the pool is to hold.
    pub(crate) fn add(&mut self, view: View) {
        self.add_to(0, view);
    }

    /// The same for one of a family.
    pub(crate) fn add_to(&mut self, family: usize, view: View) {
        let (end, prompt, table) = (view.longest + 1, view.text, Vec::new());
        self.requests.push(Request { view, end, table, prompt, family, preemptions: 0 });
    }

    pub(crate) fn request(&mut self, id: u64) -> &mut Request {
        self.requests.iter_mut().find(|request| request.view.id == id).expect("it is known")
    }
}

impl Request {
    /// Tokens of its prompt that others of its family have too. The prompt's last token is read in any case.
    fn shared(&self) -> usize {
        self.family.min(self.prompt - 1)
    }
}

pub(crate) fn view(id: u64, priority: i32, arrived: u64, text: usize, longest: usize) -> View {
    View {
        id,
        rank: Rank::new(priority, Duration::from_millis(arrived), id),
        priority,
        is_running: false,
        is_stalled: false,
        is_paused: false,
        text,
        held: 0,
        longest,
        places: 0,
        common: Vec::new(),
        behind: None,
        guesses: Vec::new(),
        probes: false,
    }
}

pub(crate) fn world(block: usize, more: usize, rows: usize, running: usize) -> World {
    // The longest text fits, and how much more is a matter of luck.
    let total = 150usize.div_ceil(block) + more / block;
    let budget = Budget { rows: rows.max(running), running };
    let (requests, known, holders) = Default::default();
    World { requests, known, holders, used: 0, block, total, budget, pauses: 0 }
}
