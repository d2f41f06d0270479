//! Serves a trace step by step, and counts slots.

use super::{Allocator, Request, Slots};
use naive_decode::{Error, Result};
use std::collections::VecDeque;

/// A server of requests that do nothing but take up room: one token for each of those that run, in every
/// step; first come, first served.
///
/// Where slots run out under requests that run, the one that came last gives its slots back and waits
/// at the head of the line; when it is admitted again its tokens are there at once. What it costs to compute
/// them again is not counted, so steps say nothing about time.
pub struct Simulation<'a> {
    allocator: &'a mut dyn Allocator,
    requests: &'a [Request],
    /// The next request to arrive.
    next: usize,
    waiting: VecDeque<InFlight>,
    /// In the order of arrival.
    running: Vec<InFlight>,
    step: usize,
    preemptions: usize,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    /// Its place in the trace.
    id: usize,
    tokens: usize,
}

/// One step, after whoever fits has been admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Which step.
    pub step: usize,
    /// What the memory's slots are doing.
    pub slots: Slots,
    /// How many requests run.
    pub running: usize,
    /// How many wait.
    pub waiting: usize,
}

impl<'a> Simulation<'a> {
    /// Before the first step.
    ///
    /// # Errors
    /// If the requests are not in order of arrival, if one is to get no token, or if one would not fit into
    /// the empty memory and would wait forever.
    pub fn new(allocator: &'a mut dyn Allocator, requests: &'a [Request]) -> Result<Self> {
        if !requests.is_sorted_by_key(|request| request.arrival) {
            return Err(Error::invalid("arrivals", "not in order", "requests as they arrive"));
        }
        for (id, request) in requests.iter().enumerate() {
            if request.output == 0 {
                return Err(Error::invalid(format!("output of request {id}"), 0, "at least 1"));
            }
            // A length that overflows is too long for any memory.
            let overflows = request.prompt.checked_add(request.output).is_none();
            if overflows || !allocator.could_hold(request) {
                let (what, memory) = (format!("length of request {id}"), allocator.memory());
                let expected = format!("one that fits alone into a memory of {memory} slots");
                let length = request.prompt as u128 + request.output as u128;
                return Err(Error::invalid(what, length, expected));
            }
        }
        let (waiting, running) = (VecDeque::new(), Vec::new());
        Ok(Simulation { allocator, requests, next: 0, waiting, running, step: 0, preemptions: 0 })
    }

    /// How often a request had to give its slots back before it was done.
    pub fn preemptions(&self) -> usize {
        self.preemptions
    }

    /// The memory.
    pub fn allocator(&self) -> &dyn Allocator {
        self.allocator
    }

    /// Which requests run, by their place in the trace, and how many tokens each has.
    pub fn running(&self) -> impl Iterator<Item = (usize, usize)> {
        self.running.iter().map(|request| (request.id, request.tokens))
    }

    /// Admits whoever fits, or says that all are done. [`Simulation::advance`] goes on from there.
    pub fn admit(&mut self) -> Option<Moment> {
        if self.running.is_empty() && self.waiting.is_empty() {
            // Nothing happens until somebody comes.
            self.step = self.step.max(self.requests.get(self.next)?.arrival);
        }
        while let Some(request) = self.requests.get(self.next)
            && request.arrival <= self.step
        {
            self.waiting.push_back(InFlight { id: self.next, tokens: request.prompt });
            self.next += 1;
        }
        while let Some(&first) = self.waiting.front()
            && self.allocator.admit(first.id, &self.requests[first.id], first.tokens)
        {
            self.waiting.pop_front();
            self.running.push(first);
        }
        Some(Moment {
            step: self.step,
            slots: self.slots(),
            running: self.running.len(),
            waiting: self.waiting.len(),
        })
    }

    // ANCHOR: advance
    /// One token for each of those that run; whoever has all of them leaves.
    pub fn advance(&mut self) {
        let mut place = 0;
        while let Some(&InFlight { id, tokens }) = self.running.get(place) {
            if self.allocator.grow(id, tokens + 1) {
                self.running[place].tokens += 1;
                place += 1;
            } else if let Some(last) = self.running.pop() {
                // It may be the very one that has no room to grow.
                self.allocator.release(last.id);
                self.waiting.push_front(last);
                self.preemptions += 1;
            }
        }
        let is_done = |request: &InFlight| request.tokens == self.requests[request.id].length();
        for done in self.running.extract_if(.., |request| is_done(request)) {
            self.allocator.release(done.id);
        }
        self.step += 1;
    }
    // ANCHOR_END: advance

    // ANCHOR: count
    fn slots(&self) -> Slots {
        let mut slots = Slots::default();
        let mut taken = 0;
        for &InFlight { id, tokens } in &self.running {
            let set_aside = self.allocator.set_aside(id);
            let used_in_the_end = set_aside.min(self.requests[id].length());
            slots.tokens += tokens;
            slots.reserved += used_in_the_end - tokens;
            slots.internal += set_aside - used_in_the_end;
            taken += set_aside;
        }
        let head = self.waiting.front().map(|first| &self.requests[first.id]);
        slots.external = self.allocator.in_gaps(head);
        slots.free = self.allocator.memory() - taken - slots.external;
        slots
    }
    // ANCHOR_END: count
}

/// Averages over the steps in which somebody waits: only then is a wasted slot missed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Report {
    /// Share of the memory that holds tokens; with the next four it adds up to 1.
    pub tokens: f64,
    /// Share that is reserved.
    pub reserved: f64,
    /// Share lost to internal fragmentation.
    pub internal: f64,
    /// Share lost to external fragmentation.
    pub external: f64,
    /// Share that is free.
    pub free: f64,
    /// Requests that run at once.
    pub running: f64,
    /// The most requests that ran at once, in any step.
    pub most_running: usize,
    /// Steps in which somebody waited; if there were none, the averages are 0.
    pub crowded_steps: usize,
    /// Steps until all were done.
    pub steps: usize,
    /// How often a request had to give its slots back before it was done.
    pub preemptions: usize,
}

impl Report {
    /// Share of the memory that is reserved or lost.
    pub fn wasted(&self) -> f64 {
        self.reserved + self.internal + self.external
    }
}

/// Serves the whole trace.
///
/// # Errors
/// As [`Simulation::new`].
pub fn simulate(allocator: &mut dyn Allocator, requests: &[Request]) -> Result<Report> {
    let mut simulation = Simulation::new(allocator, requests)?;
    let (mut report, mut sum, mut running) = (Report::default(), Slots::default(), 0);
    while let Some(moment) = simulation.admit() {
        report.most_running = report.most_running.max(moment.running);
        report.steps = moment.step + 1;
        if moment.waiting > 0 {
            report.crowded_steps += 1;
            running += moment.running;
            sum.tokens += moment.slots.tokens;
            sum.reserved += moment.slots.reserved;
            sum.internal += moment.slots.internal;
            sum.external += moment.slots.external;
            sum.free += moment.slots.free;
        }
        simulation.advance();
    }
    report.preemptions = simulation.preemptions();
    let share = |slots: usize| slots as f64 / sum.total().max(1) as f64;
    report.tokens = share(sum.tokens);
    report.reserved = share(sum.reserved);
    report.internal = share(sum.internal);
    report.external = share(sum.external);
    report.free = share(sum.free);
    report.running = running as f64 / report.crowded_steps.max(1) as f64;
    Ok(report)
}
