//! A request in a simulated engine: lengths and blocks, no tokens.

use super::deployment::Speculation;
use crate::engine::policy::{Rank, View};
use crate::load::sizes::Size;
use speculative::Acceptance;
use std::time::Duration;

/// A request that has come and is not done.
pub(super) struct Simulated {
    pub(super) id: u64,
    pub(super) rank: Rank,
    pub(super) size: Size,
    /// Seconds from the beginning.
    pub(super) came: f64,
    pub(super) started: Option<f64>,
    pub(super) first_token: Option<f64>,
    pub(super) is_running: bool,
    /// Tokens so far, prompt included. The last one has not been run.
    pub(super) text: usize,
    /// Tokens that have been run.
    pub(super) held: usize,
    /// Blocks in its table.
    pub(super) places: usize,
    /// Tokens at its beginning whose blocks have been let go of: no row looks back so far.
    pub(super) forgotten: usize,
    pub(super) preemptions: usize,
    acceptance: Acceptance,
    probes: bool,
}

impl Simulated {
    pub(super) fn new(id: u64, size: Size, came: f64, draft: usize) -> Self {
        let micros = Duration::from_micros((came * 1e6) as u64);
        Simulated {
            id,
            rank: Rank::new(0, micros, id),
            size,
            came,
            started: None,
            first_token: None,
            is_running: false,
            text: size.prompt,
            held: 0,
            places: 0,
            forgotten: 0,
            preemptions: 0,
            acceptance: Acceptance::new(draft),
            probes: false,
        }
    }

    pub(super) fn generated(&self) -> usize {
        self.text - self.size.prompt
    }

    pub(super) fn is_done(&self) -> bool {
        self.generated() >= self.size.answer
    }

    /// What the policy sees. Of a text whose beginning has been forgotten it sees the rest: its blocks are all that
    /// counts.
    pub(super) fn view(&self, speculation: Speculation) -> View {
        View {
            id: self.id,
            rank: self.rank,
            priority: 0,
            is_running: self.is_running,
            is_stalled: false,
            is_paused: false,
            text: self.text - self.forgotten,
            held: self.held - self.forgotten,
            longest: self.size.prompt + self.size.answer - 1 - self.forgotten,
            places: self.places,
            common: Vec::new(),
            behind: None,
            guesses: self.guesses(speculation.draft),
            probes: self.probes,
        }
    }

    /// For each guess the chance that it and those before it come true, as far as has been seen.
    fn guesses(&self, draft: usize) -> Vec<f64> {
        if !self.is_running || self.held + 1 < self.text {
            return Vec::new();
        }
        let left = self.size.answer.saturating_sub(self.generated() + 1);
        self.acceptance.chances().take(left.min(draft)).collect()
    }

    /// Its guesses were asked for, and so many of them run.
    pub(super) fn plan_guesses(&mut self, planned: usize, draft: usize) {
        if self.guesses(draft).is_empty() {
            return;
        }
        let was_probe = self.probes;
        self.probes = planned == 0 && self.acceptance.probe() > 0;
        if planned > 0 && !was_probe {
            self.acceptance.paid();
        }
    }

    /// So many of its guesses came true.
    pub(super) fn saw(&mut self, guessed: usize, came_true: usize) {
        if guessed > 0 {
            self.acceptance.observe(guessed, came_true);
        }
    }

    /// It gives up its blocks, and is to read its text again.
    pub(super) fn preempt(&mut self) {
        (self.is_running, self.held, self.places, self.forgotten) = (false, 0, 0, 0);
        self.preemptions += 1;
    }

    /// Lets go of whole blocks behind the window; gives the blocks it then holds.
    pub(super) fn settle(&mut self, block: usize, window: Option<usize>) -> usize {
        if let Some(window) = window {
            // The next row is at `held` and sees itself too.
            self.forgotten = (self.held + 1).saturating_sub(window) / block * block;
        }
        self.places = (self.held - self.forgotten).div_ceil(block);
        self.places
    }
}
