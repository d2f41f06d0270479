//! What the policy is shown.

use super::Engine;
use super::arrivals::is_queued;
use super::member::{Member, Place};
use super::policy::{State, View};
use super::request::Limits;
use naive_decode::Result;

/// How many of those who wait are looked up in the prefix cache. Of those behind them nothing is known until their turn comes.
const LOOKED_UP: usize = 8;

/// Events that a pass may send besides tokens that were guessed, the end included.
const OTHER_EVENTS: usize = 4;

impl Engine {
    /// Everything that the next decision depends on. `is_exact`: the prefix cache has just shown that it can
    /// let go of nothing more, so only those inside and blocks that are free are counted.
    pub(super) fn view(&mut self, is_exact: bool) -> Result<State> {
        self.count_holders();
        let (pool, holders) = (self.pool.pool(), &self.holders);
        let mut requests = Vec::with_capacity(self.members.len());
        for member in self.members.iter().filter(|m| !is_exact || m.is_running()) {
            let mut view = member.view();
            if let Some(session) = member.session() {
                let tables = pool.tables(session.sequence())?;
                view.places = tables.held().count();
                view.gives_back = tables.held().filter(|block| holders.of(*block) == 1).count();
                view.guesses = member.chances();
                view.probes = member.guessing.probes;
            }
            requests.push(view);
        }
        if !is_exact {
            self.look_up(&mut requests);
        }
        let (free, block) = (pool.blocks().free(), self.options.block);
        let cached = if is_exact { 0 } else { pool.blocks().used() - holders.held() };
        Ok(State { requests, free, cached, block, times: self.times.clone() })
    }

    // ANCHOR: look_up
    /// What is known of the texts of those who will come in next, and who is about to make more known.
    ///
    /// Requests that begin alike often come together (several answers to one question). The first of them reads
    /// the prompt; the others wait until it has, and find it.
    fn look_up(&self, views: &mut [View]) {
        let blocks = self.pool.pool().blocks();
        let mut next: Vec<usize> = (0..views.len())
            .filter(|&i| is_queued(&self.members[i]) && !views[i].is_stalled)
            .collect();
        next.sort_unstable_by_key(|&i| views[i].rank);
        next.truncate(LOOKED_UP);
        let mut reading: Vec<usize> = (0..views.len())
            .filter(|&i| views[i].is_running && !views[i].is_stalled && views[i].pending() > 1)
            .collect();
        for i in next {
            let member = &self.members[i];
            if !member.reads_all() && !matches!(member.place, Place::Parked(_)) {
                // The last token is read in any case.
                let text = &member.text[..member.text.len() - 1];
                let known = self.pool.known(member.salt, text);
                views[i].held = known.len() * self.options.block;
                views[i].shared = known.iter().filter(|b| blocks.references(**b) > 1).count();
                let more = views[i].held + self.options.block;
                let ahead = |&other: &usize| {
                    let other = &self.members[other];
                    self.options.prefixes
                        && other.salt == member.salt
                        && other.text.len() >= more
                        && text.len() >= more
                        && other.text[..more] == text[..more]
                };
                let behind = reading.iter().copied().find(ahead);
                views[i].behind = behind.map(|other| views[other].id);
            }
            reading.push(i);
        }
    }
    // ANCHOR_END: look_up

    /// Guesses behind every text that has one row left to run.
    pub(super) fn guess(&mut self) {
        let (draft, Limits { context, vocabulary, .. }) = (self.options.draft, self.limits());
        for member in &mut self.members {
            let most = member.most_guesses().min(draft);
            member.guessing.tree.truncate(0);
            if most > 0 {
                let proposer = &mut member.guessing.proposer;
                let guessed = proposer.propose(&member.text, most, &mut self.guesser);
                // One that cannot guess costs the guess, and nothing else.
                let mut tree = guessed.unwrap_or_default();
                tree.cut_unknown(vocabulary);
                // The policy says how many of the first are worth a row.
                tree.sort_by_depth();
                // A tree with branches takes more slots than it is deep.
                tree.truncate(context - member.text.len());
                member.guessing.tree = tree;
            }
        }
    }
}

impl Member {
    /// What the policy sees of it, but for what takes a look at the pool.
    fn view(&self) -> View {
        let held = match &self.place {
            Place::Waiting => 0,
            Place::Inside(session) => session.text().len(),
            Place::Parked(parked) => parked.tokens(),
        };
        View {
            id: self.id,
            rank: self.rank,
            priority: self.priority,
            is_running: self.is_running(),
            is_stalled: self.is_stalled() || self.elsewhere.is_awaited(),
            text: self.text.len(),
            held,
            longest: self.longest(),
            places: 0,
            gives_back: 0,
            shared: 0,
            behind: None,
            guesses: Vec::new(),
            probes: false,
        }
    }

    /// Tokens that may be guessed: not past the end of the text, and no more than its reader has room for.
    fn most_guesses(&self) -> usize {
        if !self.is_running() || self.is_stalled() || self.held() + 1 < self.text.len() {
            return 0;
        }
        let left = self.max_tokens.saturating_sub(self.generated() + 1);
        left.min(self.outlet.room().saturating_sub(OTHER_EVENTS))
    }

    /// For each guess, the chance that it and those before it come true.
    fn chances(&self) -> Vec<f64> {
        let by_depth: Vec<f64> = self.guessing.acceptance.chances().collect();
        let depths = self.guessing.tree.depths().into_iter();
        depths.map(|depth| by_depth.get(depth - 1).copied().unwrap_or(0.0)).collect()
    }
}
